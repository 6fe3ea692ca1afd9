#include "tests/adversary/child.h"

#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace troupe::adversary {
namespace {

constexpr std::chrono::milliseconds kLook{2};

// The environment that a server inherits: nothing that could lead it to another socket, configuration or model.
std::vector<std::string> clean_environment() {
  std::vector<std::string> list{"HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    if (name == "PATH" || name == "TROUPE_KERNELS" || name.ends_with("SAN_OPTIONS")) list.push_back(text);
  }
  return list;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Its output goes to `out`.
pid_t spawn(std::vector<std::string> command, int out, int err) {
  std::vector<std::string> environment = clean_environment();
  const std::vector<char*> argv = pointers(command), envp = pointers(environment);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int in = ::open("/dev/null", O_RDONLY);
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

// A port that no socket has.
std::uint16_t free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::uint64_t status_line(pid_t pid, const std::string& name) {
  std::istringstream status(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
  return 0;
}

double ticks_per_second() { return static_cast<double>(::sysconf(_SC_CLK_TCK)); }

}  // namespace

Child::Child(std::optional<uid_t> uid, int niceness, const std::function<void(int)>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  pipe_ = Descriptor(ends[0]);
  pid_ = ::fork();
  if (pid_ != 0) {
    ::close(ends[1]);
    return;
  }
  pipe_.close();
  ::setpriority(PRIO_PROCESS, 0, niceness);
  if (uid && (::setgroups(0, nullptr) != 0 || ::setgid(*uid) != 0 || ::setuid(*uid) != 0)) ::_exit(126);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  work(ends[1]);
  ::_exit(0);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)), text_(std::move(other.text_)) {}

Child::~Child() {
  if (pid_ < 0) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

void Child::kill() const { ::kill(pid_, SIGKILL); }

bool Child::collect(std::chrono::milliseconds patience) {
  if (!pipe_.is_open()) return false;
  pollfd polled{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&polled, 1, static_cast<int>(patience.count())) <= 0) return true;
  std::array<char, 64 << 10> buffer;
  const ssize_t size = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (size > 0)
    text_.append(buffer.data(), static_cast<std::size_t>(size));
  else
    pipe_.close();
  return pipe_.is_open();
}

ServerProcess::ServerProcess(Options options)
    : socket_(options.folder + "/troupe.sock"), log_path_(options.folder + "/log") {
  ::mkdir(options.folder.c_str(), 0700);
  ::chmod(options.folder.c_str(), 0711);  // other users pass through it to the socket, whatever the umask
  const int log = ::open(log_path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  std::vector<std::string> command{options.program, "serve",      "--socket",
                                   socket_,         "--usage-db", options.folder + "/usage.db"};
  if (options.with_key) {
    const std::string port = std::to_string(free_port()), keys = options.folder + "/keys";
    tcp_ = "tcp:" + port;
    key_ = output_of({options.program, "key", "add", "neighbour", "--keys-file", keys}).value_or("none\n");
    key_.pop_back();  // the end of the line
    command.insert(command.end(), {"--listen", "tcp://127.0.0.1:" + port, "--keys-file", keys});
  }
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  pid_ = spawn(std::move(command), log, log);
  ::close(log);
}

ServerProcess::~ServerProcess() {
  if (ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string ServerProcess::log() const { return read_file(log_path_); }

bool ServerProcess::wait_for_log(const std::string& text, std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (log().find(text) == std::string::npos) {
    if (ended() || Clock::now() > until) return false;
    pause_for(kLook);
  }
  return true;
}

void ServerProcess::signal(int number) const { ::kill(pid_, number); }

std::optional<int> ServerProcess::ended() {
  int status = 0;
  if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) code_ = code_of(status);
  return code_;
}

std::optional<int> ServerProcess::wait(std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  while (!ended() && Clock::now() < until) pause_for(kLook);
  return code_;
}

bool ServerProcess::socket_exists() const { return ::access(socket_.c_str(), F_OK) == 0; }

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const Descriptor null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const pid_t pid = spawn(command, ends[1], null.get());
  ::close(ends[1]);
  const Descriptor out(ends[0]);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = ::read(out.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(size));
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || code_of(status) != 0) return std::nullopt;
  return text;
}

std::uint64_t resident_bytes(pid_t pid) { return status_line(pid, "VmRSS:"); }

std::uint64_t peak_resident_bytes(pid_t pid) { return status_line(pid, "VmHWM:"); }

void reset_peak(pid_t pid) { std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << "5"; }

Seconds cpu_time(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return Seconds(0);
  std::istringstream rest(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) rest >> skipped;
  double user = 0, system = 0;
  rest >> user >> system;
  return Seconds((user + system) / ticks_per_second());
}

Seconds own_cpu_time() {
  Seconds sum{0};
  for (const int of : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(of, &usage);
    sum += std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  }
  return sum;
}

Seconds machine_cpu_time() {
  std::istringstream stat(read_file("/proc/stat"));
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
  stat >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> stolen;
  return Seconds((user + nice + system + interrupts + soft_interrupts + stolen) / ticks_per_second());
}

bool has_work(pid_t pid) {
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator task(tasks, gone), end; !gone && task != end; task.increment(gone)) {
    const std::string stat = read_file(task->path() / "stat");
    const std::size_t name_end = stat.rfind(')');  // the state is behind the name and a space
    if (name_end != std::string::npos && stat.substr(name_end, 3) == ") R") return true;
  }
  return false;
}

void pause_for(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

}  // namespace troupe::adversary
