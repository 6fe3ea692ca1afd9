// Which prompt blocks are being computed right now, and by whom: what makes a prefix be computed once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "cache/scope.h"

namespace troupe::cache {

// Block i of a sequence is named by a hash over its tokens up to the end of block i and the scope it will be
// published under. A name is claimed by one sequence at a time; whoever needs the same block may wait for it.
// Not thread-safe.
class FlightIndex {
 public:
  // Tokens as named hashes: prefix[i] covers blocks 0..i. O(tokens).
  static void hash_prefixes(std::span<const TokenId> tokens, std::uint32_t num_blocks,
                            std::vector<std::uint64_t>& prefixes);

  // `sequence` will compute block `index`. Does nothing if somebody else has claimed it.
  void claim(std::uint64_t prefix, ScopeId scope, SequenceId sequence);
  // Takes a claim back; does nothing if it is not this sequence's.
  void unclaim(std::uint64_t prefix, ScopeId scope, SequenceId sequence);
  // Who computes this block under one of these scopes. The caller confirms the tokens.
  [[nodiscard]] std::optional<SequenceId> find(std::uint64_t prefix, const ScopeList& scopes) const;

  void clear() { claims_.clear(); }
  [[nodiscard]] std::size_t size() const { return claims_.size(); }

 private:
  std::unordered_map<std::uint64_t, SequenceId> claims_;
};

}  // namespace troupe::cache
