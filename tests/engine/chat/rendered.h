// Short forms for tests of templates.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

#include "engine/chat/template.h"

namespace troupe::engine::chat::test {

// What `source` renders to with these variables; an error as "error: " and its message.
inline std::string rendered(std::string_view source, Json::Object variables = {}) {
  const auto made = ChatTemplate::parse(source, "t");
  if (!made) return "error: " + made.error().message;
  ChatInput input;
  input.messages = Json::List();
  input.variables = std::move(variables);
  const auto prompt = (*made)->render(input);
  return prompt ? prompt->text() : "error: " + prompt.error().message;
}

inline Json json(std::string_view text) {
  const auto parsed = parse_json(text);
  if (!parsed) FAIL(parsed.error().message);
  return *parsed;
}

}  // namespace troupe::engine::chat::test
