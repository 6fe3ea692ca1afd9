#include "engine/chat/tools/tool_format.h"

#include <algorithm>

namespace troupe::engine::chat {
namespace {

using enum CallSyntax;

constexpr std::string_view kNameMember = R"({"name": ")", kArgumentsMember = R"(", "arguments": )";

// Of two formats whose texts both stand in a template the first one counts.
constexpr auto kFormats = std::to_array<ToolFormat>({
    {.name = "deepseek-v3.2",
     .syntax = tagged,
     .section_open = "<｜DSML｜function_calls>",
     .section_close = "</｜DSML｜function_calls>",
     .call_close = "</｜DSML｜invoke>",
     .before_name = "<｜DSML｜invoke name=\"",
     .after_name = "\">",
     .tags = {.key_open = "<｜DSML｜parameter name=\"",
              .key_close = "\"",
              .value_open = ">",
              .value_close = "</｜DSML｜parameter>",
              .says_text = true},
     .template_texts = {"｜DSML｜", "function_calls>"},
     .models = "DeepSeek V3.2"},
    {.name = "deepseek-v4",
     .syntax = tagged,
     .section_open = "<｜DSML｜tool_calls>",
     .section_close = "</｜DSML｜tool_calls>",
     .call_close = "</｜DSML｜invoke>",
     .before_name = "<｜DSML｜invoke name=\"",
     .after_name = "\">",
     .tags = {.key_open = "<｜DSML｜parameter name=\"",
              .key_close = "\"",
              .value_open = ">",
              .value_close = "</｜DSML｜parameter>",
              .says_text = true},
     .template_texts = {"｜DSML｜"},
     .models = "DeepSeek V4"},
    {.name = "deepseek-v3",
     .syntax = named,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .before_name = "function<｜tool▁sep｜>",
     .after_name = "\n```json\n",
     .template_texts = {"<｜tool▁sep｜>", "```json"},
     .models = "DeepSeek V3, R1 and its distillations"},
    {.name = "deepseek-v3.1",
     .syntax = named,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .after_name = "<｜tool▁sep｜>",
     .template_texts = {"<｜tool▁sep｜>"},
     .models = "DeepSeek V3.1"},
    {.name = "kimi-k2",
     .syntax = named,
     .section_open = "<|tool_calls_section_begin|>",
     .section_close = "<|tool_calls_section_end|>",
     .call_open = "<|tool_call_begin|>",
     .call_close = "<|tool_call_end|>",
     .after_name = "<|tool_call_argument_begin|>",
     .name_prefix = "functions.",
     .template_texts = {"<|tool_call_argument_begin|>"},
     .models = "Kimi K2"},
    {.name = "solar",
     .syntax = named,
     .section_open = "<|tool_calls|>",
     .section_close = "<|calls|>",
     .call_open = "<|tool_call:begin|>",
     .call_close = "<|tool_call:end|>",
     .before_name = "<|tool_call:name|>",
     .after_name = "<|tool_call:args|>",
     .template_texts = {"<|tool_call:args|>"},
     .models = "Solar Open"},
    {.name = "minimax-m2",
     .syntax = tagged,
     .section_open = "<minimax:tool_call>",
     .section_close = "</minimax:tool_call>",
     .call_close = "</invoke>",
     .before_name = "<invoke name=\"",
     .after_name = "\">",
     .tags = {.key_open = "<parameter name=\"", .key_close = "\"", .value_open = ">", .value_close = "</parameter>"},
     .template_texts = {"<minimax:tool_call>"},
     .models = "MiniMax M2"},
    {.name = "seed-oss",
     .syntax = tagged,
     .call_open = "<seed:tool_call>",
     .call_close = "</seed:tool_call>",
     .before_name = "<function=",
     .after_name = ">",
     .tags =
         {.key_open = "<parameter=", .key_close = ">", .value_close = "</parameter>", .arguments_close = "</function>"},
     .template_texts = {"<seed:tool_call>"},
     .models = "Seed-OSS"},
    {.name = "hunyuan-3",
     .syntax = tagged,
     .section_open = "<tool_calls:opensource>",
     .section_close = "</tool_calls:opensource>",
     .call_open = "<tool_call:opensource>",
     .call_close = "</tool_call:opensource>",
     .after_name = "<tool_sep:opensource>",
     .tags = {.key_open = "<arg_key:opensource>",
              .key_close = "</arg_key:opensource>",
              .value_open = "<arg_value:opensource>",
              .value_close = "</arg_value:opensource>"},
     .template_texts = {"tool_sep:opensource"},
     .models = "Hunyuan 3"},
    {.name = "glm-4",
     .syntax = tagged,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .tags = {.key_open = "<arg_key>",
              .key_close = "</arg_key>",
              .value_open = "<arg_value>",
              .value_close = "</arg_value>"},
     .template_texts = {"<arg_key>"},
     .models = "GLM 4.5 to 4.7, Laguna"},
    {.name = "qwen3-coder",
     .syntax = tagged,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .before_name = "<function=",
     .after_name = ">",
     .tags = {.key_open = "<parameter=",
              .key_close = ">",
              .value_close = "</parameter>",
              .arguments_close = "</function>",
              .has_line_breaks = true},
     .template_texts = {"<function=", "<parameter="},
     .models = "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5"},
    {.name = "functionary-v3.1",
     .syntax = named,
     .call_close = "</function>",
     .before_name = "<function=",
     .after_name = ">",
     .template_texts = {"<function="},
     .models = "Functionary 3.1"},
    {.name = "minicpm5",
     .syntax = tagged,
     .call_close = "</function>",
     .before_name = "<function name=\"",
     .after_name = "\">",
     .tags = {.key_open = "<param name=\"",
              .key_close = "\"",
              .value_open = ">",
              .value_close = "</param>",
              .may_be_cdata = true},
     .template_texts = {"<function name=", "<param name="},
     .models = "MiniCPM5"},
    {.name = "command-r7b",
     .section_open = "<|START_ACTION|>",
     .section_close = "<|END_ACTION|>",
     .before_name = R"({"tool_call_id": "0", "tool_name": ")",
     .after_name = R"(", "parameters": )",
     .is_list = true,
     .template_texts = {"<|START_ACTION|>"},
     .models = "Command R7B, Command A"},
    {.name = "gemma-4",
     .syntax = literals,
     .call_open = "<|tool_call>",
     .call_close = "<tool_call|>",
     .before_name = "call:",
     .after_name = "{",
     .template_texts = {"<|tool_call>"},
     .models = "Gemma 4"},
    {.name = "lfm2",
     .syntax = literals,
     .section_open = "<|tool_call_start|>",
     .section_close = "<|tool_call_end|>",
     .after_name = "(",
     .is_list = true,
     .template_texts = {"<|tool_call_start|>"},
     .models = "LFM2"},
    {.name = "mistral",
     .syntax = named,
     .call_open = "[TOOL_CALLS]",
     .after_name = "[ARGS]",
     .template_texts = {"[TOOL_CALLS]", "[ARGS]"},
     .models = "Mistral since 2025: Small 3.2, Magistral, Devstral, Ministral 3"},
    {.name = "mistral-list",
     .section_open = "[TOOL_CALLS]",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .is_list = true,
     .template_texts = {"[TOOL_CALLS]"},
     .models = "Mistral until 2024: 7B v0.3, Nemo, Large"},
    {.name = "gpt-oss",
     .syntax = recipients,
     .call_open = "<|channel|>commentary",
     .before_name = " to=functions.",
     .after_name = " <|constrain|>json<|message|>",
     .name_prefix = "functions.",
     .template_texts = {"<|channel|>", "<|call|>"},
     .models = "gpt-oss"},
    {.name = "functionary-v3.2",
     .syntax = named,
     .call_open = ">>>",
     .after_name = "\n",
     .may_be_bare = true,
     .user_name = "all",
     .template_texts = {">>>${recipient}"},
     .models = "Functionary 3.2"},
    {.name = "apertus",
     .syntax = keyed,
     .section_open = "<|tools_prefix|>",
     .section_close = "<|tools_suffix|>",
     .before_name = "{\"",
     .after_name = "\": ",
     .is_list = true,
     .template_texts = {"<|tools_prefix|>"},
     .models = "Apertus"},
    {.name = "nemotron",
     .section_open = "<TOOLCALL>",
     .section_close = "</TOOLCALL>",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .is_list = true,
     .template_texts = {"<TOOLCALL>"},
     .models = "Nemotron Nano 2"},
    {.name = "apriel",
     .section_open = "<tool_calls>",
     .section_close = "</tool_calls>",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .is_list = true,
     .template_texts = {"<tool_calls>["},
     .models = "Apriel 1.5 and 1.6, Jamba"},
    {.name = "gigachat",
     .call_open = "<|function_call|>",
     .call_close = "<|message_sep|>",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .template_texts = {"<|function_call|>"},
     .models = "GigaChat 3.1"},
    {.name = "granite-3",
     .section_open = "<|tool_call|>",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .is_list = true,
     .template_texts = {"<|tool_call|>"},
     .models = "Granite 3"},
    {.name = "functools",
     .section_open = "functools",
     .before_name = kNameMember,
     .after_name = kArgumentsMember,
     .is_list = true,
     .template_texts = {"functools["},
     .models = "Phi-4-mini, Firefunction 2"},
    {.name = "hermes",
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .before_name = R"(
{"name": ")",
     .after_name = kArgumentsMember,
     .template_texts = {"<tool_call>"},
     .models = "Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3, MiMo"},
    {.name = "llama-3",
     .call_open = "<|python_tag|>",
     .before_name = kNameMember,
     .after_name = R"(", "parameters": )",
     .may_be_bare = true,
     .template_texts = {"\"parameters\": dictionary of argument name"},
     .models = "Llama 3.1 to 3.3"},
    {.name = "pythonic",
     .syntax = literals,
     .after_name = "(",
     .is_list = true,
     .may_be_bare = true,
     .template_texts = {"[func_name1(params_name1="},
     .models = "Llama 3.2 and 4 with a Pythonic template"},
    {.name = "generic",
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .before_name = R"(
{"name": ")",
     .after_name = kArgumentsMember,
     .models = "models whose template knows no tools"},
});

// Vocabularies of models whose template may be missing: a token that only they have.
struct KnownToken {
  std::string_view token;
  std::string_view format;
};
constexpr auto kTokens = std::to_array<KnownToken>({
    {"<｜tool▁sep｜>", "deepseek-v3"},
    {"<|tool_call_argument_begin|>", "kimi-k2"},
    {"<minimax:tool_call>", "minimax-m2"},
    {"<seed:tool_call>", "seed-oss"},
    {"<arg_key>", "glm-4"},
    {"<|START_ACTION|>", "command-r7b"},
    {"<|tool_call>", "gemma-4"},
    {"<|tool_call_start|>", "lfm2"},
    {"[ARGS]", "mistral"},
    {"[TOOL_CALLS]", "mistral-list"},
    {"<|call|>", "gpt-oss"},
    {"<|tools_prefix|>", "apertus"},
    {"<TOOLCALL>", "nemotron"},
    {"<|python_tag|>", "llama-3"},
    {"<|tool_call|>", "granite-3"},
    {"<tool_call>", "hermes"},
});

// Messages of harmony end and begin anywhere in an answer.
constexpr auto kHarmonyMarks =
    std::to_array<std::string_view>({"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"});

std::vector<TokenId> encoded(const Tokenizer& vocabulary, std::string_view text) {
  return vocabulary.encode(text, {.add_special = false, .parse_special = true});
}

bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

bool has_token(const Tokenizer& vocabulary, std::string_view text) {
  const std::vector<TokenId> ids = encoded(vocabulary, text);
  return ids.size() == 1 && vocabulary.raw_piece(ids.front()) == text;
}

}  // namespace

std::span<const ToolFormat> tool_formats() { return kFormats; }

const ToolFormat& generic_tool_format() { return kFormats.back(); }

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &ToolFormat::name);
  return found == kFormats.end() ? nullptr : &*found;
}

const ToolFormat& choose_tool_format(std::string_view template_source, const Tokenizer* vocabulary) {
  for (const ToolFormat& each : kFormats)
    if (!each.template_texts.front().empty() && std::ranges::all_of(each.template_texts, [&](std::string_view text) {
          return template_source.find(text) != std::string_view::npos;
        }))
      return each;
  // A template that does not mention tools would leave them out, whatever the vocabulary has.
  if (!template_source.empty() && template_source.find("tools") == std::string_view::npos) return generic_tool_format();
  if (vocabulary != nullptr)
    for (const KnownToken& each : kTokens)
      if (has_token(*vocabulary, each.token)) return *find_tool_format(each.format);
  return generic_tool_format();
}

std::string_view tool_template(std::span<const std::pair<std::string, std::string>> templates) {
  for (const std::string_view wanted : {"tool_use", "", "default"})
    for (const auto& [name, source] : templates)
      if (name == wanted) return source;
  return {};
}

bool opens_with_word(const ToolFormat& format) {
  return format.is_list && !format.section_open.empty() && is_letter(format.section_open.back());
}

std::vector<std::string_view> openings_of(const ToolFormat& format) {
  if (format.syntax == recipients) return {kHarmonyMarks.begin(), kHarmonyMarks.end()};
  std::vector<std::string_view> openings;
  if (!format.section_open.empty())
    openings.push_back(format.section_open);
  else if (!format.call_open.empty())
    openings.push_back(format.call_open);
  // Some models leave out the marks before <function=NAME>.
  const bool has_own_mark = format.syntax == tagged || openings.empty();
  if (has_own_mark && !format.before_name.empty()) openings.push_back(format.before_name);
  return openings;
}

std::string call_beginning(const ToolFormat& format, std::string_view name) {
  std::string text(format.section_open);
  if (format.is_list) text += '[';
  if (!format.may_be_bare) text += format.call_open;
  text += format.before_name;
  if (name.empty()) return text;
  text += name;
  text += format.after_name;
  return text;
}

std::string write_calls(const ToolFormat& given, std::span<const WrittenCall> calls) {
  const bool is_json = given.syntax == object || given.syntax == keyed;
  const ToolFormat& format = is_json ? given : generic_tool_format();
  if (calls.empty()) return {};
  std::string text(format.section_open);
  if (format.is_list) text += '[';
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) text += format.is_list ? ", " : "\n";
    text += format.call_open;
    text += format.before_name;
    text += calls[i].name;
    text += format.after_name;
    text += calls[i].arguments + "}";
    if (format.before_name.starts_with('\n')) text += '\n';
    text += format.call_close;
  }
  if (format.is_list) text += ']';
  text += format.section_close;
  return text;
}

std::vector<TokenId> marker_ids(const ToolFormat& format, const Tokenizer& vocabulary) {
  std::vector<std::string_view> texts = {format.section_open,     format.section_close,       format.call_open,
                                         format.call_close,       format.before_name,         format.after_name,
                                         format.tags.key_open,    format.tags.key_close,      format.tags.value_open,
                                         format.tags.value_close, format.tags.arguments_close};
  if (format.syntax == recipients) texts.insert(texts.end(), kHarmonyMarks.begin(), kHarmonyMarks.end());
  if (format.syntax == literals) texts.push_back("<|\"|>");
  std::vector<TokenId> ids;
  for (const std::string_view text : texts)
    for (const TokenId id : encoded(vocabulary, text))
      if (vocabulary.kind(id) == TokenKind::control) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace troupe::engine::chat
