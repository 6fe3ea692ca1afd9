// The filter `tojson` as transformers has it: Python's json.dumps.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "engine/chat/values/text.h"
#include "engine/chat/values/value.h"

namespace troupe::engine::chat {

// The texts must outlive it.
struct JsonStyle {
  std::optional<std::string_view> indent;  // of one level; none: all on one line
  std::string_view item_separator = ", ";  // with indent, json.dumps has "," unless told otherwise
  std::string_view key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

// Throws TemplateError for values that JSON does not have. What is from input stays so.
Text to_json(const Value& value, const JsonStyle& style, Heap& heap);

}  // namespace troupe::engine::chat
