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

// A line of at most so many bytes is written whole or, where stderr has no room for it, not at all.
void say_on_stderr(const char* why) noexcept {
  char line[512];
  const int length = std::snprintf(line, sizeof line, "troupe: %s\n", why);
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (length <= 0 || ::poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return;
  line[sizeof line - 2] = '\n';  // of a longer one
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, line, std::min<std::size_t>(length, sizeof line - 1));
}

// On a thread of its own, since another may hold the log's lock, or wait for the reader of a pipe. False: there is no
// log or no thread, or the log did not take the line in time.
bool say_in_log(const char* why) noexcept {
  spdlog::logger* const log = started_log();
  if (!log) return false;
  try {
    auto said = std::make_shared<std::promise<void>>();
    std::future<void> done = said->get_future();
    std::thread([log, said, why = std::string(why)] {
      log->critical("{}", why);
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
  char why[400] = "out of memory";  // where there is not even memory to say it better
  try {
    Ending ending{kExitFailure, "an error that cannot be handled"};
    if (const std::exception_ptr thrown = std::current_exception()) ending = ending_of(thrown);
    code = ending.code;
    std::snprintf(why, sizeof why, "ended by force: %s", ending.why.c_str());
    for (char& c : why)
      if (c != '\0' && (c < ' ' || c > '~')) c = '?';
  } catch (...) {
    // It stays with that.
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
  std::signal(SIGABRT, [](int) {  // an assertion, or the allocator: only what a signal handler may do
    if (ipc::SocketFile* file = socket_file) file->remove();
    ::_exit(kExitFailure);
  });
}

}  // namespace troupe::cli
