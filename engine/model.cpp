#include "engine/model.h"

namespace troupe::engine {

std::uint64_t CacheSpec::bytes_per_token() const {
  std::uint64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.bytes_per_block / kBlockSize;
  return bytes;
}

}  // namespace troupe::engine
