#include "actors/status/memory_ledger.h"

#include <algorithm>

namespace troupe::actors {
namespace {

std::uint64_t without(std::uint64_t whole, std::uint64_t part) { return whole - std::min(whole, part); }

}  // namespace

MemoryLedger::MemoryLedger(const engine::ProcessMemory& now)
    : runtime_bytes_(without(now.resident, now.file_backed + now.heap_used + now.heap_free)) {}

std::vector<MemoryUse> MemoryLedger::entries(const KnownMemory& known, const engine::ProcessMemory& now) {
  const std::uint64_t heap = without(now.heap_used, known.weights_on_heap + known.vocabulary + known.streams);
  std::vector<MemoryUse> all{{"weights", known.weights},
                             {"kv_cache", known.kv_cache},
                             {"snapshots", known.snapshots},
                             {"step_buffers", known.step_buffers},
                             {"vocabulary", known.vocabulary},
                             {"streams", known.streams},
                             {"heap", heap},
                             {"runtime", runtime_bytes_},
                             {"code", now.file_backed}};
  std::uint64_t sum = 0;
  for (const MemoryUse& use : all) sum += use.bytes;
  // Most free pages of an allocator arena were never touched: they count only up to the resident memory that no other
  // kind accounts for.
  all.insert(all.end() - 2, {"heap_free", std::min(now.heap_free, without(now.resident, sum))});

  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].peak_bytes = std::max(all[i].bytes, last_.empty() ? 0 : last_[i].peak_bytes);
  }
  last_ = all;
  return all;
}

}  // namespace troupe::actors
