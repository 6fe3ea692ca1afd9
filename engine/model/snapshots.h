// Snapshots of recurrent states, from which other sequences with the same prefix continue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/memory/aligned_memory.h"
#include "engine/memory/memory_policy.h"

namespace troupe::engine {

// The type of a state's large part in a snapshot, to which it is also rounded while a sequence runs: docs/numerics.md.
enum class StateType : std::uint8_t { f32, f16 };
[[nodiscard]] std::string_view name(StateType type);
[[nodiscard]] std::optional<StateType> find_state_type(std::string_view name);  // "f32", "f16"

// The size of one sequence's state: float32 numbers, the exact part first. The exact part (the last inputs of a
// convolution or token shift) is small and never rounded; the large part (the matrices that a scan updates) may be
// rounded.
struct StateShape {
  std::uint64_t exact_floats = 0;
  std::uint64_t large_floats = 0;

  std::uint64_t num_floats() const { return exact_floats + large_floats; }
  std::uint64_t bytes() const { return num_floats() * sizeof(float); }
  std::uint64_t snapshot_bytes(StateType type) const {
    return exact_floats * sizeof(float) + large_floats * (type == StateType::f16 ? 2 : 4);
  }
};

// The memory of all snapshots of a model. Outlives every actor; only the compute thread reads and writes it.
class SnapshotArena {
 public:
  // num_snapshots may be 0. Error: out_of_memory.
  static Result<std::shared_ptr<SnapshotArena>> create(std::uint32_t num_snapshots, const StateShape& shape,
                                                       StateType type, std::shared_ptr<MemoryPolicy> policy);

  std::uint32_t num_snapshots() const { return num_snapshots_; }
  std::uint64_t bytes_per_snapshot() const { return shape_.snapshot_bytes(type_); }
  std::size_t resident_bytes() const { return memory_.resident_bytes(); }

  // `state` has num_floats() of the shape. With f16 its large part must already be rounded, else restore() differs from
  // the saved state.
  void save(SnapshotId id, const float* state);
  void restore(SnapshotId id, float* state) const;

 private:
  SnapshotArena(AlignedMemory memory, std::uint32_t num_snapshots, const StateShape& shape, StateType type)
      : memory_(std::move(memory)), num_snapshots_(num_snapshots), shape_(shape), type_(type) {}
  std::byte* at(SnapshotId id) const;

  AlignedMemory memory_;
  std::uint32_t num_snapshots_;
  StateShape shape_;
  StateType type_;
};

}  // namespace troupe::engine
