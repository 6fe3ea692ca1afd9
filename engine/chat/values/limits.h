// What a chat template may use up: it comes with a model or a client, and is not trusted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::engine::chat {

// Each bound has an error that names it. The defaults leave room for any published template with long conversations.
struct Limits {
  std::size_t max_source_bytes = std::size_t{512} << 10;  // of a template
  std::uint32_t max_nesting = 100;                        // statements and expressions inside one another
  std::uint32_t max_depth = 400;                        // of nested evaluation, with calls of macros: bounds the stack
  std::size_t max_output_bytes = std::size_t{4} << 20;  // of a rendered prompt: as much as a frame has by default
  std::size_t max_value_bytes = std::size_t{64} << 20;  // memory of a rendering: values, work in progress, output
  std::chrono::milliseconds max_time{1000};             // of one rendering (TimeBudget)
  std::uint64_t max_steps = UINT64_MAX;                 // for tests, which want the same end on every machine
};

// What the trial of a template when a model is loaded may take, all its renderings together: processor time, and time.
inline constexpr std::chrono::milliseconds kMaxTrialWork{100};
inline constexpr std::chrono::milliseconds kMaxTrialTime{1000};

inline constexpr std::int64_t kMaxRange = 100'000;       // items of range(), as in Jinja's sandbox
inline constexpr std::size_t kMaxJsonDepth = 64;         // lists and objects inside one another
inline constexpr std::size_t kMaxErrorText = 1024;       // bytes of a template's own message, and of names in others
inline constexpr std::size_t kMaxIdentifierBytes = 256;  // of a name in a template's source
inline constexpr std::size_t kMaxNumberDigits = 4300;    // of a text that becomes a number, as in Python
inline constexpr std::size_t kMaxTimeFormat = 1024;      // bytes of the format of strftime_now()

}  // namespace troupe::engine::chat
