#include "engine/model.h"

namespace troupe::engine {

const CacheGroup* CacheSpec::find(CacheGroup::Kind kind) const {
  for (const CacheGroup& group : groups)
    if (group.kind == kind) return &group;
  return nullptr;
}

std::uint64_t CacheSpec::bytes_per_token() const {
  std::uint64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.bytes_per_block / kBlockSize;
  return bytes;
}

}  // namespace troupe::engine
