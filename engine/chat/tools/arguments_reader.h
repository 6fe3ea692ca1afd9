// Reads the arguments of one call while they are being written, and gives them as JSON. Within the folder only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"

namespace troupe::engine::chat {

// Not thread-safe. What it does depends on the text alone, not on the pieces in which it comes.
class ArgumentsReader {
 public:
  virtual ~ArgumentsReader() = default;
  // Takes from the front of `held` what is decided, and appends the JSON of it to `out`. Returns whether the arguments
  // are over: what is left does not belong to them. at_end: no more text comes; then it returns true.
  [[nodiscard]] virtual bool read(std::string& held, bool at_end, std::string& out) = 0;
};

// CallSyntax::object and keyed. `held` begins behind the name, `depth` objects deep; at_value: with the arguments
// themselves. arguments: where they came before the name.
[[nodiscard]] std::unique_ptr<ArgumentsReader> read_object(std::size_t depth, bool at_value, std::string arguments);
// CallSyntax::named and recipients: JSON, or any text up to one of these marks.
[[nodiscard]] std::unique_ptr<ArgumentsReader> read_named(std::vector<std::string_view> ends);
// CallSyntax::tagged. tools: outlives the reader.
[[nodiscard]] std::unique_ptr<ArgumentsReader> read_tagged(const ToolFormat& format, const ToolSet& tools,
                                                           std::string name);
// CallSyntax::literals (literals.cpp). `held` begins behind the bracket that follows the name.
[[nodiscard]] std::unique_ptr<ArgumentsReader> read_literals();

// A value as Python writes it, as JSON; nothing: it is none.
[[nodiscard]] std::optional<std::string> json_of_literal(std::string_view text);

}  // namespace troupe::engine::chat
