// Where a call begins: its marks and its name. Within the folder only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/chat/tools/arguments_reader.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"

namespace troupe::engine::chat {

struct CallHead {
  enum class Kind : std::uint8_t {
    open,  // more text decides
    none,  // no call begins here
    skip,  // marks without a call, which are left out
    call,
  };
  Kind kind = Kind::none;
  std::size_t length = 0;  // of a call up to its arguments, or of what is left out
  std::string name{};
  // object: behind {"function": {; behind the arguments, which came first.
  bool is_nested = false, is_behind_arguments = false;
  std::unique_ptr<ArgumentsReader> arguments{};
};

// Where in an answer a text stands.
enum class CallPlace : std::uint8_t {
  at_mark,     // at one of openings_of()
  bare,        // at the answer's beginning, where the marks may be missing
  in_section,  // behind another call, before section_close
};

// What begins at the front of `text`. O(text), which may have kMaxHeldCallBytes; tools: outlives the result.
[[nodiscard]] CallHead read_head(const ToolFormat& format, const ToolSet& tools, CallPlace place,
                                 std::string_view text);

}  // namespace troupe::engine::chat
