// The server's log: text or JSON lines, to stderr or a file. Prompts and answers are never logged.
#pragma once

#include <cstdint>
#include <memory>

#include "config/metric.h"
#include "config/options/option_table.h"
#include "config/result.h"

namespace spdlog {
class logger;
namespace sinks {
class sink;
}
}  // namespace spdlog

namespace troupe::cli {

class LogQueue;

// Makes the logger of --log-format, --log-level and --log-file the default of the process. Its lines are written by a
// thread of its own (cli/terminal/log_queue.h), above the status line if there is one; std::exit() flushes them. Error:
// permission or io when the file cannot be opened.
[[nodiscard]] Status start_log(const config::LogOptions& options);

// Sets the log level and opens --log-file again (logrotate(8) may have renamed it). May be called from any thread while
// others log. Error: permission or io; then lines still go to the old file.
[[nodiscard]] Status reload_log(const config::LogOptions& options);

// Lines under this logger's name are about requests. In the JSON format the payload is an object, whose members follow
// those of every line, and the message is the logger's name; in the text format it is as that of every line.
inline constexpr const char* kRequestLogger = "request";
// Where they go (--access-log).
struct RequestLines {
  std::shared_ptr<spdlog::sinks::sink> sink{};  // null: nowhere
  std::shared_ptr<const LogQueue> own_queue{};  // of a file of their own; null: they go to the log, which is started
};
// Error: permission or io, as start_log(), or os_limit.
[[nodiscard]] Result<RequestLines> open_request_lines(const config::LogOptions& options);

// Waits until all lines are written, for at most kMaxLogFlush; returns whether they are. If not, the log's thread holds
// the lock of stderr while it waits for a reader, and the end of the process by exit() would wait for that lock. Any
// thread, also in a signal handler.
bool flush_log() noexcept;

// The log lines that were dropped, and as many `others`.
void append_log_metrics(MetricList& metrics, std::uint64_t others = 0);

// The logger that start_log() made, valid until the process ends; null before start_log().
[[nodiscard]] spdlog::logger* started_log() noexcept;

// Whether log lines go to a terminal as text, so that a progress bar may be drawn between them.
[[nodiscard]] bool log_is_on_terminal(const config::LogOptions& options);

}  // namespace troupe::cli
