#include "cli/terminal/status_line.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>

#include <memory>
#include <string>
#include <utility>

namespace troupe::cli {
namespace {

class AboveLine final : public spdlog::sinks::sink {
 public:
  AboveLine(spdlog::sink_ptr inner, StatusLine& line) : inner_(std::move(inner)), line_(line) {}

  void log(const spdlog::details::log_msg& message) override {
    line_.write_above([&] {
      inner_->log(message);
      inner_->flush();
    });
  }
  void flush() override { inner_->flush(); }
  void set_pattern(const std::string& pattern) override { inner_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    inner_->set_formatter(std::move(formatter));
  }

 private:
  spdlog::sink_ptr inner_;
  StatusLine& line_;
};

}  // namespace

StatusLine& StatusLine::of_stderr() {
  static auto& line = *new StatusLine(stderr);  // never destroyed: other threads log to the end
  return line;
}

void StatusLine::draw(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::fputs("\r\033[K", out_);
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
  drawn_ = true;
}

void StatusLine::erase() {
  const std::lock_guard lock(mutex_);
  erase_locked();
}

void StatusLine::write_above(const std::function<void()>& write) {
  const std::lock_guard lock(mutex_);
  erase_locked();
  write();
}

void StatusLine::erase_locked() {
  if (!std::exchange(drawn_, false)) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
}

void log_above(StatusLine& line, spdlog::logger& logger) {
  for (spdlog::sink_ptr& sink : logger.sinks())
    if (!dynamic_cast<AboveLine*>(sink.get())) sink = std::make_shared<AboveLine>(std::move(sink), line);
}

}  // namespace troupe::cli
