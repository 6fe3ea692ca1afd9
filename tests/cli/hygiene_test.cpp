// A server without readers, descriptors, threads or memory: it serves, or says what is missing.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/cli/interposed.h"
#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;

namespace {

constexpr int kByLoader = 127;  // ld.so could not load a library: nothing of ours has run

bool is_served(const std::string& socket) {
  for (int look = 0; look < 1000; ++look)
    if (invoke({"status", "--socket", socket}).code == 0) return true;
  return false;
}

// Sends `text` on a connection of its own and waits until the server has ended it.
void send_and_wait_for_end(const std::string& socket, const std::string& text) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  char buffer[4096];
  while (::read(fd, buffer, sizeof buffer) > 0) {
  }
  ::close(fd);
}

// Checks that the server serves until SIGTERM, or ends with a code of docs/operations.md and a line that says why.
// Returns its exit code.
int serves_or_says_why(const Spawn& spawn, const std::string& socket, std::set<int> codes) {
  Process server(spawn);
  if (server.wait_for_err(" ready\n")) {
    server.signal(SIGTERM);
    codes = {0};
  }
  const Finished ended = server.wait();
  INFO(ended.err);
  CHECK_FALSE(ended.by_signal);
  CHECK(codes.count(ended.code) == 1);
  CHECK_FALSE(ended.err.empty());
  CHECK_FALSE(std::filesystem::exists(socket));
  return ended.code;
}

}  // namespace

TEST_CASE("a server keeps serving after the reader of its stderr has closed the pipe") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Process server(Spawn{.arguments = {"serve", "--socket", socket}, .err = ends[1]});
  ::close(ends[1]);
  REQUIRE(is_served(socket));
  ::close(ends[0]);
  send_and_wait_for_end(socket, "GET / HTTP/1.1\r\n\r\n");  // worth a warning
  CHECK(is_served(socket));
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK_FALSE(stopped.by_signal);
  CHECK(stopped.code == 0);
  CHECK_FALSE(std::filesystem::exists(socket));
}

TEST_CASE("a server whose log is not read keeps serving, and one signal ends it") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Process server(Spawn{.arguments = {"serve", "--socket", socket}, .err = ends[1]});
  REQUIRE(is_served(socket));
  // Full, but for a description of its own that does not wait: the server's next line waits for a reader.
  const int writer = ::open(("/proc/self/fd/" + std::to_string(ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(writer >= 0);
  const std::string filler(4096, '.');
  while (::write(writer, filler.data(), filler.size()) > 0) {
  }
  server.signal(SIGHUP);  // logs, on the main thread
  for (int i = 0; i < 3; ++i) {
    send_and_wait_for_end(socket, "GET / HTTP/1.1\r\n\r\n");  // worth a warning, on the io thread
    const Finished answer = invoke({"run", "--socket", socket, "-n", "4", "--temp", "0", "Once upon a time"});
    CHECK(answer.code == 0);
    const Finished seen = invoke({"status", "--prometheus", "--socket", socket});
    CHECK(seen.code == 0);
    CHECK(seen.out.find("\ntroupe:log_lines_dropped_total{") != std::string::npos);
  }
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK_FALSE(stopped.by_signal);
  CHECK(stopped.code == 0);
  CHECK_FALSE(std::filesystem::exists(socket));
  for (const int fd : {writer, ends[0], ends[1]}) ::close(fd);
}

TEST_CASE("a server keeps serving when its log file may not grow any more, and loses those lines") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock"), log = folder.path("troupe.log");
  Process server(Spawn{.arguments = {"serve", "--socket", socket, "--log-file", log}, .limits = {{RLIMIT_FSIZE, 100}}});
  REQUIRE(is_served(socket));
  CHECK(std::filesystem::file_size(log) <= 100);
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK_FALSE(stopped.by_signal);
  CHECK(stopped.code == 0);
}

TEST_CASE("descriptors 0 to 2 that are closed at the start become /dev/null") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  Process server(Spawn{.arguments = {"serve", "--socket", socket}, .closed = {0, 1, 2}});
  REQUIRE(is_served(socket));
  for (const char* fd : {"0", "1", "2"})
    CHECK(std::filesystem::read_symlink("/proc/" + std::to_string(server.pid()) + "/fd/" + fd) == "/dev/null");
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK_FALSE(stopped.by_signal);
  CHECK(stopped.code == 0);
}

TEST_CASE("a command whose output pipe is closed ends without a message") {
  ServerProcess server({"-c", "65536"});
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);
  Spawn spawn = server.spawn({"run", "--ignore-eos", "--temp", "0", "Once upon a time"});
  spawn.out = ends[1];
  Process client(spawn);
  ::close(ends[1]);
  const Finished ended = client.wait();
  CHECK(ended.code == 128 + SIGPIPE);
  CHECK(ended.err.empty());
}

TEST_CASE("a server that may start no more threads says so and ends with 71") {
  if (!kCanInterpose) return;    // a sanitizer starts a thread of its own at the end
  if (::geteuid() != 0) return;  // the limit does not apply to root, so the test runs as another user
  const TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0777 | S_ISVTX) == 0);
  const std::string socket = folder.path("t.sock");
  for (const std::uint64_t limit : {1, 2, 5, 8}) {
    INFO("ulimit -u " << limit);
    Spawn spawn{
        .arguments = {"serve", "--socket", socket, "-t", "4"}, .as_nobody = true, .limits = {{RLIMIT_NPROC, limit}}};
    Process server(spawn);
    const Finished ended = server.wait();
    INFO(ended.err);
    CHECK(ended.code == 71);
    CHECK_THAT(ended.err, Contains("ulimit -u"));
    CHECK_FALSE(std::filesystem::exists(socket));
  }
}

TEST_CASE("with any number of descriptors a server serves, or says that they are too few") {
  if (!kCanInterpose) return;  // a sanitizer needs descriptors to look at memory
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  std::set<int> seen;
  for (std::uint64_t limit = 3; limit <= 24; ++limit) {
    INFO("ulimit -n " << limit);
    seen.insert(
        serves_or_says_why(Spawn{.arguments = {"serve", "--socket", socket}, .limits = {{RLIMIT_NOFILE, limit}}},
                           socket, {71, kByLoader}));
  }
  CHECK(seen.count(71) == 1);
  CHECK(seen.count(0) == 1);
}

TEST_CASE("in any address space a server serves, or says that it is too small") {
  if (!kCanInterpose) return;  // sanitizers want terabytes of it
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  std::set<int> seen;
  for (std::uint64_t kib = 20'000; kib <= 400'000; kib += 10'000) {
    INFO("ulimit -v " << kib);
    seen.insert(serves_or_says_why(
        Spawn{.arguments = {"serve", "--socket", socket, "-t", "2"}, .limits = {{RLIMIT_AS, kib << 10}}}, socket,
        {1, 71, kByLoader}));
  }
  CHECK(seen.count(71) == 1);
}
