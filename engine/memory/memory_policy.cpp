#include "engine/memory/memory_policy.h"

#include <sys/mman.h>

namespace troupe::engine {
namespace {

constexpr std::uintptr_t kHugePage = 2u << 20;

class SystemMemory final : public MemoryPolicy {
 public:
  std::byte* allocate(MemoryKind, std::size_t bytes) noexcept override {
    const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
    // NORESERVE: KV blocks may never be touched, so the budget must not count as committed memory.
    void* mapped =
        ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* base = static_cast<std::byte*>(mapped);
    if (slack == 0) return base;
    // Unmap the slack before the aligned start and after the end.
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(base) % kHugePage) % kHugePage;
    if (head != 0) ::munmap(base, head);
    const std::size_t used = (bytes + 4095) / 4096 * 4096;
    if (head + used < bytes + slack) ::munmap(base + head + used, bytes + slack - head - used);
    base += head;
    ::madvise(base, bytes, MADV_HUGEPAGE);
    return base;
  }
  void release(MemoryKind, std::byte* data, std::size_t bytes) noexcept override { ::munmap(data, bytes); }
};

}  // namespace

const std::shared_ptr<MemoryPolicy>& system_memory() noexcept {
  static const std::shared_ptr<MemoryPolicy> policy = std::make_shared<SystemMemory>();
  return policy;
}

}  // namespace troupe::engine
