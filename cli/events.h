// A queue of events: signals, and reports of other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace troupe::cli {

// The events that the main thread of `serve`, `run` and `load` waits for.
enum class Event {
  signal,  // see EventQueue::last_signal
  loaded,  // loading the model has succeeded or failed
  ended,   // the drain, or the stream, has ended
  health,  // the server's status query was answered
};

class EventQueue {
 public:
  // From any thread; never blocks for long.
  void post(Event event);
  void post_signal(int number);
  // The next event, or nothing after `timeout`. Main thread only.
  [[nodiscard]] std::optional<Event> wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // The number of the last signal that wait() has returned; 0 before. Main thread only.
  [[nodiscard]] int last_signal() const { return last_signal_; }

 private:
  struct Entry {
    Event event;
    int signal;
  };
  void push(Entry entry);

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Entry> entries_;  // oldest first
  int last_signal_ = 0;
};

}  // namespace troupe::cli
