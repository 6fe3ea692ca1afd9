// Where large memory comes from: an extension point (docs/extending.md, docs/examples/memory_policy.cpp).
//
//   engine::LoadOptions load;
//   load.memory_policy = std::make_shared<OnOneNode>(0);  // this model's weights, KV cache and step buffers
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe::engine {

// What a piece of memory is for. Vectors and tables beside the matrices, and all that is small, come from the heap.
enum class MemoryKind : std::uint8_t {
  weights,       // one piece for each matrix (Model::matrix_bytes), written while the model is loaded, then only read
  kv_cache,      // one piece for all blocks of a model; a block is first written by the thread that computes it
  step_buffers,  // of one executor, some dozen pieces: a larger one is taken when a step needs it
};
inline constexpr std::array<std::string_view, 3> kMemoryKindNames{"weights", "kv_cache", "step_buffers"};

// Gives memory and takes it back, for as many models as it was handed to. Both functions are called by any thread,
// several at once, outside of warm steps; they must not throw. A model, its arena and its executors share in owning the
// policy: it lives until all of its memory came back. The bits of a step do not depend on where memory lies.
class MemoryPolicy {
 public:
  virtual ~MemoryPolicy() = default;

  // `bytes` (above 0), all zero, from a multiple of 4096 on, on pages of their own; matrices are read faster where they
  // begin at a multiple of 2 MiB on huge pages. Null where there is none: then a model is not loaded (out_of_memory);
  // without step buffers an assertion stops the process.
  [[nodiscard]] virtual std::byte* allocate(MemoryKind kind, std::size_t bytes) noexcept = 0;

  // Takes back what allocate() gave for the same kind and bytes.
  virtual void release(MemoryKind kind, std::byte* data, std::size_t bytes) noexcept = 0;
};

// What is used where nobody names a policy: anonymous pages, in memory once they are written. From 2 MiB on they begin
// at a multiple of that and ask for huge pages: a matrix of some MiB then needs a handful of TLB entries instead of
// thousands.
[[nodiscard]] const std::shared_ptr<MemoryPolicy>& system_memory() noexcept;

}  // namespace troupe::engine
