#include "cache/prefix_hash.h"

namespace troupe::cache {

// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014) over a running combination.
std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t hash_block(BlockTokens tokens) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < kBlockSize; i += 2) {
    const auto low = static_cast<std::uint32_t>(tokens[i]);
    const auto high = static_cast<std::uint32_t>(tokens[i + 1]);
    hash = mix_hash(hash, (std::uint64_t{high} << 32) | low);
  }
  return hash;
}

std::vector<Anchor> anchors_of(std::span<const TokenId> tokens) {
  std::vector<Anchor> anchors;
  anchors.reserve(tokens.size() / kBlockSize);
  std::uint64_t hash = kEmptyPrefix;
  for (std::size_t begin = 0; begin + kBlockSize <= tokens.size(); begin += kBlockSize) {
    hash = extend_prefix(hash, hash_block(BlockTokens(tokens.data() + begin, kBlockSize)));
    anchors.push_back({static_cast<std::uint32_t>(begin + kBlockSize), hash});
  }
  return anchors;
}

}  // namespace troupe::cache
