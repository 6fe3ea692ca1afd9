#include "engine/chat/builtin_templates.h"

#include <algorithm>
#include <array>

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

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() { return kTemplates; }

std::optional<std::string_view> find_builtin_template(std::string_view name) {
  const auto* const found =
      std::find_if(kTemplates.begin(), kTemplates.end(), [&](const auto& each) { return each.name == name; });
  if (found == kTemplates.end()) return std::nullopt;
  return found->source;
}

}  // namespace troupe::engine::chat
