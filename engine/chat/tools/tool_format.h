// How models write calls of tools: one row for each format that models were trained with.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::chat {

// How the name and the arguments of one call are written.
enum class CallSyntax : std::uint8_t {
  object,      // {"name": NAME, "arguments": {...}}: one JSON object, its members in any order
  keyed,       // {NAME: {...}}
  named,       // NAME, then the arguments as JSON
  tagged,      // NAME, then each argument between tags; a text has no quotes
  literals,    // NAME(key='value', ...) as Python writes it, or NAME{key:<|"|>value<|"|>}
  recipients,  // gpt-oss's harmony: messages with a header, of which those to a function are calls
};

// A format. A call is written: section_open (once), then for each call call_open, before_name, NAME, after_name, its
// arguments, call_close; then section_close. White space beside these texts belongs to none of them.
struct ToolFormat {
  std::string_view name;  // for --tool-format: "hermes"
  CallSyntax syntax = CallSyntax::object;
  std::string_view section_open{}, section_close{};
  std::string_view call_open{}, call_close{};
  std::string_view before_name{}, after_name{};
  bool is_list = false;  // calls are items of one list
  // The first call may begin the answer without section_open and call_open. It is one only if a tool has its name.
  bool may_be_bare = false;
  // What is left out at the front of a name ("functions.").
  std::string_view name_prefix{};
  // named: of texts addressed to the user ("all" in functionary's `>>>all`).
  std::string_view user_name{};

  // tagged: one argument is key_open KEY key_close value_open VALUE value_close; what stands between key_close and
  // value_open are attributes. arguments_close comes after the last one.
  struct Tags {
    std::string_view key_open{}, key_close{}, value_open{}, value_close{}, arguments_close{};
    bool has_line_breaks = false;  // a value stands on lines of its own
    bool may_be_cdata = false;     // a value may be <![CDATA[VALUE]]>
    bool says_text = false;        // the attribute string="true" or "false" says whether the value is a text
  } tags{};

  // A model has this format if its chat template contains all of these texts.
  std::array<std::string_view, 2> template_texts{};
  std::string_view models{};  // that have it, for people
};

// In the order in which templates are compared with them; the generic one is the last.
[[nodiscard]] std::span<const ToolFormat> tool_formats();
// Null: there is none of this name.
[[nodiscard]] const ToolFormat* find_tool_format(std::string_view name);
// By what the template contains, else by the vocabulary's tokens, else the generic one. template_source: empty if there
// is none. vocabulary: may be null.
[[nodiscard]] const ToolFormat& choose_tool_format(std::string_view template_source, const Tokenizer* vocabulary);
// Of a file's templates (name, source) that which conversations with tools get: tool_use, else the one without a name.
[[nodiscard]] std::string_view tool_template(std::span<const std::pair<std::string, std::string>> templates);
// What a model without training for tools is told of in its first message.
[[nodiscard]] const ToolFormat& generic_tool_format();

// Whether calls begin with a word (functools), which is one only with the list behind it.
[[nodiscard]] bool opens_with_word(const ToolFormat& format);
// The texts that may begin calls, within an answer.
[[nodiscard]] std::vector<std::string_view> openings_of(const ToolFormat& format);
// What an answer begins with that calls a tool: up to the name of the call, or with a name up to its arguments.
[[nodiscard]] std::string call_beginning(const ToolFormat& format, std::string_view name = {});
// Calls as a model writes them. Of a syntax that is not JSON: in the generic format.
struct WrittenCall {
  std::string name, arguments;  // JSON
};
[[nodiscard]] std::string write_calls(const ToolFormat& format, std::span<const WrittenCall> calls);
// The control tokens of which an answer's text has to have the text, ascending, so that its calls can be found.
[[nodiscard]] std::vector<TokenId> marker_ids(const ToolFormat& format, const Tokenizer& vocabulary);

}  // namespace troupe::engine::chat
