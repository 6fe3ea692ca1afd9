// Prefix hashes: a hash over all tokens up to the end of a block, and the anchors that carry such hashes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "cache/scope.h"

namespace troupe::cache {

// One block's worth of tokens.
using BlockTokens = std::span<const TokenId, kBlockSize>;

// The hash of a prefix and one more block of tokens; kEmptyPrefix is the hash of the empty prefix. Different tokens
// almost always hash differently. Hits are confirmed by comparing the tokens.
inline constexpr std::uint64_t kEmptyPrefix = 0;
[[nodiscard]] std::uint64_t extend_prefix(std::uint64_t prefix, BlockTokens tokens);

// prefixes[i] becomes the prefix hash of blocks 0..i of `tokens`, for num_blocks blocks. O(tokens).
void hash_prefixes(std::span<const TokenId> tokens, std::size_t num_blocks, std::vector<std::uint64_t>& prefixes);
// The hash of a prefix in a scope.
[[nodiscard]] std::uint64_t scoped_hash(std::uint64_t prefix, ScopeId scope);

// The prefix hash of a sequence's first `position` tokens. Anchors are stored in exported state
// (engine/model/sequence_file.h), so the hash values are part of that file's format;
// LeaseBook::find_recyclable_range returns which of these positions are still cached.
struct Anchor {
  std::uint32_t position = 0;  // a positive multiple of kBlockSize
  std::uint64_t hash = 0;
  friend bool operator==(const Anchor&, const Anchor&) = default;
};

// The anchors of a sequence, one at the end of each full block of `tokens`, ascending. O(tokens).
[[nodiscard]] std::vector<Anchor> anchors_of(std::span<const TokenId> tokens);

// The K and V of positions [begin, end) are cached.
struct CachedRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const CachedRange&, const CachedRange&) = default;
};

}  // namespace troupe::cache
