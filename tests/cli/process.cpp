#include "tests/cli/process.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace troupe::test {
namespace {

constexpr uid_t kNobody = 65534;

// What a child may inherit: nothing that could lead it to another server, configuration or model.
std::vector<std::string> clean_environment(const std::map<std::string, std::string>& additions) {
  std::map<std::string, std::string> values{{"HOME", "/nonexistent"}, {"XDG_CONFIG_HOME", "/nonexistent"}};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    // The last: with which kernels the tests of a sanitizer run (kernels/CMakeLists.txt).
    if (name == "PATH" || name.ends_with("SAN_OPTIONS") || name == "LD_LIBRARY_PATH")
      values[name] = text.substr(name.size() + 1);
  }
  for (const auto& [name, value] : additions) values[name] = value;
  std::vector<std::string> list;
  for (const auto& [name, value] : values) list.push_back(name + "=" + value);
  return list;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

constexpr int kSetMdwe = 65, kGetMdwe = 66, kRefuseExecGain = 1;  // PR_SET_MDWE...: newer than Debian 12's headers
constexpr std::string_view kListenPid = "LISTEN_PID=";

// The child's own pid as the value of `entry`, which has room for it. Safe after fork().
void write_pid(char* entry) {
  char* text = entry + kListenPid.size();
  int digits = 0;
  for (pid_t rest = ::getpid(); rest > 0; rest /= 10) ++digits;
  text[digits] = '\0';
  for (pid_t rest = ::getpid(); rest > 0; rest /= 10) text[--digits] = static_cast<char>('0' + rest % 10);
}

// From here on arch_prctl(ARCH_REQ_XCOMP_PERM, ...) fails so, everything else is as it was. Safe after fork().
bool deny_amx(int error) {
#if defined(__x86_64__)
  constexpr std::uint32_t kRequestPermission = 0x1023;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),  // the first, its low half
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRequestPermission, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = static_cast<unsigned short>(std::size(filter)), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
  return error != 0;
#endif
}

// Safe after fork().
void place(const std::vector<int>& handed) {
  const int first = 3, end = first + static_cast<int>(handed.size());
  for (int target = first; target < end; ++target) {
    const int fd = handed[static_cast<std::size_t>(target - first)];
    if (fd == target)
      ::fcntl(fd, F_SETFD, 0);
    else
      ::dup2(fd, target);
  }
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return ends;
}

// A terminal's two ends: the one that a test reads, the one that the child writes to.
std::array<int, 2> make_terminal() {
  const int reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(reader >= 0);
  REQUIRE(::grantpt(reader) == 0);
  REQUIRE(::unlockpt(reader) == 0);
  char name[64];
  REQUIRE(::ptsname_r(reader, name, sizeof name) == 0);
  const int writer = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(writer >= 0);
  termios settings{};
  REQUIRE(::tcgetattr(writer, &settings) == 0);
  ::cfmakeraw(&settings);
  REQUIRE(::tcsetattr(writer, TCSANOW, &settings) == 0);
  return {reader, writer};
}

}  // namespace

Process::Process(const Spawn& spawn) {
  ::signal(SIGPIPE, SIG_IGN);  // a child may end before it has read its input
  const auto in = make_pipe(), out = spawn.on_terminal ? make_terminal() : make_pipe(),
             err = spawn.err_on_terminal ? make_terminal() : make_pipe();
  std::vector<std::string> arguments = spawn.arguments;
  arguments.insert(arguments.begin(), spawn.as_nobody ? runnable_by_others(spawn.program) : spawn.program);
  std::map<std::string, std::string> additions = spawn.environment;
  if (!spawn.handed.empty()) {
    additions.emplace("LISTEN_FDS", std::to_string(spawn.handed.size()));
    additions.emplace("LISTEN_PID", "0000000000");  // unless the test says otherwise
  }
  std::vector<std::string> environment = clean_environment(additions);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {  // only async-signal-safe calls from here to exec
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(spawn.in >= 0 ? spawn.in : in[0], 0);
    ::dup2(spawn.out >= 0 ? spawn.out : out[1], 1);
    ::dup2(spawn.err >= 0 ? spawn.err : err[1], 2);
    for (const int fd : spawn.closed) ::close(fd);
    place(spawn.handed);
    for (char* entry : envp)
      if (entry && std::string_view(entry) == "LISTEN_PID=0000000000") write_pid(entry);
    if (spawn.deny_write_execute && ::prctl(kSetMdwe, kRefuseExecGain, 0, 0, 0) != 0) ::_exit(126);
    if (spawn.amx_error != 0 && !deny_amx(spawn.amx_error)) ::_exit(126);
    for (const auto& [what, limit] : spawn.limits) {
      const rlimit both{.rlim_cur = limit, .rlim_max = limit};
      if (::setrlimit(static_cast<__rlimit_resource>(what), &both) != 0) ::_exit(126);
    }
    if (spawn.as_nobody && (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0))
      ::_exit(126);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  readers_.emplace_back([this, fd = out[0]] { collect(fd, out_); });
  readers_.emplace_back([this, fd = err[0]] { collect(fd, err_); });
  readers_.emplace_back([fd = in[1], text = spawn.stdin_text] {
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::write(fd, text.data() + sent, text.size() - sent);
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
    }
    ::close(fd);
  });
}

Process::~Process() {
  if (!reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (std::thread& reader : readers_) reader.join();
}

void Process::signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }

void Process::collect(int fd, Stream& stream) {
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    const std::lock_guard lock(mutex_);
    if (count > 0)
      stream.text.append(buffer.data(), static_cast<std::size_t>(count));
    else
      stream.closed = true;
    changed_.notify_all();
    if (count <= 0) break;
  }
  ::close(fd);
}

bool Process::wait_for(const Stream& stream, const std::string& text, std::chrono::seconds patience) {
  std::unique_lock lock(mutex_);
  const auto found = [&] { return stream.text.find(text) != std::string::npos; };
  changed_.wait_for(lock, patience, [&] { return stream.closed || found(); });
  return found();
}

std::string Process::out() {
  const std::lock_guard lock(mutex_);
  return out_.text;
}

Finished Process::wait(std::chrono::seconds patience) {
  std::unique_lock lock(mutex_);
  // A child that ends closes its pipes.
  if (!changed_.wait_for(lock, patience, [&] { return out_.closed && err_.closed; })) {
    ::kill(pid_, SIGKILL);
    changed_.wait(lock, [&] { return out_.closed && err_.closed; });
  }
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, 0) == pid_);
  reaped_ = true;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, WIFSIGNALED(status), out_.text, err_.text};
}

bool can_deny_write_execute() { return ::prctl(kGetMdwe, 0, 0, 0, 0) >= 0; }

Finished run(const Spawn& spawn) { return Process(spawn).wait(); }

Finished invoke(std::vector<std::string> arguments, const std::string& stdin_text) {
  return run({.arguments = std::move(arguments), .stdin_text = stdin_text});
}

FileDescriptor connect_to(const std::string& socket) {
  FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(socket.size() < sizeof address.sun_path);
  std::copy(socket.begin(), socket.end(), address.sun_path);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

std::string post_of(const std::string& path, const std::string& body, const std::string& fields) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string post(const std::string& socket, const std::string& path, const std::string& body,
                 const std::string& fields) {
  const FileDescriptor fd = connect_to(socket);
  const std::string request = post_of(path, body, fields);
  REQUIRE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string answer;
  std::array<char, 4096> part;
  for (ssize_t count; (count = ::recv(fd.get(), part.data(), part.size(), 0)) > 0;)
    answer.append(part.data(), static_cast<std::size_t>(count));
  return answer;
}

ServerProcess::ServerProcess(std::vector<std::string> arguments, std::map<std::string, std::string> environment)
    : socket_(folder_.path("troupe.sock")) {
  arguments.insert(arguments.begin(), {"serve", "--socket", socket_});
  process_ = std::make_unique<Process>(Spawn{.arguments = std::move(arguments), .environment = std::move(environment)});
  const bool ready = process_->wait_for_err("ready");
  INFO((ready ? "" : process_->wait().err));
  REQUIRE(ready);
}

Spawn ServerProcess::spawn(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin() + 1, {"--socket", socket_});
  return {.arguments = std::move(arguments)};
}

Finished ServerProcess::call(std::vector<std::string> arguments, const std::string& stdin_text) const {
  Spawn child = spawn(std::move(arguments));
  child.stdin_text = stdin_text;
  return run(child);
}

Finished ServerProcess::stop() {
  process_->signal(SIGTERM);
  return process_->wait();
}

}  // namespace troupe::test
