// Source to syntax tree, as Jinja parses it.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "engine/chat/syntax/ast.h"
#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {

struct ParsedTemplate {
  Body body;
  std::set<std::string, std::less<>> names;  // every name that an expression mentions
};

// Throws TemplateError, with the line. Recursion is bounded by limits.max_nesting. O(source).
ParsedTemplate parse_template(std::string_view source, const Limits& limits);

}  // namespace troupe::engine::chat
