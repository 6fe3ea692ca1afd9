#include "cli/terminal/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/terminal/color.h"
#include "cli/terminal/status_line.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kBufferBytes = 64u << 10;

// Returns 0, or errno.
int write_all(const char* text, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(STDOUT_FILENO, text, size);
    if (count >= 0) {
      text += count;
      size -= static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd ready{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

StandardOutput::StandardOutput()
    : buffer_(kBufferBytes), on_terminal_(::isatty(STDOUT_FILENO) != 0), before_(std::cout.rdbuf(this)) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

StandardOutput::~StandardOutput() {
  sync();
  std::cout.rdbuf(before_);
}

std::string StandardOutput::finish() {
  sync();
  return error_ == 0 ? "" : fmt::format("writing to stdout failed: {}", std::strerror(error_));
}

StandardOutput::int_type StandardOutput::overflow(int_type c) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

std::streamsize StandardOutput::xsputn(const char* text, std::streamsize count) {
  const std::streamsize taken = std::streambuf::xsputn(text, count);
  if (on_terminal_ && std::memchr(text, '\n', static_cast<std::size_t>(taken)) != nullptr) sync();
  return taken;
}

int StandardOutput::sync() {
  if (error_ == 0) error_ = write_all(pbase(), static_cast<std::size_t>(pptr() - pbase()));
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0 ? 0 : -1;
}

void complain(std::string_view where, std::string_view message, Tone tone) {
  const bool colors = shows_colors(STDERR_FILENO);
  constexpr std::string_view kWarning = "warning:";
  const std::string_view beginning = message.starts_with(kWarning) ? kWarning : "";
  message.remove_prefix(beginning.size());
  StatusLine::of_stderr().write_above([&] {
    std::cerr << colored(fmt::format("{}:", where), Color::red, colors && tone == Tone::error) << ' '
              << colored(beginning, Color::yellow, colors && !beginning.empty()) << Printable(message, kMaxMessageBytes)
              << std::endl;
  });
}

void write_json(const nlohmann::ordered_json& value, std::ostream& out) {
  out << printable_json(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) << '\n';
}

bool shows_controls(bool raw) { return !raw && ::isatty(STDOUT_FILENO) != 0; }

}  // namespace troupe::cli
