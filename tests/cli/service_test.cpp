// serve under a simulated service manager: an inherited socket, and the notifications that the server sends.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/client/client.h"
#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

constexpr int kPatienceMs = 120'000;  // no wait is this long if all works

// A Unix socket of the given type at a path.
int bound(const std::string& path, int type) {
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

// Simulates systemd: binds the socket before the server starts, and receives its notifications.
class Manager {
 public:
  Manager() : listening_(bound(socket(), SOCK_STREAM)), notify_(bound(folder_.path("notify"), SOCK_DGRAM)) {
    REQUIRE(::listen(listening_, 16) == 0);
    listener_ = std::thread([this] { listen(); });
  }
  ~Manager() {
    ::shutdown(notify_, SHUT_RDWR);
    listener_.join();
    ::close(listening_);
    ::close(notify_);
  }

  std::string socket() const { return folder_.path("t.sock"); }
  const TempFolder& folder() const { return folder_; }
  Spawn server(std::vector<std::string> arguments = {}, std::map<std::string, std::string> environment = {}) const {
    arguments.insert(arguments.begin(), "serve");
    environment["NOTIFY_SOCKET"] = folder_.path("notify");
    return {.arguments = std::move(arguments), .environment = std::move(environment), .handed = {listening_}};
  }

  // The first notice that holds `text`, of those that no earlier call has seen.
  std::string wait_for(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    std::unique_lock lock(mutex_);
    while (true) {
      for (; num_seen_ < notices_.size(); ++num_seen_)
        if (notices_[num_seen_].find(text) != std::string::npos) return notices_[num_seen_++];
      INFO("waiting for " << text << "; heard:\n" << joined());
      REQUIRE(more_.wait_until(lock, deadline) == std::cv_status::no_timeout);
    }
  }
  std::string heard() const {
    const std::lock_guard lock(mutex_);
    return joined();
  }

 private:
  // Always listening, as a manager is: the queue of such a socket holds ten notices, and then its sender waits.
  void listen() {
    char buffer[4096];
    for (ssize_t size; (size = ::recv(notify_, buffer, sizeof buffer, 0)) > 0;) {
      const std::lock_guard lock(mutex_);
      notices_.emplace_back(buffer, static_cast<std::size_t>(size));
      more_.notify_all();
    }
  }
  std::string joined() const {
    std::string all;
    for (const std::string& notice : notices_) all += notice + "\n";
    return all;
  }

  const TempFolder folder_;
  const int listening_;
  const int notify_;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::string> notices_;
  std::size_t num_seen_ = 0;
  std::thread listener_;
};

std::string content_of(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("a client that connects before its server exists is served by it; the socket stays for the next server") {
  Manager manager;
  const std::vector<std::string> ask{"run", "--socket", manager.socket(), "--temp", "0", "-n", "8", "Once upon a time"};
  for (int life = 0; life < 2; ++life) {
    Process client(Spawn{.arguments = ask});
    Process server(manager.server());
    const Finished answer = client.wait();
    CHECK(answer.code == 0);
    CHECK(answer.out == ", there was a little girl named Lily\n");
    server.signal(SIGTERM);
    manager.wait_for("STOPPING=1");  // a manager that never reads is one that servers wait for
    const Finished stopped = server.wait();
    CHECK(stopped.code == 0);
    CHECK_THAT(stopped.err, Contains("listens on " + manager.socket()));
    CHECK(std::filesystem::is_socket(manager.socket()));
  }
}

TEST_CASE("the manager hears that the model loads, that it is served, and that the server stops in its own time") {
  Manager manager;
  Process server(manager.server({"--drain-timeout", "7s"}));
  CHECK_THAT(manager.wait_for("STATUS=loading"), Contains("tales-5m-tq2_0.gguf"));
  manager.wait_for("STATUS=serving troupe tales 5M");
  manager.wait_for("READY=1");
  CHECK_THAT(manager.heard(), !Contains("WATCHDOG=1"));  // none was asked for
  server.signal(SIGTERM);
  manager.wait_for("STOPPING=1");
  manager.wait_for("EXTEND_TIMEOUT_USEC=22000000");  // the drain's 7 s, and 15 s for the rest
  CHECK(server.wait().code == 0);
}

TEST_CASE("the watchdog is fed as long as the server answers, also while it computes and while it drains") {
  Manager manager;
  Process server(manager.server({"-c", "65536"}, {{"WATCHDOG_USEC", "2000000"}}));
  manager.wait_for("READY=1");
  manager.wait_for("WATCHDOG=1");
  Process client(Spawn{.arguments = {"run", "--socket", manager.socket(), "--ignore-eos", "Once upon a time"}});
  REQUIRE(client.wait_for_out(" "));
  manager.wait_for("STATUS=serving troupe tales 5M: 1 running, 0 waiting");
  manager.wait_for("WATCHDOG=1");
  server.signal(SIGTERM);
  manager.wait_for("STATUS=finishing what runs: 1 running, 0 waiting");
  manager.wait_for("WATCHDOG=1");
  server.signal(SIGINT);
  CHECK(server.wait().code == 130);
  CHECK(std::filesystem::is_socket(manager.socket()));
}

TEST_CASE("the watchdog is not fed while requests wait and no step ends for longer than the progress timeout") {
  Manager manager;
  // One step of these kernels over this prompt takes seconds of one thread, and a notice comes every 100 ms. The
  // connections are open before it begins, and no process has to start during it.
  Process server(manager.server({"--kernels", "reference", "--threads", "1", "--max-step-tokens", "1024", "--max-stall",
                                 "1h", "--progress-timeout", "1ms"},
                                {{"WATCHDOG_USEC", "300000"}}));
  manager.wait_for("READY=1");
  manager.wait_for("WATCHDOG=1");
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "Once upon a time there was a dog. ";
  const auto client = troupe::client::Client::connect({.socket = manager.socket()});
  REQUIRE(client);
  const auto ask = [&](const std::string& text) {
    auto stream = (*client)->generate({.prompt = text, .sampling = {.max_tokens = 1}}, {});
    REQUIRE(stream);
    return std::move(*stream);
  };
  const auto first = ask(prompt);
  manager.wait_for("1 running, 0 waiting");
  const auto second = ask("Once");
  manager.wait_for("1 running, 1 waiting");
  const auto third = ask("Once");
  manager.wait_for("1 running, 2 waiting");  // so the first one's step has not ended
  const std::string heard = manager.heard();
  const std::size_t from = heard.find("1 running, 1 waiting"), to = heard.find("1 running, 2 waiting");
  REQUIRE(from < to);
  CHECK_THAT(heard.substr(from, to - from), !Contains("WATCHDOG=1"));
  manager.wait_for("WATCHDOG=1");  // the step has ended
  for (const auto& stream : {first, second, third}) CHECK(stream.wait()->done());
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("a socket that cannot be served ends with 78 and says what to change in the unit") {
  Manager manager;
  const Finished two = run([&] {
    Spawn spawn = manager.server();
    spawn.handed.push_back(spawn.handed[0]);
    return spawn;
  }());
  CHECK(two.code == 78);
  CHECK_THAT(two.err, Contains("the service manager passed 2 sockets"));
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Finished none = run([&] {
    Spawn spawn = manager.server();
    spawn.handed = {file};
    return spawn;
  }());
  ::close(file);
  CHECK(none.code == 78);
  CHECK_THAT(none.err, Contains("descriptor 3, which the service manager passed, is not a socket"));
}

TEST_CASE("a server does not use sockets whose LISTEN_PID is another process's") {
  Manager manager;
  const std::string own = manager.folder().path("own.sock");
  Process server(manager.server({"--socket", own}, {{"LISTEN_PID", "1"}}));
  REQUIRE(server.wait_for_err("ready"));
  CHECK(std::filesystem::is_socket(own));
  server.signal(SIGTERM);
  CHECK_THAT(server.wait().err, Contains("listens on " + own));
}

TEST_CASE("SIGHUP takes over what can change, names what needs a restart, and tells the manager") {
  Manager manager;
  const std::string config = manager.folder().write("troupe.toml", "log-level = \"warn\"\n");
  Process server(manager.server({"--config", config}));
  manager.wait_for("READY=1");
  manager.folder().write("troupe.toml", "log-level = \"info\"\nthreads = 1\nmax-connections = 17\n");
  server.signal(SIGHUP);
  CHECK_THAT(manager.wait_for("RELOADING=1"), Contains("\nMONOTONIC_USEC="));
  manager.wait_for("READY=1");
  REQUIRE(server.wait_for_err("reload: log-level = \"info\" (" + config + ":1)"));
  REQUIRE(server.wait_for_err("reload: max-connections = 17 (" + config + ":3)"));
  REQUIRE(server.wait_for_err("reload: threads = 1 (" + config + ":2) needs a restart"));

  manager.folder().write("troupe.toml", "log-level = \"loud\"\n");
  server.signal(SIGHUP);
  manager.wait_for("READY=1");
  REQUIRE(server.wait_for_err("reload: " + config + ":1: log-level: 'loud' is not one of"));
  const Finished status = invoke({"status", "--socket", manager.socket()});
  CHECK(status.code == 0);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("a key of the file that a flag or a variable hides is named at the start and at a reload") {
  Manager manager;
  const std::string config = manager.folder().write("troupe.toml", "max-connections = 17\nthreads = 2\n");
  Process server(manager.server({"--config", config, "--max-connections", "9"}, {{"TROUPE_THREADS", "1"}}));
  manager.wait_for("READY=1");
  REQUIRE(server.wait_for_err("warning --max-connections hides max-connections of " + config + ":1"));
  REQUIRE(server.wait_for_err("warning TROUPE_THREADS hides threads of " + config + ":2"));
  manager.folder().write("troupe.toml", "\n\nmax-connections = 18\n");
  server.signal(SIGHUP);
  REQUIRE(server.wait_for_err("reload: --max-connections hides max-connections of " + config + ":3"));
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("SIGHUP opens the log file anew, and keeps the old one where that fails") {
  Manager manager;
  const std::string log = manager.folder().path("logs/troupe.log");
  manager.folder().write("logs/troupe.log", "");
  Process server(manager.server({"--log-file", log}));
  manager.wait_for("READY=1");
  std::filesystem::rename(log, log + ".1");
  server.signal(SIGHUP);
  manager.wait_for("RELOADING=1");
  manager.wait_for("READY=1");
  CHECK_THAT(content_of(log), Contains("reload: no option has changed"));
  CHECK_THAT(content_of(log + ".1"), Contains("ready"));

  std::filesystem::rename(manager.folder().path("logs"), manager.folder().path("old"));
  server.signal(SIGHUP);
  manager.wait_for("RELOADING=1");
  manager.wait_for("READY=1");
  CHECK_THAT(content_of(manager.folder().path("old/troupe.log")), Contains("No such file"));
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("a user who is let in by a reload is served") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become another user");
    return;
  }
  Manager manager;
  REQUIRE(::chmod(manager.folder().path().c_str(), 0711) == 0);
  REQUIRE(::chmod(manager.socket().c_str(), 0666) == 0);
  const std::string config = manager.folder().write("troupe.toml", "");
  Process server(manager.server({"--config", config}));
  manager.wait_for("READY=1");
  const Spawn ask{.arguments = {"status", "--socket", manager.socket()}, .as_nobody = true};
  CHECK(run(ask).code != 0);
  manager.folder().write("troupe.toml", "allow-user = \"nobody\"\n");
  server.signal(SIGHUP);
  manager.wait_for("RELOADING=1");
  manager.wait_for("READY=1");
  CHECK(run(ask).code == 0);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("names of guests that the system does not know are refused, with where they stand") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  const Finished flag = invoke({"serve", "--socket", socket, "--allow-group", "root,no-such-group"});
  CHECK(flag.code == 2);
  CHECK_THAT(flag.err, Contains("--allow-group: this system knows nobody named 'no-such-group'"));
  const Finished variable =
      run({.arguments = {"serve", "--socket", socket}, .environment = {{"TROUPE_ALLOW_USER", "no-such-user"}}});
  CHECK(variable.code == 78);
  CHECK_THAT(variable.err, Contains("TROUPE_ALLOW_USER: this system knows nobody named 'no-such-user'"));
  const std::string config = folder.write("t.toml", "\nallow-user = ['no-such-user']\n");
  const Finished file = invoke({"serve", "--socket", socket, "--config", config});
  CHECK(file.code == 78);
  CHECK_THAT(file.err, Contains(config + ":2: allow-user: this system knows nobody named 'no-such-user'"));
}

TEST_CASE("--idle-exit ends a server without connections, and no other") {
  Manager manager;
  Process server(manager.server({"--idle-exit", "50ms", "-c", "65536"}));
  // Takes several times 50 ms.
  const Finished answer = invoke(
      {"run", "--socket", manager.socket(), "--ignore-eos", "--temp", "0", "-n", "500", "--json", "Once upon a time"});
  CHECK(answer.code == 0);
  CHECK(json::parse(answer.out)["ids"].size() == 500);
  const Finished ended = server.wait();  // by itself
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Contains("nobody was connected for 50 ms (idle-exit)"));
  CHECK(std::filesystem::is_socket(manager.socket()));
}

TEST_CASE("a server that may not make memory executable serves all the same") {
  if (!can_deny_write_execute()) {
    WARN("skipped: this kernel cannot deny executable memory (Linux 6.3 can)");
    return;
  }
  Manager manager;
  Spawn spawn = manager.server();
  spawn.deny_write_execute = true;
  Process server(spawn);
  manager.wait_for("READY=1");
  CHECK(invoke({"run", "--socket", manager.socket(), "-n", "1", "Once upon a time"}).code == 0);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}
