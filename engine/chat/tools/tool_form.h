// In which form a chat template reads and writes tools and calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/chat/template.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/values/time_budget.h"

namespace troupe::engine::chat {

// By default all is given to the template as it is.
struct ToolForm {
  const ToolFormat* format = &generic_tool_format();  // in which the model writes calls
  bool reads_tools = true;                            // a prompt has the tools of its conversation
  const char* tools_variable = "tools";               // under which name
  bool reads_calls = true;                            // it has the calls of earlier answers
  bool reads_several_calls = true;                    // also two in one message
  // What becomes of an earlier answer's text beside its calls, where the template leaves it out.
  enum class TextBesideCalls : std::uint8_t { written, message_before, left_out };
  TextBesideCalls text_beside_calls = TextBesideCalls::written;
  bool arguments_are_text = false;  // of calls: as JSON text; else as an object
  bool wants_short_ids = false;     // it refuses calls whose ids have not kCallIdBytes
  // A sentence for the log: the calls that the template writes are none in `format`, or nothing was found out in time.
  // Empty: neither.
  std::string warning{};
};

// Renders short conversations with two marked calls, all within `time`. interrupt: as for ChatTemplate::render().
// given: the format to assume; null: choose_tool_format(). Where the time does not suffice, what was rendered until
// then decides nothing: the form follows from the names in the template's source alone.
[[nodiscard]] ToolForm find_tool_form(const ChatTemplate& chat_template, const Tokenizer* vocabulary,
                                      const ToolFormat* given, TimeBudget& time,
                                      const std::atomic<bool>* interrupt = nullptr);

// tools: a list. variable: ToolForm::tools_variable.
void give_tools(ChatInput& input, Json tools, std::string_view variable);

// The answer of which a template made the end of `whole`, where it made `prompt` of what was before it.
[[nodiscard]] std::string_view answer_in(std::string_view whole, std::string_view prompt);

}  // namespace troupe::engine::chat
