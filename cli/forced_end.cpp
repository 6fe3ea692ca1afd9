#include "cli/forced_end.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/exit_code.h"
#include "cli/logging.h"
#include "cli/process.h"

namespace troupe::cli {
namespace {

constexpr std::chrono::milliseconds kLastWords{200};

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
    return done.wait_for(kLastWords) == std::future_status::ready;
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
