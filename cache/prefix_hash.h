// Names of prefixes: a hash over all tokens up to the end of a block, and the marks that carry such names.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"

namespace troupe::cache {

// One block's worth of tokens.
using BlockTokens = std::span<const TokenId, kBlockSize>;

// A number that almost always differs where tokens differ. Hits are confirmed by comparing the tokens.
[[nodiscard]] std::uint64_t hash_block(BlockTokens tokens);
[[nodiscard]] std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b);

// The name of a prefix and one more block of tokens; kEmptyPrefix names the prefix of no tokens.
inline constexpr std::uint64_t kEmptyPrefix = 0;
[[nodiscard]] inline std::uint64_t extend_prefix(std::uint64_t prefix, std::uint64_t block_hash) {
  return mix_hash(prefix, block_hash);
}

// A mark that a sequence carries: its first `position` tokens have the name `hash`. It travels with exported state
// (engine/model/sequence_file.h), and LeaseBook::find_recyclable_range tells what is still cached of it. Which numbers
// come out is part of that file's format.
struct Anchor {
  std::uint32_t position = 0;  // a positive multiple of kBlockSize
  std::uint64_t hash = 0;
  friend bool operator==(const Anchor&, const Anchor&) = default;
};

// The anchors of a sequence, one at the end of each full block of `tokens`, ascending. O(tokens).
[[nodiscard]] std::vector<Anchor> anchors_of(std::span<const TokenId> tokens);

// Positions [begin, end) of which K and V are cached.
struct CachedRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const CachedRange&, const CachedRange&) = default;
};

}  // namespace troupe::cache
