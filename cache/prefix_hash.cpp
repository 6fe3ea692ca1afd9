#include "cache/prefix_hash.h"

#include <xxhash.h>

namespace troupe::cache {

std::uint64_t extend_prefix(std::uint64_t prefix, BlockTokens tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), prefix);
}

void hash_prefixes(std::span<const TokenId> tokens, std::size_t num_blocks, std::vector<std::uint64_t>& prefixes) {
  prefixes.resize(num_blocks);
  std::uint64_t hash = kEmptyPrefix;
  for (std::size_t i = 0; i < num_blocks; ++i)
    prefixes[i] = hash = extend_prefix(hash, BlockTokens(tokens.data() + i * kBlockSize, kBlockSize));
}

std::uint64_t scoped_hash(std::uint64_t prefix, ScopeId scope) {
  return XXH3_64bits_withSeed(&scope, sizeof scope, prefix);
}

std::vector<Anchor> anchors_of(std::span<const TokenId> tokens) {
  std::vector<std::uint64_t> hashes;
  hash_prefixes(tokens, tokens.size() / kBlockSize, hashes);
  std::vector<Anchor> anchors;
  anchors.reserve(hashes.size());
  for (const std::uint64_t hash : hashes)
    anchors.push_back({static_cast<std::uint32_t>((anchors.size() + 1) * kBlockSize), hash});
  return anchors;
}

}  // namespace troupe::cache
