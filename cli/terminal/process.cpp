#include "cli/terminal/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <future>
#include <latch>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cli/terminal/logging.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

bool is_limited(__rlimit_resource what) {
  rlimit limit{};
  return ::getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Ending no_memory() {
  return {kExitOsLimit, std::string("the system gives this process no more memory; ") +
                            (is_limited(RLIMIT_AS) ? "its address space is limited: raise ulimit -v"
                                                   : "use a smaller --memory, or raise MemoryMax= of its unit")};
}

Ending no_threads(const std::string& what) {
  return {kExitOsLimit,
          fmt::format("the system starts no more threads ({}); raise ulimit -u (LimitNPROC= and TasksMax= of a unit){}",
                      what, is_limited(RLIMIT_AS) ? ", or ulimit -v, which limits their stacks" : "")};
}

std::atomic<void*> memory_reserve{nullptr};

// Reserves address space, which is what ulimit -v limits; it is never touched, so it takes no memory.
void fill_memory_reserve() noexcept {
  void* const reserve = ::mmap(nullptr, kMemoryReserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserve == MAP_FAILED) return;
  void* none = nullptr;
  if (!memory_reserve.compare_exchange_strong(none, reserve)) ::munmap(reserve, kMemoryReserve);
}

// For std::set_new_handler: operator new tries again when it returns.
void give_memory_reserve() {
  if (void* const reserve = memory_reserve.exchange(nullptr)) {
    ::munmap(reserve, kMemoryReserve);
    return;
  }
  // The reserve was released already, and this allocation is still too large: reserve again for smaller ones.
  fill_memory_reserve();
  throw std::bad_alloc();
}

constexpr std::chrono::milliseconds kMaxLogWait{200};

std::atomic<ipc::SocketFile*> socket_file{nullptr};

// Writes a line of at most 511 bytes to stderr, or nothing if stderr has no room. A pipe that poll() reports as
// writable takes such a line as a whole, so this does not block.
void say_on_stderr(const char* why) noexcept {
  char line[512];
  const int length = std::snprintf(line, sizeof line, "troupe: %s\n", why);
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (length <= 0 || ::poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return;
  line[sizeof line - 2] = '\n';  // ends a line that was cut
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line, std::min<std::size_t>(length, sizeof line - 1));
}

// Logs on a new thread, since another thread may hold the log's lock, and waits for the line. False: there is no log,
// the thread could not be started, or the line was not written in time.
bool say_in_log(const char* why) noexcept {
  spdlog::logger* const log = started_log();
  if (!log) return false;
  try {
    auto said = std::make_shared<std::promise<void>>();
    std::future<void> done = said->get_future();
    std::thread([log, said, why = std::string(why)] {
      log->critical("{}", why);
      flush_log();
      said->set_value();
    }).detach();
    return done.wait_for(kMaxLogWait) == std::future_status::ready;
  } catch (...) {
    return false;
  }
}

[[noreturn]] void terminated() noexcept {
  static std::atomic_flag entered;
  if (entered.test_and_set()) ::_exit(kExitFailure);
  int code = kExitOsLimit;
  char why[400] = "out of memory";  // if there is no memory for a better message
  try {
    Ending ending{kExitFailure, "an error that cannot be handled"};
    if (const std::exception_ptr thrown = std::current_exception()) ending = ending_of(thrown);
    code = ending.code;
    std::snprintf(why, sizeof why, "ended by force: %s", ending.why.c_str());
    for (char& c : why)
      if (c != '\0' && (c < ' ' || c > '~')) c = '?';
  } catch (...) {
    // `code` and `why` keep their initial values.
  }
  end_by_force(code, why);
}

}  // namespace

bool prepare_process() noexcept {
  std::signal(SIGXFSZ, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)  // open() returns the lowest free one
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) return false;
  return true;
}

void ignore_closed_pipes() noexcept { std::signal(SIGPIPE, SIG_IGN); }

void give_back_large_buffers() noexcept {
  constexpr int kLargeBytes = 256 << 10;
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);  // setting it turns off its automatic growth
  ::mallopt(M_TRIM_THRESHOLD, 4 * kLargeBytes);
}

void keep_memory_reserve() noexcept {
  fill_memory_reserve();
  std::set_new_handler(give_memory_reserve);
}

std::optional<Ending> lack_of_threads(std::uint32_t count) {
  std::latch all_run(1);
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::optional<Ending> lack;
  try {
    while (threads.size() < count) threads.emplace_back([&] { all_run.wait(); });
  } catch (const std::system_error& error) {
    lack = no_threads(
        fmt::format("this server needs {}, and it has {}: {}", count, threads.size(), error.code().message()));
  }
  all_run.count_down();
  for (std::thread& thread : threads) thread.join();
  return lack;
}

Ending ending_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    if (number == EAGAIN) return no_threads(error.what());
    if (number == ENOMEM) return no_memory();
    if (!lacks_descriptors(number)) return {kExitFailure, error.what()};
    return {kExitOsLimit, fmt::format("{}: {}", error.what(), kRaiseDescriptors)};
  } catch (const std::exception& error) {
    return {kExitFailure, error.what()};
  } catch (...) {
    return {kExitFailure, "an unknown error"};
  }
}

void remove_at_forced_end(std::shared_ptr<ipc::SocketFile> file) {
  static auto& kept = *new std::vector<std::shared_ptr<ipc::SocketFile>>();  // never destroyed
  socket_file = file.get();
  kept.push_back(std::move(file));
}

void end_by_force(int code, const char* why) noexcept {
  if (ipc::SocketFile* file = socket_file) file->remove();
  if (!say_in_log(why)) say_on_stderr(why);
  ::_exit(code);
}

void handle_terminate() noexcept {
  std::set_terminate(terminated);
  std::signal(SIGABRT, [](int) {  // an assertion, or the allocator; calls only what a signal handler may call
    if (ipc::SocketFile* file = socket_file) file->remove();
    flush_log();
    ::_exit(kExitFailure);
  });
}

}  // namespace troupe::cli
