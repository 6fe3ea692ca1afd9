#include "cache/flight_index.h"

#include <xxhash.h>

#include "cache/prefix_hash.h"

namespace troupe::cache {
namespace {

std::uint64_t key_of(std::uint64_t prefix, ScopeId scope) { return XXH3_64bits_withSeed(&scope, sizeof scope, prefix); }

}  // namespace

void FlightIndex::hash_prefixes(std::span<const TokenId> tokens, std::uint32_t num_blocks,
                                std::vector<std::uint64_t>& prefixes) {
  prefixes.clear();
  std::uint64_t hash = kEmptyPrefix;
  for (std::size_t i = 0; i < num_blocks; ++i) {
    hash = extend_prefix(hash, BlockTokens(tokens.data() + i * kBlockSize, kBlockSize));
    prefixes.push_back(hash);
  }
}

void FlightIndex::claim(std::uint64_t prefix, ScopeId scope, SequenceId sequence) {
  claims_.try_emplace(key_of(prefix, scope), sequence);
}

void FlightIndex::unclaim(std::uint64_t prefix, ScopeId scope, SequenceId sequence) {
  const auto claim = claims_.find(key_of(prefix, scope));
  if (claim != claims_.end() && claim->second == sequence) claims_.erase(claim);
}

std::optional<SequenceId> FlightIndex::find(std::uint64_t prefix, const ScopeList& scopes) const {
  for (ScopeId scope : scopes) {
    const auto claim = claims_.find(key_of(prefix, scope));
    if (claim != claims_.end()) return claim->second;
  }
  return std::nullopt;
}

}  // namespace troupe::cache
