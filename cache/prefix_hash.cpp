#include "cache/prefix_hash.h"

#include <xxhash.h>

namespace troupe::cache {

std::uint64_t extend_prefix(std::uint64_t prefix, BlockTokens tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), prefix);
}

std::vector<Anchor> anchors_of(std::span<const TokenId> tokens) {
  std::vector<Anchor> anchors;
  anchors.reserve(tokens.size() / kBlockSize);
  std::uint64_t hash = kEmptyPrefix;
  for (std::size_t begin = 0; begin + kBlockSize <= tokens.size(); begin += kBlockSize) {
    hash = extend_prefix(hash, BlockTokens(tokens.data() + begin, kBlockSize));
    anchors.push_back({static_cast<std::uint32_t>(begin + kBlockSize), hash});
  }
  return anchors;
}

}  // namespace troupe::cache
