// Finds the longest of many texts that a string begins with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/ids.h"

namespace troupe::engine {

// The texts sorted by their bytes: those with a common beginning are adjacent, so each further byte narrows a range.
// Same answers as a trie, from one array; immutable once built.
class LongestMatch {
 public:
  using Text = std::pair<std::string, TokenId>;
  LongestMatch() = default;  // of no texts
  // The lowest id of a text wins; empty texts are left out.
  explicit LongestMatch(std::vector<Text> texts);

  struct Match {
    TokenId id;
    std::size_t length;
  };
  // O(longest text * log(number of texts)).
  [[nodiscard]] std::optional<Match> find(std::string_view text) const;

 private:
  std::vector<Text> texts_;                 // ascending
  std::array<std::uint32_t, 257> first_{};  // [b]: the first text that begins with byte b or a later one
};

}  // namespace troupe::engine
