// Finds the texts of special tokens in a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "engine/compute/interrupt.h"

namespace troupe::engine {

// A trie of token texts. Built once, then immutable.
class SpecialTokens {
 public:
  // on_request: matched only by find() with `all` (control and unknown tokens). `text` must not be empty; the first id
  // of a text wins.
  void add(std::string_view text, TokenId id, bool on_request);

  struct Match {
    TokenId id;
    std::size_t begin;  // in the text
    std::size_t length;
  };
  // The leftmost match at or after `from`, the longest one there.
  // O(text.size() * longest special text) at worst, in practice one table look-up per byte.
  std::optional<Match> find(std::string_view text, std::size_t from, bool all, Interrupt& interrupt) const;

 private:
  struct Node {
    TokenId id = -1;  // of the text that ends here
    bool on_request = false;
  };
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<std::uint8_t>(byte);
  }

  std::vector<Node> nodes_{Node{}};                         // [0] is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // edge(node, byte) -> node
  std::vector<bool> begins_ = std::vector<bool>(256);       // first bytes
};

}  // namespace troupe::engine
