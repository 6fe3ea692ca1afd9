// The tools of a request: functions that the model may call, with the JSON schemas of their arguments.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/result.h"
#include "engine/chat/values/json.h"

namespace troupe::engine::chat {

inline constexpr std::size_t kMaxTools = 1024;                          // of a request
inline constexpr std::size_t kMaxToolBytes = std::size_t{4} << 20;      // of their JSON
inline constexpr std::size_t kMaxToolNameBytes = 128;                   // as Anthropic takes; OpenAI takes 64
inline constexpr std::size_t kMaxCallsPerAnswer = 128;                  // what follows them is text
inline constexpr std::size_t kMaxHeldCallBytes = std::size_t{8} << 10;  // until a call's name is known

// Whether this can name a tool: 1 to kMaxToolNameBytes printable bytes without space, quotes, brackets, commas and
// other marks that formats of calls have around a name.
[[nodiscard]] bool is_tool_name(std::string_view name);

// What JSON a parameter takes, as far as its schema says. Models that write arguments in tags write a text without
// quotes, so this decides whether `5` is a text or a number.
struct ValueTypes {
  bool text = true, other = true;
  bool operator==(const ValueTypes&) const = default;
};

// Immutable; every call may come from any thread.
class ToolSet {
 public:
  ToolSet() = default;
  // tools: a list in the form of OpenAI's Chat Completions: {"type": "function", "function": {"name": ...,
  // "parameters": schema}}. places: what errors call each entry; empty: tools[0] and so on. Error: invalid_argument,
  // which names the entry and the limit. O(bytes).
  [[nodiscard]] static Result<ToolSet> make(const Json& tools, std::span<const std::string> places = {});

  bool empty() const { return tools_.empty(); }
  std::size_t size() const { return tools_.size(); }
  // Of memory, estimated. O(parameters)
  std::size_t bytes_used() const;
  bool has(std::string_view name) const { return tools_.find(std::string(name)) != tools_.end(); }
  // Of a top-level property of a tool's parameters; both of what is not known.
  ValueTypes types_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::unordered_map<std::string, std::unordered_map<std::string, ValueTypes>> tools_;
};

// Of values that this schema lets through: by type, const, enum, anyOf, oneOf, allOf and $ref within `root`.
[[nodiscard]] ValueTypes types_of_schema(const Json& schema, const Json& root);

}  // namespace troupe::engine::chat
