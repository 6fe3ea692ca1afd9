// Watches the io thread from a thread of its own: a turn that comes late is a line in the log, and the second in a row
// that is late by the patience is told, as no other thread could tell clients anything any more (turn_watch.h).
#pragma once

#include <asio.hpp>

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "ipc/activity.h"
#include "ipc/turn_watch.h"

namespace troupe::ipc {

// How often a turn is asked for while the server is idle, so that it uses hardly any CPU.
inline constexpr std::chrono::milliseconds kIdleTurns{10'000};

class IoWatch {
 public:
  // is_idle: called by the io thread; then turns are asked for every `idle_turns` only, until wake().
  // on_stuck: called by the watch's thread with the reason; may be empty. `io` and `activity` outlive the watch.
  IoWatch(asio::io_context& io, const Activity& activity, std::chrono::milliseconds patience,
          std::function<bool()> is_idle, std::function<void(const std::string&)> on_stuck,
          std::chrono::milliseconds idle_turns = kIdleTurns);
  ~IoWatch();  // as stop()
  IoWatch(const IoWatch&) = delete;
  IoWatch& operator=(const IoWatch&) = delete;

  void start();
  // Not from the io thread.
  void stop();
  // Io thread: the server is idle no longer.
  void wake();

 private:
  void run();
  void on_turn();
  void look(std::unique_lock<std::mutex>& lock);
  void take_turn(std::unique_lock<std::mutex>& lock);
  void tell(std::unique_lock<std::mutex>& lock, TurnWatch::Verdict verdict, const std::string& text);

  asio::io_context& io_;
  const Activity& activity_;
  const std::function<bool()> is_idle_;
  const std::function<void(const std::string&)> on_stuck_;
  const std::chrono::milliseconds idle_turns_;

  std::mutex mutex_;  // for the members below
  std::condition_variable changed_;
  TurnWatch turns_;
  TurnWatch::TimePoint came_at_{};
  bool has_come_ = false;  // the outstanding turn
  pid_t io_thread_ = 0;    // 0: no turn has come yet
  bool is_awake_ = false;  // written by the io thread alone
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace troupe::ipc
