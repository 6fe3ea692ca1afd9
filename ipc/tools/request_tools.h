// The tools of a request, and the calls and results of earlier turns: how both protocols give them to the gateway, in
// the form of Chat Completions, which chat templates read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/requests/request.h"
#include "config/result.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {

// What a request chooses of its tools.
struct ToolChoice {
  bool none = false;                  // kept by not telling the model of the tools
  actors::ToolUse use{};              // without a set and a form
  std::vector<std::string> strict{};  // names of tools whose schemas must be enforced
};

// Gives a request for an answer to a conversation its tools. list: a JSON list; "" and "[]": none. places: what a
// refusal calls each entry; empty: tools[0] and so on. A refusal's field is tools or tool_choice. O(list).
[[nodiscard]] std::optional<scheduler::Refusal> take_tools(actors::Request& request, std::string list,
                                                           ToolChoice choice, std::span<const std::string> places = {});

// A tool in words of its own.
struct OfferedTool {
  std::string_view name, description;
  std::string_view parameters;  // a JSON schema; empty: none
};
// The list for take_tools(). Error: invalid_argument, where parameters are no JSON object; it names the tool.
[[nodiscard]] Result<std::string> tool_list(std::span<const OfferedTool> tools);

// A call in a message that is sent back.
struct EarlierCall {
  std::string id{}, name{}, arguments{};  // a JSON object
};
// The names of tools by the ids of the calls so far: results of tools say ids alone, and some templates want names.
using CalledNames = std::unordered_map<std::string, std::string>;
// ChatMessage::members of an answer with these calls; empty without any.
[[nodiscard]] std::string called_tools(const std::vector<EarlierCall>& calls);
// The message of a tool. is_error: its text gets "Error: " before it, as chat templates know no errors of tools.
[[nodiscard]] actors::ChatMessage tool_result(const CalledNames& names, const std::string& id, std::string content,
                                              bool is_error = false);
// The JSON object of a call's arguments, which are text. What is none, as of an answer that was cut, becomes the member
// `incomplete` of one, so that an agent can go on: {"incomplete": TEXT}.
[[nodiscard]] std::string arguments_object(std::string_view text);

}  // namespace troupe::ipc
