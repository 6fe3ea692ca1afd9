// Which sequence is computing which prompt block right now, so that a common prefix is computed once.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "cache/ids.h"
#include "cache/prefix_hash.h"
#include "cache/scope.h"

namespace troupe::cache {

// The key of a sequence's block i is its prefix hash up to the end of block i in the scope it will be published under.
// One sequence at a time claims a key; other sequences that need the same block may wait for it. Not thread-safe.
class FlightIndex {
 public:
  // `sequence` will compute the block with this prefix hash. Does nothing if it is claimed already.
  void claim(std::uint64_t prefix, ScopeId scope, SequenceId sequence) {
    claims_.try_emplace(scoped_hash(prefix, scope), sequence);
  }
  // Removes the claim; does nothing if another sequence has it.
  void unclaim(std::uint64_t prefix, ScopeId scope, SequenceId sequence) {
    const auto claim = claims_.find(scoped_hash(prefix, scope));
    if (claim != claims_.end() && claim->second == sequence) claims_.erase(claim);
  }
  // The sequence that computes this block under one of these scopes. The caller compares the tokens to confirm.
  [[nodiscard]] std::optional<SequenceId> find(std::uint64_t prefix, const ScopeList& scopes) const {
    for (ScopeId scope : scopes)
      if (const auto claim = claims_.find(scoped_hash(prefix, scope)); claim != claims_.end()) return claim->second;
    return std::nullopt;
  }

  void clear() { claims_.clear(); }
  [[nodiscard]] std::size_t size() const { return claims_.size(); }

 private:
  std::unordered_map<std::uint64_t, SequenceId> claims_;
};

}  // namespace troupe::cache
