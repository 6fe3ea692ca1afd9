#include "ipc/io_watch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace troupe::ipc {
namespace {

// Between a turn that has come and the next that is asked for.
constexpr std::chrono::milliseconds kTurnInterval{1'000};

using SteadyClock = std::chrono::steady_clock;

// Where in the kernel a thread of this process waits; empty: it is not known, or it runs.
std::string place_in_kernel(pid_t thread) {
  std::string place;
  std::ifstream file(fmt::format("/proc/self/task/{}/wchan", thread));
  std::getline(file, place);
  return place.empty() || place == "0" ? std::string() : fmt::format(" (in the kernel's {})", place);
}

}  // namespace

IoWatch::IoWatch(asio::io_context& io, const Activity& activity, std::chrono::milliseconds patience,
                 std::function<bool()> is_idle, std::function<void(const std::string&)> on_stuck,
                 std::chrono::milliseconds idle_turns)
    : io_(io),
      activity_(activity),
      is_idle_(std::move(is_idle)),
      on_stuck_(std::move(on_stuck)),
      idle_turns_(idle_turns),
      turns_(patience) {}

IoWatch::~IoWatch() { stop(); }

void IoWatch::start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "io watch");
    run();
  });
}

void IoWatch::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void IoWatch::wake() {
  if (is_awake_) return;
  {
    const std::lock_guard lock(mutex_);
    is_awake_ = true;
  }
  changed_.notify_one();
}

void IoWatch::on_turn() {
  const bool idle = is_idle_();
  {
    const std::lock_guard lock(mutex_);
    has_come_ = true;
    io_thread_ = ::gettid();
    came_at_ = SteadyClock::now();
    if (idle) is_awake_ = false;
  }
  changed_.notify_one();
}

void IoWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    turns_.asked(SteadyClock::now());
    asio::post(io_, [this] { on_turn(); });
    while (turns_.is_outstanding()) {
      const bool woken = changed_.wait_until(lock, turns_.next_look(), [this] { return stops_ || has_come_; });
      if (stops_) return;
      woken ? take_turn(lock) : look(lock);
    }
    const bool idle = !is_awake_;
    changed_.wait_for(lock, idle ? idle_turns_ : kTurnInterval, [&] { return stops_ || (idle && is_awake_); });
  }
}

void IoWatch::take_turn(std::unique_lock<std::mutex>& lock) {
  has_come_ = false;
  const auto late = turns_.lateness(came_at_);
  const TurnWatch::Verdict verdict = turns_.came(came_at_);
  if (verdict != TurnWatch::Verdict::fine)
    tell(lock, verdict, fmt::format("the I/O thread goes on, after it stood still for {} ms", late.count()));
}

void IoWatch::look(std::unique_lock<std::mutex>& lock) {
  const auto now = SteadyClock::now();
  const TurnWatch::Verdict verdict = turns_.look(now);
  if (verdict == TurnWatch::Verdict::fine) return;
  tell(lock, verdict,
       fmt::format("the I/O thread has stood still for {} ms: {}", turns_.lateness(now).count(), activity_.text()) +
           place_in_kernel(io_thread_));
}

void IoWatch::tell(std::unique_lock<std::mutex>& lock, TurnWatch::Verdict verdict, const std::string& text) {
  lock.unlock();
  if (verdict == TurnWatch::Verdict::late)
    spdlog::warn("{}", text);
  else if (on_stuck_)
    on_stuck_(text + "; twice in a row as late as progress-timeout");
  else
    spdlog::error("{}", text);
  lock.lock();
}

}  // namespace troupe::ipc
