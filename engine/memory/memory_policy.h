// Allocates large memory: an extension point (docs/extending.md, docs/examples/memory_policy.cpp).
//
//   engine::LoadOptions load;
//   load.memory_policy = std::make_shared<NamedMemory>();  // this model's weights, cache, states and step buffers
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe::engine {

// The purpose of an allocation. Vectors and tables beside the matrices, and all small objects, come from the heap.
enum class MemoryKind : std::uint8_t {
  weights,       // one piece for each matrix (Model::matrix_bytes), written while the model is loaded, then only read
  kv_cache,      // a piece for all blocks, one for those of layers with a window, and of recurrent models snapshots and
                 // each sequence's state; a block is first written by the thread that computes it
  step_buffers,  // of one executor, some dozen pieces: a larger one is taken when a step needs it
};
inline constexpr std::array<std::string_view, 3> kMemoryKindNames{"weights", "kv_cache", "step_buffers"};

// Allocates and releases memory, for one model or several. Both functions may be called by several threads at once,
// outside of warm steps; they must not throw. A model, its arena and its executors share ownership of the policy: it
// lives until all of its memory is released. The bits of a step do not depend on the memory's location.
class MemoryPolicy {
 public:
  virtual ~MemoryPolicy() = default;

  // Returns `bytes` (above 0) zero bytes, aligned to 4096, on pages of their own; matrices are read faster if they are
  // aligned to 2 MiB on huge pages. Null if there is no memory: then a model is not loaded (out_of_memory); without
  // step buffers an assertion stops the process.
  [[nodiscard]] virtual std::byte* allocate(MemoryKind kind, std::size_t bytes) noexcept = 0;

  // Releases memory that allocate() returned for the same kind and bytes.
  virtual void release(MemoryKind kind, std::byte* data, std::size_t bytes) noexcept = 0;
};

// The default policy: anonymous pages, in memory once they are written. Sizes from 2 MiB on are aligned to 2 MiB and
// use huge pages (madvise): a matrix of some MiB then needs a handful of TLB entries instead of thousands.
[[nodiscard]] const std::shared_ptr<MemoryPolicy>& system_memory() noexcept;

}  // namespace troupe::engine
