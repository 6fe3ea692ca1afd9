// One place to wait for signals and for what other threads report.
#pragma once

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe::cli {

// What the main thread of `serve` and `run` waits for.
enum class Event {
  signal,  // one of those that the queue takes
  loaded,  // the model is loaded, or cannot be
  ended,   // the drain, or the stream, has ended
  health,  // the server has answered how it does
};

// Takes its signals from their default action for the rest of the process. Create it on the main thread before any
// other thread starts: threads inherit the mask. One per process.
class EventQueue {
 public:
  explicit EventQueue(std::initializer_list<int> signals = {SIGINT, SIGTERM});
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // From any thread; never blocks for long.
  void post(Event event);
  // The next event, or nothing after `timeout`. Main thread only.
  [[nodiscard]] std::optional<Event> wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // The number of the last signal that came; 0 before.
  [[nodiscard]] int last_signal() const { return last_signal_; }

 private:
  std::mutex mutex_;
  std::vector<Event> posted_;  // oldest first
  int signals_ = -1;           // signalfd
  int wake_ = -1;              // eventfd: posted_ may be non-empty
  int last_signal_ = 0;
};

}  // namespace troupe::cli
