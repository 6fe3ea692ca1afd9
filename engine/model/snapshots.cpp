#include "engine/model/snapshots.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "config/assert.h"
#include "kernels/formats/half.h"

namespace troupe::engine {

std::string_view name(StateType type) { return type == StateType::f16 ? "f16" : "f32"; }

std::optional<StateType> find_state_type(std::string_view text) {
  for (const StateType type : {StateType::f32, StateType::f16})
    if (name(type) == text) return type;
  return std::nullopt;
}

Result<std::shared_ptr<SnapshotArena>> SnapshotArena::create(std::uint32_t num_snapshots, const StateShape& shape,
                                                             StateType type, std::shared_ptr<MemoryPolicy> policy) {
  const std::uint64_t bytes = num_snapshots * shape.snapshot_bytes(type);
  AlignedMemory memory = AlignedMemory::allocate(std::move(policy), MemoryKind::kv_cache, bytes);
  if (bytes != 0 && !memory.data()) {
    return Error{
        ErrorCode::out_of_memory,
        fmt::format("no address space for {} snapshots of recurrent state; use a smaller --memory", num_snapshots)};
  }
  return std::shared_ptr<SnapshotArena>(new SnapshotArena(std::move(memory), num_snapshots, shape, type));
}

std::byte* SnapshotArena::at(SnapshotId id) const {
  TROUPE_ASSERT(id < num_snapshots_);
  return memory_.data() + id * bytes_per_snapshot();
}

void SnapshotArena::save(SnapshotId id, const float* state) {
  std::byte* to = at(id);
  if (type_ == StateType::f32) {
    std::memcpy(to, state, shape_.bytes());
    return;
  }
  std::memcpy(to, state, shape_.exact_floats * sizeof(float));
  const float* large = state + shape_.exact_floats;
  auto* halves = reinterpret_cast<std::uint16_t*>(to + shape_.exact_floats * sizeof(float));
  for (std::uint64_t i = 0; i < shape_.large_floats; ++i) halves[i] = kernels::half_of_float(large[i]);
}

void SnapshotArena::restore(SnapshotId id, float* state) const {
  const std::byte* from = at(id);
  if (type_ == StateType::f32) {
    std::memcpy(state, from, shape_.bytes());
    return;
  }
  std::memcpy(state, from, shape_.exact_floats * sizeof(float));
  float* large = state + shape_.exact_floats;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from + shape_.exact_floats * sizeof(float));
  for (std::uint64_t i = 0; i < shape_.large_floats; ++i) large[i] = kernels::float_of_half(halves[i]);
}

}  // namespace troupe::engine
