#include "cli/terminal/log_queue.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/details/log_msg_buffer.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::cli {

using spdlog::details::log_msg;
using spdlog::details::log_msg_buffer;

struct LogQueue::State {
  State(spdlog::sink_ptr the_inner, LogQueueLimits the_limits) : inner(std::move(the_inner)), limits(the_limits) {}

  static std::size_t bytes_of(const log_msg& line) { return sizeof(log_msg_buffer) + line.payload.size(); }
  bool has_room(std::size_t size) const { return lines.size() < limits.max_lines && bytes + size <= limits.max_bytes; }
  void push(const log_msg& line) {
    lines.emplace_back(line);
    bytes += bytes_of(line);
    ++num_unwritten;
  }
  // Where lines were dropped, adds a line with their number.
  void push_gap() {
    if (num_missing == 0) return;
    push(log_msg("troupe", spdlog::level::warn,
                 fmt::format("log lines dropped here: {}, the log was not read fast enough", num_missing)));
    num_missing = 0;
  }
  void drop() {
    ++num_missing;
    ++num_dropped;
  }

  const spdlog::sink_ptr inner;
  const LogQueueLimits limits;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<log_msg_buffer> lines;
  std::size_t bytes = 0;          // of `lines`
  std::uint64_t num_missing = 0;  // dropped since the last line in the queue
  bool stopped = false;
  std::atomic<std::uint64_t> num_unwritten{0};  // queued, or being written
  std::atomic<std::uint64_t> num_dropped{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // a signal handler reads them
};

LogQueue::LogQueue(spdlog::sink_ptr inner, LogQueueLimits limits)
    : state_(std::make_shared<State>(std::move(inner), limits)) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the thread, which so handles no signals
  try {
    std::thread([state = state_] { write_lines(*state); }).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogQueue::~LogQueue() {
  await_written();
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_one();
}

void LogQueue::log(const log_msg& message) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.has_room(State::bytes_of(message))) return state.drop();
  try {
    state.push_gap();
    state.push(message);
  } catch (const std::bad_alloc&) {
    state.drop();
  }
  state.changed.notify_one();
}

void LogQueue::write_lines(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.stopped || !state.lines.empty(); });
    if (state.lines.empty()) return;
    {
      const log_msg_buffer line = std::move(state.lines.front());
      state.lines.pop_front();
      state.bytes -= State::bytes_of(line);
      lock.unlock();
      try {
        state.inner->log(line);
        state.inner->flush();
      } catch (...) {  // the disk is full, the reader has gone
        ++state.num_dropped;
      }
    }
    lock.lock();
    try {
      if (state.lines.empty()) state.push_gap();
    } catch (const std::bad_alloc&) {
      // The next line tries again.
    }
    --state.num_unwritten;
  }
}

void LogQueue::set_pattern(const std::string& pattern) { state_->inner->set_pattern(pattern); }

void LogQueue::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  state_->inner->set_formatter(std::move(formatter));
}

bool LogQueue::await_written() const noexcept {
  constexpr std::chrono::milliseconds kPause{1};
  constexpr timespec kNap{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kPause).count()};
  for (auto waited = kPause; state_->num_unwritten > 0 && waited <= kMaxLogFlush; waited += kPause)
    ::nanosleep(&kNap, nullptr);
  return state_->num_unwritten == 0;
}

std::uint64_t LogQueue::num_dropped() const noexcept { return state_->num_dropped; }

}  // namespace troupe::cli
