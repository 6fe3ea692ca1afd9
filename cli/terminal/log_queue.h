// A log sink whose callers never wait for the log's reader: lines go into a bounded queue, and a separate thread passes
// them on to another sink.
#pragma once

#include <spdlog/sinks/sink.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe::cli {

struct LogQueueLimits {
  std::size_t max_lines = 4096;
  std::size_t max_bytes = 1u << 20;
};
// The longest time that flush() and the destructor wait for the lines in the queue.
inline constexpr std::chrono::milliseconds kMaxLogFlush{1000};

// Thread-safe. A line that does not fit is dropped and counted; once there is room, a line gives their number.
class LogQueue final : public spdlog::sinks::sink {
 public:
  // Throws std::system_error if the thread cannot be started.
  explicit LogQueue(spdlog::sink_ptr inner, LogQueueLimits limits = {});
  // Flushes. A thread that still waits for the log's reader keeps running.
  ~LogQueue() override;

  void log(const spdlog::details::log_msg& message) override;
  void flush() override { await_written(); }
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

  // Waits until every line is written, for at most kMaxLogFlush; returns whether all are. Takes no lock: a signal
  // handler may call it.
  bool await_written() const noexcept;
  [[nodiscard]] std::uint64_t num_dropped() const noexcept;

 private:
  struct State;
  static void write_lines(State& state);

  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

}  // namespace troupe::cli
