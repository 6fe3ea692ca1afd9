#include "cli/client/chat_style.h"

#include <algorithm>
#include <utility>

#include "cli/terminal/color.h"

namespace troupe::cli {

ChatStyle chat_style(int fd) {
  if (!shows_colors(fd)) return {};
  return {.prompt = "\x1b[1;32m", .note = "\x1b[36m", .reasoning = "\x1b[2m", .end = "\x1b[0m"};
}

ReasoningShade::ReasoningShade(const ChatStyle& style, std::string open, std::string close, bool begins_open)
    : style_(style),
      open_(std::move(open)),
      close_(std::move(close)),
      state_(begins_open ? State::reasoning : State::start) {
  if (style_.is_plain() || open_.empty() || close_.empty()) state_ = State::content;
}

std::string ReasoningShade::show(std::string_view text) {
  if (state_ == State::content) return std::string(text);
  std::string shown;
  if (state_ == State::start) {
    held_ += text;
    const std::size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.size() < open_.size() && std::string_view(open_).starts_with(rest)) return {};
    if (!rest.starts_with(open_)) {
      state_ = State::content;
      return std::exchange(held_, {});
    }
    state_ = State::reasoning;
    const std::string whole = std::exchange(held_, {});
    return show(whole);
  }
  if (text.empty()) return {};
  if (!is_shaded_) shown += style_.reasoning;
  is_shaded_ = true;
  const std::size_t before = held_.size();
  held_ += text;
  const std::size_t end = held_.find(close_);
  if (end == std::string::npos) {
    held_.erase(0, held_.size() - std::min(held_.size(), close_.size() - 1));
    return shown.append(text);
  }
  const std::size_t reasoning = end + close_.size() - before;  // bytes of `text`
  state_ = State::content;
  is_shaded_ = false;
  held_.clear();
  return shown.append(text.substr(0, reasoning)).append(style_.end).append(text.substr(reasoning));
}

std::string ReasoningShade::end() {
  std::string shown = state_ == State::start ? std::exchange(held_, {}) : std::string();
  if (std::exchange(is_shaded_, false)) shown += style_.end;
  state_ = State::content;
  return shown;
}

}  // namespace troupe::cli
