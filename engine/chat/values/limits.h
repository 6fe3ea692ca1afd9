// What a chat template may use up: it comes with a model or a client, and is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::engine::chat {

// Each bound has an error that names it. The defaults leave room for any published template with long conversations.
struct Limits {
  std::size_t max_source_bytes = std::size_t{512} << 10;  // of a template
  std::uint32_t max_nesting = 100;                        // statements and expressions inside one another
  std::uint32_t max_depth = 400;                         // of nested evaluation, with calls of macros: bounds the stack
  std::uint64_t max_steps = 5'000'000;                   // nodes evaluated, and 64 bytes of text touched
  std::size_t max_output_bytes = std::size_t{32} << 20;  // of a rendered prompt
  std::size_t max_value_bytes = std::size_t{256} << 20;  // of all values at one time
};

inline constexpr std::int64_t kMaxRange = 100'000;  // items of range(), as in Jinja's sandbox
inline constexpr std::size_t kMaxJsonDepth = 64;    // lists and objects inside one another
inline constexpr std::size_t kMaxErrorText = 1024;  // bytes of a template's own message

}  // namespace troupe::engine::chat
