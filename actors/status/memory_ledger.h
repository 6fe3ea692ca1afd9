// This process's memory by kind, for `troupe status`. The sum is the resident memory that the kernel reports, within
// 5 % (tests/cli/serve_test.cpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "actors/status_snapshot.h"
#include "engine/memory/process_memory.h"

namespace troupe::actors {

// The kinds, in this order:
//   weights, kv_cache, snapshots, step_buffers, vocabulary, streams  as KnownMemory has them
//   heap       other allocated memory: actors, queues, connections, the prefix tree
//   heap_free  free memory of the allocator, at most the resident memory less all other kinds
//   runtime    stacks and relocated data, as measured before the model was loaded
//   code       of the program and its libraries: file-backed pages, as the kernel counts them now
// Thread-safe.
class MemoryLedger {
 public:
  // now: measured before the model is loaded.
  explicit MemoryLedger(const engine::ProcessMemory& now);

  [[nodiscard]] std::vector<MemoryUse> entries(const KnownMemory& known, const engine::ProcessMemory& now);

 private:
  std::uint64_t runtime_bytes_;
  std::mutex mutex_;
  std::vector<MemoryUse> last_;  // for the peaks
};

}  // namespace troupe::actors
