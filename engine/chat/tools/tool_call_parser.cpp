#include "engine/chat/tools/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "engine/tokenizers/marker_search.h"

namespace troupe::engine::chat {

ToolCallParser::ToolCallParser(const ToolFormat& format, std::shared_ptr<const ToolSet> tools)
    : format_(format),
      tools_(tools ? std::move(tools) : std::make_shared<const ToolSet>()),
      openings_(openings_of(format)),
      may_be_bare_(format.may_be_bare || format.syntax == CallSyntax::recipients) {}

ToolCallParser ToolCallParser::copy() const {
  TROUPE_ASSERT(!is_within_call());
  ToolCallParser made(format_, tools_);
  made.state_ = state_;
  made.held_ = held_;
  made.num_calls_ = num_calls_;
  made.last_beginning_ = last_beginning_;
  made.may_be_bare_ = may_be_bare_;
  made.is_behind_mark_ = is_behind_mark_;
  made.is_in_section_ = is_in_section_;
  made.is_in_list_ = is_in_list_;
  return made;
}

std::vector<AnswerPart> ToolCallParser::push(std::string_view text) {
  held_ += text;
  return run(false);
}

std::vector<AnswerPart> ToolCallParser::finish() { return run(true); }

std::vector<AnswerPart> ToolCallParser::run(bool at_end) {
  while (step(at_end)) {
  }
  return std::exchange(parts_, {});
}

// Returns whether there is more to do with what is held.
bool ToolCallParser::step(bool at_end) {
  switch (state_) {
    case State::text:
      return step_text(at_end);
    case State::arguments:
      return step_arguments(at_end);
    case State::closing:
      return step_closing(at_end);
    case State::between:
      return step_between(at_end);
  }
  return false;
}

void ToolCallParser::add(Kind kind, std::string_view text) {
  const bool continues = kind == Kind::text || kind == Kind::arguments;
  if (continues && text.empty()) return;
  if (continues && !parts_.empty() && parts_.back().kind == kind)
    parts_.back().text += text;
  else
    parts_.push_back({kind, std::string(text)});
}

// The first bytes of what is held are text.
void ToolCallParser::add_text(std::size_t length) {
  const std::string_view text = std::string_view(held_).substr(0, length);
  const std::size_t from = is_behind_mark_ ? leading_space(text) : 0;
  if (from < text.size()) is_behind_mark_ = false;
  add(Kind::text, text.substr(from));
  held_.erase(0, length);
}

// A call whose first mark, or name, is at `from`. Of several texts before it the last one ends there.
ToolCallParser::Tried ToolCallParser::try_call(std::size_t from, CallPlace place, bool at_end) {
  CallHead head = read_head(format_, *tools_, place, std::string_view(held_).substr(from));
  if (head.kind == CallHead::Kind::open && !at_end) return Tried::waits;
  if (head.kind == CallHead::Kind::open || head.kind == CallHead::Kind::none) return Tried::none;
  if (place == CallPlace::in_section)
    held_.erase(0, from);  // a comma
  else
    add_text(without_trailing_space(std::string_view(held_).substr(0, from)));
  held_.erase(0, place == CallPlace::in_section ? head.length : leading_space(held_) + head.length);
  is_behind_mark_ = true;
  may_be_bare_ = false;
  if (head.kind == CallHead::Kind::skip) {
    state_ = State::text;
    return Tried::taken;
  }
  if (place != CallPlace::in_section) {
    is_in_section_ = !format_.section_open.empty();
    is_in_list_ = format_.is_list;
  }
  ++num_calls_;
  add(Kind::call, head.name);
  last_beginning_ = {.name = std::move(head.name), .is_nested = head.is_nested, .num_behind = held_.size()};
  arguments_ = std::move(head.arguments);
  state_ = State::arguments;
  return Tried::taken;
}

// A call at the answer's beginning, without its marks.
ToolCallParser::Tried ToolCallParser::try_bare(bool at_end) {
  const std::size_t from = leading_space(held_);
  const std::string_view rest = std::string_view(held_).substr(from);
  if (rest.empty()) return at_end ? Tried::none : Tried::waits;
  if (format_.syntax == CallSyntax::recipients) {
    constexpr std::string_view kRecipient = "to=";
    if (may_become(rest, kRecipient) && !at_end) return Tried::waits;
    if (!rest.starts_with(kRecipient)) return Tried::none;
  }
  return try_call(from, CallPlace::bare, at_end);
}

bool ToolCallParser::step_text(bool at_end) {
  if (num_calls_ == kMaxCallsPerAnswer) {
    add_text(held_.size());
    return false;
  }
  if (may_be_bare_) {
    const Tried tried = try_bare(at_end);
    if (tried != Tried::none) return tried == Tried::taken;
    may_be_bare_ = false;
  }
  std::size_t found = std::string::npos, length = 0, unsure = 0;
  for (const std::string_view opening : openings_) {
    if (const std::size_t at = held_.find(opening); at < found) {
      found = at;
      length = opening.size();
    }
    unsure = std::max(unsure, partial_marker(held_, opening));
  }
  if (found != std::string::npos) {
    const Tried tried = try_call(found, CallPlace::at_mark, at_end);
    if (tried == Tried::taken) return true;
    add_text(tried == Tried::none ? found + length : without_trailing_space(std::string_view(held_).substr(0, found)));
    return tried == Tried::none;
  }
  const std::string_view sure = std::string_view(held_).substr(0, held_.size() - unsure);
  add_text(at_end ? held_.size() : without_trailing_space(sure));
  return false;
}

bool ToolCallParser::step_arguments(bool at_end) {
  std::string json;
  const bool is_over = arguments_->read(held_, at_end, json);
  add(Kind::arguments, json);
  if (!is_over) return false;
  arguments_.reset();
  add(Kind::call_end, {});
  state_ = State::closing;
  return true;
}

bool ToolCallParser::step_closing(bool at_end) {
  constexpr std::string_view kFence = "```";  // around JSON, in some formats
  const std::string_view rest = std::string_view(held_).substr(leading_space(held_));
  const bool has_fence = format_.after_name.find(kFence) != std::string_view::npos;
  for (const std::string_view mark : {has_fence ? kFence : std::string_view(), format_.call_close}) {
    if (mark.empty()) continue;
    if (!at_end && may_become(rest, mark)) return false;
    if (!rest.starts_with(mark)) continue;
    held_.erase(0, leading_space(held_) + mark.size());
    if (mark == format_.call_close) state_ = State::between;
    return true;
  }
  state_ = State::between;
  return true;
}

bool ToolCallParser::step_between(bool at_end) {
  held_.erase(0, leading_space(held_));
  if (held_.empty() && !at_end) return false;
  if (is_in_list_ && held_.starts_with(']')) {
    held_.erase(0, 1);
    is_in_list_ = false;
    return true;
  }
  const bool may_close = is_in_section_ && !is_in_list_ && !format_.section_close.empty();
  if (may_close && !at_end && may_become(held_, format_.section_close)) return false;
  const bool closes = may_close && held_.starts_with(format_.section_close);
  const bool may_follow = format_.is_list ? is_in_list_ && held_.starts_with(',') : is_in_section_ && !closes;
  if (may_follow && num_calls_ < kMaxCallsPerAnswer) {
    const Tried tried = try_call(is_in_list_ ? 1 : 0, CallPlace::in_section, at_end);
    if (tried != Tried::none) return tried == Tried::taken;
  }
  if (closes) held_.erase(0, format_.section_close.size());
  const bool may_be_bare = format_.may_be_bare && format_.syntax == CallSyntax::object;
  if (may_be_bare && held_.starts_with(';')) held_.erase(0, 1);
  may_be_bare_ = may_be_bare;
  is_in_section_ = is_in_list_ = false;
  state_ = State::text;
  return true;
}

}  // namespace troupe::engine::chat
