#include "ipc/http/api/custom_input.h"

#include <utility>

#include "engine/chat/tools/json_text.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {

using engine::chat::JsonCursor;
using Found = JsonCursor::Found;

void CustomInput::read_head() {
  JsonCursor at{.text = held_};
  Found found = at.mark("\"");
  if (found == Found::no)
    for (const std::string_view mark : {"{", "\"input\"", ":", "\""})
      if (found = at.mark(mark); found != Found::yes) break;
  if (found == Found::cut) return;
  state_ = found == Found::yes ? State::text : State::as_it_came;
  if (state_ == State::text) held_.erase(0, at.at);
}

std::string CustomInput::push(std::string_view arguments) {
  held_ += arguments;
  if (state_ == State::head) read_head();
  if (state_ == State::head) return {};
  if (state_ == State::as_it_came) return std::exchange(held_, {});
  if (state_ == State::rest) return held_.clear(), std::string();
  engine::chat::Unescaped read = engine::chat::unescape_json(held_);
  held_.erase(0, read.length);
  if (read.at_quote) {
    state_ = State::rest;
    held_.clear();
  }
  return std::move(read.text);
}

// An escape that was cut, or arguments of which not even the text began.
std::string CustomInput::finish() { return state_ == State::rest ? std::string() : std::exchange(held_, {}); }

std::string custom_arguments(std::string_view input) {
  std::string out;
  JsonWriter(out).begin_object().field("input", input).end_object();
  return out;
}

}  // namespace troupe::ipc::api
