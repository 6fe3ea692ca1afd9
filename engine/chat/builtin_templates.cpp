#include "engine/chat/builtin_templates.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <variant>

namespace troupe::engine::chat {
namespace {

// "### Instruction:" and "### Response:", after a sentence that introduces them.
constexpr std::string_view kAlpaca =
    R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content | trim + '\n\n' }}
{%- elif message.role == 'assistant' -%}{{ '### Response:\n' + message.content | trim + eos_token + '\n\n' }}
{%- else -%}{{ '### Instruction:\n' + message.content | trim + '\n\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '### Response:\n' }}{%- endif -%})";

constexpr std::string_view kChatml =
    R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})";

constexpr std::string_view kDeepseek =
    R"({%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '<｜User｜>' + message.content }}
{%- elif message.role == 'assistant' -%}{{ '<｜Assistant｜>' + message.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
{%- else -%}{{ message.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<｜Assistant｜>' }}{%- endif -%})";

// No role for the system: its text comes before the first of the user.
constexpr std::string_view kGemma =
    R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- set ns.system = ns.system + message.content | trim + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' }}
{%- if message.role != 'assistant' -%}{{ ns.system }}{%- set ns.system = '' -%}{%- endif -%}
{{ message.content | trim + '<end_of_turn>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})";

constexpr std::string_view kLlama2 =
    R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- set ns.system = '<<SYS>>\n' + message.content | trim + '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'assistant' -%}{{ ' ' + message.content | trim + ' ' + eos_token }}
{%- else -%}{{ '[INST] ' + ns.system + message.content | trim + ' [/INST]' }}{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kLlama3 =
    R"({%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%})";

constexpr std::string_view kMistral =
    R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- set ns.system = message.content | trim + '\n\n' -%}
{%- elif message.role == 'assistant' -%}{{ message.content | trim + eos_token }}
{%- else -%}{{ '[INST]' + ns.system + message.content | trim + '[/INST]' }}{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kPhi3 =
    R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})";

// RWKV World has no control tokens of turns: an empty line ends one.
constexpr std::string_view kRwkv =
    R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ 'System: ' + message.content | trim + '\n\n' }}
{%- elif message.role == 'assistant' -%}{{ 'Assistant: ' + message.content.split('</think>')[-1] | trim + '\n\n' }}
{%- else -%}{{ 'User: ' + message.content | trim + '\n\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'Assistant:' }}
{%- if enable_thinking is defined -%}{{ ' <think>' if enable_thinking else ' <think>\n</think>' }}{%- endif -%}
{%- endif -%})";

constexpr std::string_view kVicuna =
    R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content | trim + '\n\n' }}
{%- elif message.role == 'assistant' -%}{{ 'ASSISTANT: ' + message.content | trim + eos_token + '\n' }}
{%- else -%}{{ 'USER: ' + message.content | trim + '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%})";

constexpr std::string_view kZephyr =
    R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})";

constexpr std::array<BuiltinTemplate, 11> kTemplates = {{
    {"alpaca", kAlpaca},
    {"chatml", kChatml},
    {"deepseek", kDeepseek},
    {"gemma", kGemma},
    {"llama2", kLlama2},
    {"llama3", kLlama3},
    {"mistral", kMistral},
    {"phi3", kPhi3},
    {"rwkv", kRwkv},
    {"vicuna", kVicuna},
    {"zephyr", kZephyr},
}};

constexpr std::array<TemplateFamily, 16> kFamilies = {{
    {"gemma2", "gemma"},
    {"gemma3", "gemma"},
    {"llama3.1", "llama3"},
    {"llama3.2", "llama3"},
    {"llama3.3", "llama3"},
    {"mixtral", "mistral"},
    {"phi3.5", "phi3"},
    {"qwen", "chatml"},
    {"qwen2", "chatml"},
    {"qwen2.5", "chatml"},
    {"qwen2moe", "chatml"},
    {"qwen3", "chatml"},
    {"qwen3moe", "chatml"},
    {"rwkv6", "rwkv"},
    {"rwkv7", "rwkv"},
    {"smollm2", "chatml"},
}};

// Control tokens that only models of one template have.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kMarks = {{
    {"<start_of_turn>", "gemma"},
    {"<|start_header_id|>", "llama3"},
    {"<|im_start|>", "chatml"},
    {"[INST]", "mistral"},
    {"<\uff5cUser\uff5c>", "deepseek"},
}};

bool is_control_token(const Tokenizer& vocabulary, std::string_view text) {
  const auto ids = vocabulary.encode(text, {.add_special = false, .parse_special = true});
  return std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return vocabulary.raw_piece(id) == text; });
}

std::string_view name_of_family(std::string_view family) {
  const auto* const found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& each) { return each.family == family; });
  return found == kFamilies.end() ? std::string_view() : found->name;
}

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() { return kTemplates; }
std::span<const TemplateFamily> template_families() { return kFamilies; }

std::string_view likely_template(std::string_view architecture, const Tokenizer* vocabulary) {
  if (vocabulary)
    for (const auto& [mark, name] : kMarks)
      if (is_control_token(*vocabulary, mark)) return name;
  return name_of_family(architecture);
}

std::string_view likely_template(const ModelFile& file, const Tokenizer* vocabulary) {
  const auto* const value = file.find("general.architecture");
  const auto* const architecture = value ? std::get_if<std::string>(value) : nullptr;
  return likely_template(architecture ? *architecture : std::string_view(), vocabulary);
}

std::optional<std::string_view> find_builtin_template(std::string_view name) {
  if (const std::string_view of_family = name_of_family(name); !of_family.empty()) name = of_family;
  const auto* const found =
      std::find_if(kTemplates.begin(), kTemplates.end(), [&](const auto& each) { return each.name == name; });
  if (found == kTemplates.end()) return std::nullopt;
  return found->source;
}

}  // namespace troupe::engine::chat
