// Chat templates by name, for models whose files have none.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::chat {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};

// Ascending by name. None writes the BOS token: the tokenizer adds it where the vocabulary asks for it.
[[nodiscard]] std::span<const BuiltinTemplate> builtin_templates();
// The source; nothing if there is none of that name. Families of models are names, too: "gemma3", "qwen3", "llama3.1".
[[nodiscard]] std::optional<std::string_view> find_builtin_template(std::string_view name);
// The families among the names: (family, template), ascending.
struct TemplateFamily {
  std::string_view family;
  std::string_view name;
};
[[nodiscard]] std::span<const TemplateFamily> template_families();

// The template that models with these control tokens, or else of this architecture, were trained with, by its name.
// Empty: neither tells. vocabulary: may be null.
[[nodiscard]] std::string_view likely_template(std::string_view architecture, const Tokenizer* vocabulary);
[[nodiscard]] std::string_view likely_template(const ModelFile& file, const Tokenizer* vocabulary);

}  // namespace troupe::engine::chat
