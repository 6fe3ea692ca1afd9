#include "cli/terminal/logging.h"

#include <fmt/chrono.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "cli/terminal/color.h"
#include "cli/terminal/log_queue.h"
#include "cli/terminal/process.h"
#include "cli/terminal/status_line.h"
#include "config/printable.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

// One JSON object per line. The JSON library does the escaping; bytes that are not UTF-8 (a path may have them) become
// U+FFFD, so that every line parses.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    using nlohmann::ordered_json;
    const bool has_members = text(message.logger_name) == kRequestLogger;
    const ordered_json line{{"time", time_text(message.time)},
                            {"level", text(spdlog::level::to_string_view(message.level))},
                            {"thread", message.thread_id},
                            {"message", text(has_members ? message.logger_name : message.payload)}};
    std::string dumped = printable_json(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    if (has_members) {  // which begin with a bracket: a comma joins them
      dumped.back() = ',';
      dumped += std::string_view(text(message.payload)).substr(1);
    }
    dumped += '\n';
    out.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }

 private:
  static std::string text(spdlog::string_view_t view) { return {view.data(), view.size()}; }

  // RFC 3339 in UTC with milliseconds.
  static std::string time_text(spdlog::log_clock::time_point time) {
    const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(since_epoch / 1000), since_epoch % 1000);
  }
};

// Formats the message as Printable, so that text from outside cannot end the line or send control sequences to a
// terminal.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& out) override {
    const Printable shown({message.payload.data(), message.payload.size()}, kMaxMessageBytes);
    out.append(shown.text().data(), shown.text().data() + shown.text().size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PrintableMessage>(); }
};

std::unique_ptr<spdlog::formatter> make_formatter(const config::LogOptions& options) {
  if (options.log_format == "json") return std::make_unique<JsonFormatter>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %*");
  return formatter;
}

// A log file that can be reopened while other threads log.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(const char* option) : option_(option) {}

  // Error: permission or io; then the old file stays in use.
  Status open(const std::string& path) {
    const std::string what = option_ + ": ";
    // Tried first, because spdlog would make missing directories: a mistyped path should be an error.
    if (!std::ofstream(path, std::ios::app)) return system_error(what + path, errno);
    auto file = std::make_unique<spdlog::details::file_helper>();
    try {
      file->open(path);
    } catch (const spdlog::spdlog_ex& error) {
      return Error{ErrorCode::io, what + error.what()};
    }
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
    return Ok{};
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    file_->write(text);
  }
  void flush_() override { file_->flush(); }

 private:
  const std::string option_;  // for messages
  std::unique_ptr<spdlog::details::file_helper> file_;
};

// Set once and never destroyed: threads that end the process by force may log while static objects are destroyed.
std::atomic<std::shared_ptr<spdlog::logger>*> started{nullptr};
std::atomic<const LogQueue*> queue{nullptr};  // null: the system had no thread for one
std::atomic<FileSink*> log_file{nullptr};     // null: the log goes to stderr

}  // namespace

spdlog::logger* started_log() noexcept {
  const std::shared_ptr<spdlog::logger>* const log = started;
  return log ? log->get() : nullptr;
}

bool flush_log() noexcept {
  const LogQueue* const lines = queue;
  return !lines || lines->await_written();
}

void append_log_metrics(MetricList& metrics, std::uint64_t others) {
  const LogQueue* const lines = queue;
  metrics.counter("log_lines_dropped", "Log lines that were not written.", others + (lines ? lines->num_dropped() : 0));
}

Status start_log(const config::LogOptions& options) {
  spdlog::sink_ptr sink;
  if (options.log_file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
        shows_colors(STDERR_FILENO) ? spdlog::color_mode::automatic : spdlog::color_mode::never);
  } else {
    auto file = std::make_shared<FileSink>("--log-file");
    if (Status opened = file->open(options.log_file); !opened) return opened.error();
    log_file = file.get();
    sink = std::move(file);
  }
  auto logger = std::make_shared<spdlog::logger>("troupe", sink);
  logger->set_formatter(make_formatter(options));
  logger->set_level(spdlog::level::from_str(options.log_level));
  if (log_is_on_terminal(options)) log_above(StatusLine::of_stderr(), *logger);
  try {
    auto lines = std::make_shared<LogQueue>(logger->sinks().front());
    queue = lines.get();
    logger->sinks().front() = std::move(lines);
    std::atexit([] { flush_log(); });
  } catch (const std::system_error&) {
    logger->flush_on(spdlog::level::trace);
  }
  started = new std::shared_ptr<spdlog::logger>(logger);
  spdlog::set_default_logger(std::move(logger));
  return Ok{};
}

Status reload_log(const config::LogOptions& options) {
  const std::shared_ptr<spdlog::logger> logger = spdlog::default_logger();
  logger->set_level(spdlog::level::from_str(options.log_level));
  FileSink* const file = log_file;
  if (!file) return Ok{};
  flush_log();  // what was logged before goes to the old file
  return file->open(options.log_file);
}

Result<RequestLines> open_request_lines(const config::LogOptions& options) {
  if (!options.has_access_log()) return RequestLines{};
  if (!options.has_access_file()) {
    const spdlog::logger* const log = started_log();
    return log ? RequestLines{.sink = log->sinks().front()} : RequestLines{};
  }
  auto file = std::make_shared<FileSink>("--access-log");
  if (Status opened = file->open(options.access_log); !opened) return opened.error();
  file->set_formatter(make_formatter(options));
  try {
    auto lines = std::make_shared<LogQueue>(std::move(file));
    return RequestLines{.sink = lines, .own_queue = lines};
  } catch (const std::system_error& error) {
    return Error{ErrorCode::os_limit, "--access-log: no thread to write it: " + std::string(error.what())};
  }
}

bool log_is_on_terminal(const config::LogOptions& options) {
  return options.log_file.empty() && options.log_format == "text" && ::isatty(STDERR_FILENO) != 0;
}

}  // namespace troupe::cli
