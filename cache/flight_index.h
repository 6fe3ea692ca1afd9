// Which sequence is computing which prompt block right now, so that a common prefix is computed once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "cache/scope.h"

namespace troupe::cache {

// The key of a sequence's block i is a hash over its tokens up to the end of block i and the scope it will be published
// under. One sequence at a time claims a key; other sequences that need the same block may wait for it.
// Not thread-safe.
class FlightIndex {
 public:
  // The prefix hashes of `tokens`: prefixes[i] covers blocks 0..i. O(tokens).
  static void hash_prefixes(std::span<const TokenId> tokens, std::uint32_t num_blocks,
                            std::vector<std::uint64_t>& prefixes);

  // `sequence` will compute the block with this prefix hash. Does nothing if it is claimed already.
  void claim(std::uint64_t prefix, ScopeId scope, SequenceId sequence);
  // Removes the claim; does nothing if another sequence has it.
  void unclaim(std::uint64_t prefix, ScopeId scope, SequenceId sequence);
  // The sequence that computes this block under one of these scopes. The caller compares the tokens to confirm.
  [[nodiscard]] std::optional<SequenceId> find(std::uint64_t prefix, const ScopeList& scopes) const;

  void clear() { claims_.clear(); }
  [[nodiscard]] std::size_t size() const { return claims_.size(); }

 private:
  std::unordered_map<std::uint64_t, SequenceId> claims_;
};

}  // namespace troupe::cache
