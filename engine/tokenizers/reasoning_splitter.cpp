#include "engine/tokenizers/reasoning_splitter.h"

#include <algorithm>
#include <utility>

#include "engine/tokenizers/marker_search.h"

namespace troupe::engine {

ReasoningSplitter::ReasoningSplitter(ReasoningMarkers markers, bool begins_open)
    : markers_(std::move(markers)), state_(begins_open ? State::opened : State::start) {
  if (markers_.open.empty() || markers_.close.empty()) state_ = State::content;
}

ReasoningSplitter::Parts ReasoningSplitter::push(std::string_view text) {
  Parts parts;
  if (state_ == State::content) {
    parts.content = text;
    return parts;
  }
  held_ += text;
  while (step(parts)) {
  }
  return parts;
}

// Returns whether the state changed.
bool ReasoningSplitter::step(Parts& parts) {
  switch (state_) {
    case State::start:
      return step_start(parts);
    case State::opened:
      return step_opened();
    case State::reasoning:
      return step_reasoning(parts);
    case State::closed:
      return step_closed();
    case State::content:
      parts.content += std::exchange(held_, {});
      return false;
  }
  return false;
}

bool ReasoningSplitter::step_start(Parts&) {
  const std::string_view rest = std::string_view(held_).substr(leading_space(held_));
  if (may_become(rest, markers_.open) || may_become(rest, markers_.lead)) return false;
  if (!rest.starts_with(markers_.open)) {
    state_ = !markers_.lead.empty() && rest.starts_with(markers_.lead) ? State::closed : State::content;
    return true;
  }
  held_ = std::string(rest.substr(markers_.open.size()));  // a copy: `rest` is a part of it
  state_ = State::opened;
  return true;
}

bool ReasoningSplitter::step_opened() {
  const std::string_view rest = std::string_view(held_).substr(leading_space(held_));
  if (may_become(rest, markers_.open)) return false;
  const bool repeats_marker = rest.starts_with(markers_.open);
  held_ = std::string(rest.substr(repeats_marker ? markers_.open.size() : 0));
  if (!repeats_marker) state_ = State::reasoning;
  return true;
}

bool ReasoningSplitter::step_reasoning(Parts& parts) {
  const std::size_t end = held_.find(markers_.close);
  if (end != std::string::npos) {
    const std::string_view reasoning = std::string_view(held_).substr(0, end);
    parts.reasoning += reasoning.substr(0, without_trailing_space(reasoning));
    held_.erase(0, end + markers_.close.size());
    state_ = State::closed;
    return true;
  }
  const std::size_t sure = held_.size() - partial_marker(held_, markers_.close);
  const std::size_t shown = without_trailing_space(std::string_view(held_).substr(0, sure));
  parts.reasoning += std::string_view(held_).substr(0, shown);
  held_.erase(0, shown);
  return false;
}

bool ReasoningSplitter::step_closed() {
  held_.erase(0, leading_space(held_));
  if (may_become(held_, markers_.lead) || held_.empty()) return false;
  if (!markers_.lead.empty() && held_.starts_with(markers_.lead)) {
    held_.erase(0, markers_.lead.size());
    markers_.lead.clear();
    return true;
  }
  state_ = State::content;
  return true;
}

ReasoningSplitter::Parts ReasoningSplitter::finish() {
  Parts parts;
  std::string rest = std::exchange(held_, {});
  switch (state_) {
    case State::start:
    case State::content:
      parts.content = std::move(rest);
      break;
    case State::opened:
    case State::reasoning:
      parts.reasoning = rest.substr(0, without_trailing_space(rest));
      break;
    case State::closed:
      parts.content = std::move(rest);
      break;
  }
  return parts;
}

// The content that the splitter gives is always the end of the text so far.
ContentFinder::Parts ContentFinder::push(std::string_view text) {
  if (is_content()) return {{}, std::string(text)};
  undecided_ += text;
  Parts parts{{}, splitter_.push(text).content};
  if (!is_content() && !splitter_.is_reasoning()) return parts;
  parts.before = std::exchange(undecided_, {});
  parts.before.erase(parts.before.size() - parts.content.size());
  return parts;
}

ContentFinder::Parts ContentFinder::finish() {
  Parts parts{std::exchange(undecided_, {}), splitter_.finish().content};
  parts.before.erase(parts.before.size() - std::min(parts.content.size(), parts.before.size()));
  return parts;
}

}  // namespace troupe::engine
