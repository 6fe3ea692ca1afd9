// Chat templates by name, for models whose files have none.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace troupe::engine::chat {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};

// Ascending by name. None writes the BOS token: the tokenizer adds it where the vocabulary asks for it.
[[nodiscard]] std::span<const BuiltinTemplate> builtin_templates();
// The source; nothing if there is none of that name.
[[nodiscard]] std::optional<std::string_view> find_builtin_template(std::string_view name);

}  // namespace troupe::engine::chat
