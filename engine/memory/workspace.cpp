#include "engine/memory/workspace.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::engine {

std::byte* Workspace::bytes(Slot slot, std::size_t index, std::size_t count) {
  AlignedMemory& buffer = buffers_[index][static_cast<std::size_t>(slot)];
  if (buffer.size() < count) {
    // Grows by at least a quarter, so that a slowly growing batch does not allocate every time.
    const std::size_t size = (std::max(count, buffer.size() + buffer.size() / 4) + 4095) / 4096 * 4096;
    buffer = AlignedMemory();
    buffer = AlignedMemory::allocate(policy_, MemoryKind::step_buffers, size);
    TROUPE_ASSERT(buffer.data() != nullptr);
  }
  return buffer.data();
}

std::size_t Workspace::total_bytes() const {
  std::size_t total = 0;
  for (const auto& of_index : buffers_)
    for (const AlignedMemory& buffer : of_index) total += buffer.size();
  return total;
}

}  // namespace troupe::engine
