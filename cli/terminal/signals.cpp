#include "cli/terminal/signals.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>

#include "cli/terminal/exit_code.h"
#include "cli/terminal/process.h"

namespace troupe::cli {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t block(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : signals) ::sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

// The number of the next signal of `set`; 0 at `deadline`.
int wait_for_signal(const sigset_t& set, std::optional<Clock::time_point> deadline = std::nullopt) {
  for (;;) {
    timespec left{};
    if (deadline) {
      const auto time = std::max(Clock::duration::zero(), *deadline - Clock::now());
      left.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(time).count();
      left.tv_nsec = std::chrono::nanoseconds(time % std::chrono::seconds(1)).count();
    }
    const int number = ::sigtimedwait(&set, nullptr, deadline ? &left : nullptr);
    if (number > 0) return number;
    if (errno == EAGAIN) return 0;
  }
}

[[noreturn]] void watch_stop(const sigset_t& set, const std::shared_ptr<EventQueue>& events,
                             const StopOptions& options) {
  const auto stops = [&](int number) { return number != SIGHUP || options.hangup_stops; };
  int first = 0;
  while (!stops(first = wait_for_signal(set))) events->post_signal(first);
  const auto begin = Clock::now();
  events->post_signal(first);
  for (;;) {
    const int number = wait_for_signal(set, begin + options.drain_timeout + kStopLimit);
    if (number == 0)
      end_by_force(kExitFailure, fmt::format("ended by force: the server had not stopped {} ms after signal {}",
                                             (options.drain_timeout + kStopLimit).count(), first)
                                     .c_str());
    if (!stops(number))
      events->post_signal(number);
    else if (number != first || Clock::now() - begin >= kSameSignal)
      end_by_force(kExitSignalBase + number, fmt::format("signal {}: stopping at once", number).c_str());
  }
}

}  // namespace

void EventQueue::post(Event event) { push({event, 0}); }
void EventQueue::post_signal(int number) { push({Event::signal, number}); }

void EventQueue::push(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }
  posted_.notify_one();
}

std::optional<Event> EventQueue::wait(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  const auto is_posted = [this] { return !entries_.empty(); };
  if (!timeout)
    posted_.wait(lock, is_posted);
  else if (!posted_.wait_for(lock, *timeout, is_posted))
    return std::nullopt;
  const Entry entry = entries_.front();
  entries_.pop_front();
  if (entry.event == Event::signal) last_signal_ = entry.signal;
  return entry.event;
}

SignalThread::SignalThread(std::initializer_list<int> signals, std::function<void(int)> on_signal)
    : set_(block(signals)), on_signal_(std::move(on_signal)), thread_([this] {
        while (true) {
          const int number = wait_for_signal(set_);
          if (ending_) return;
          on_signal_(number);
        }
      }) {}

SignalThread::~SignalThread() {
  ending_ = true;
  int any = 1;
  while (!::sigismember(&set_, any)) ++any;
  ::pthread_kill(thread_.native_handle(), any);  // only ends the thread's sigtimedwait()
  thread_.join();
}

void start_stop_thread(std::shared_ptr<EventQueue> events, const StopOptions& options) {
  const sigset_t set = block({SIGINT, SIGTERM, SIGHUP});
  std::thread([set, events = std::move(events), options] { watch_stop(set, events, options); }).detach();
}

}  // namespace troupe::cli
