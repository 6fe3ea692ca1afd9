// The events that the main thread waits for, and threads that handle signals whatever the other threads are doing.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

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

// A thread that waits for signals. Their default actions are off for the rest of the process.
class SignalThread {
 public:
  // Blocks `signals` in the calling thread, and so in all threads that it starts later: create it before them.
  // `on_signal` is called with the number of each signal, on the thread that waits for them. Throws std::system_error
  // if no thread can be started.
  SignalThread(std::initializer_list<int> signals, std::function<void(int)> on_signal);
  // `on_signal` is not called any more; the signals stay blocked.
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  const sigset_t set_;
  const std::function<void(int)> on_signal_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// timeout(1) and sudo(8) deliver one signal twice, to the process and to its group: within this time it counts once.
inline constexpr std::chrono::milliseconds kSameSignal{200};
// How long a server may take to stop beyond --drain-timeout.
inline constexpr std::chrono::milliseconds kStopLimit{5000};

struct StopOptions {
  std::chrono::milliseconds drain_timeout;
  bool hangup_stops = false;  // SIGHUP stops too, instead of going to the queue every time
};

// Starts a server's stop thread, which handles SIGTERM, SIGINT and SIGHUP. It runs until the process ends, waits for no
// other thread and takes no lock that one may hold for long, so that a stop signal always ends the server:
//   the first stop signal                       is posted to `events`
//   a second one                                ends the process at once with 128 plus its number
//   drain_timeout + kStopLimit after the first  the process is ended with kExitFailure
// A second signal with the same number counts only kSameSignal or more after the first. The last two call
// end_by_force() (cli/terminal/process.h). Call once, before other threads are started. Throws as SignalThread.
void start_stop_thread(std::shared_ptr<EventQueue> events, const StopOptions& options);

}  // namespace troupe::cli
