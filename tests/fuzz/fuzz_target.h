// Shared by the fuzz targets: the entry point, a reader of inputs, and the check of an error's message.
//
// Each *_target.cpp defines LLVMFuzzerTestOneInput and is linked twice: with libFuzzer (fuzz_NAME, in a build with
// TROUPE_FUZZ), and with replay.cpp (replay_NAME, always), which runs the corpus and all inputs that were ever found.
// A property that does not hold is a TROUPE_ASSERT: both programs then end, and name the input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "config/assert.h"
#include "config/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace troupe::fuzz {

// An input from its front to its end; past the end everything is 0 or empty.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  template <class T>
  T number() {
    T value{};
    const std::size_t length = std::min(sizeof value, rest_.size());
    std::memcpy(&value, rest_.data(), length);
    rest_.remove_prefix(length);
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  // Up to the separator, which is taken too.
  std::string_view until(char separator) {
    const std::string_view part = rest_.substr(0, rest_.find(separator));
    rest_.remove_prefix(std::min(part.size() + 1, rest_.size()));
    return part;
  }
  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// A message for users is one line that is not empty.
inline void check_message(std::string_view message) {
  TROUPE_ASSERT(!message.empty());
  TROUPE_ASSERT(message.find('\n') == std::string_view::npos);
}

}  // namespace troupe::fuzz
