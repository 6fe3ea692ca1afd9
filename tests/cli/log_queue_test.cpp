// The log's queue: its limits, its line about dropped lines, and that callers do not wait for the log's reader.
#include "cli/terminal/log_queue.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::cli {
namespace {

// Keeps the lines; while it is shut, writers wait, as for a pipe that is not read.
class SlowSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void shut() {
    const std::lock_guard lock(gate_);
    is_open_ = false;
  }
  void open() {
    const std::lock_guard lock(gate_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait_for_writer() {
    std::unique_lock lock(gate_);
    changed_.wait(lock, [&] { return num_waiting_ > 0; });
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(gate_);
    return lines_;
  }
  bool is_broken = false;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (is_broken) throw std::runtime_error("no space left");
    std::unique_lock lock(gate_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
    --num_waiting_;
    lines_.emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}

 private:
  std::mutex gate_;
  std::condition_variable changed_;
  bool is_open_ = true;
  int num_waiting_ = 0;
  std::vector<std::string> lines_;
};

struct Log {
  explicit Log(LogQueueLimits limits = {}) : queue(std::make_shared<LogQueue>(sink, limits)), logger("test", queue) {}
  std::shared_ptr<SlowSink> sink = std::make_shared<SlowSink>();
  std::shared_ptr<LogQueue> queue;
  spdlog::logger logger;
};

using Lines = std::vector<std::string>;

TEST_CASE("log queue: lines are written in their order, and all of them by flush()") {
  Log log;
  Lines expected;
  for (int i = 0; i < 1000; ++i) log.logger.info(expected.emplace_back("line " + std::to_string(i)));
  log.logger.flush();
  CHECK(log.sink->lines() == expected);
  CHECK(log.queue->num_dropped() == 0);
}

TEST_CASE("log queue: callers do not wait for a reader that does not read; lost lines are counted and reported later") {
  Log log({.max_lines = 3});
  log.sink->shut();
  log.logger.info("written");
  log.sink->wait_for_writer();  // it has left the queue
  for (int i = 0; i < 8; ++i) log.logger.info("line " + std::to_string(i));
  CHECK(log.queue->num_dropped() == 5);
  log.sink->open();
  log.logger.flush();
  log.logger.info("after");
  log.logger.flush();
  CHECK(log.sink->lines() == Lines{"written", "line 0", "line 1", "line 2",
                                   "log lines dropped here: 5, the log was not read fast enough", "after"});
  CHECK(log.queue->num_dropped() == 5);
}

TEST_CASE("log queue: lines are bounded by their bytes, too") {
  Log log({.max_bytes = 10'000});
  log.sink->shut();
  log.logger.info("written");
  log.sink->wait_for_writer();
  log.logger.info(std::string(20'000, 'x'));
  log.logger.info(std::string(5'000, 'y'));
  log.logger.info(std::string(5'000, 'z'));
  CHECK(log.queue->num_dropped() == 2);
  log.sink->open();
  log.logger.flush();
  const Lines lines = log.sink->lines();
  REQUIRE(lines.size() == 4);
  CHECK(lines[1] == "log lines dropped here: 1, the log was not read fast enough");
  CHECK(lines[2] == std::string(5'000, 'y'));
  CHECK(lines[3] == lines[1]);
}

TEST_CASE("log queue: flush() and the end wait for a reader for a bounded time") {
  const auto sink = std::make_shared<SlowSink>();
  const auto start = std::chrono::steady_clock::now();
  {
    LogQueue queue(sink);
    sink->shut();
    queue.log(spdlog::details::log_msg("test", spdlog::level::err, "never read"));
    queue.flush();
  }
  CHECK(std::chrono::steady_clock::now() - start >= 2 * kMaxLogFlush);
  CHECK(sink->lines().empty());
  sink->open();  // the thread ends
}

TEST_CASE("log queue: lines for which the sink throws are counted as dropped") {
  Log log;
  log.sink->is_broken = true;
  log.logger.info("lost");
  log.logger.info("lost");
  log.logger.flush();
  log.sink->is_broken = false;
  log.logger.info("kept");
  log.logger.flush();
  CHECK(log.sink->lines() == Lines{"kept"});
  CHECK(log.queue->num_dropped() == 2);
}

}  // namespace
}  // namespace troupe::cli
