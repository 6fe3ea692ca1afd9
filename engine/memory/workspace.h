// Memory that a step needs and gives back: activations, scratch space, tables of rows.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "engine/memory/aligned_memory.h"

namespace troupe::engine {

// One growing buffer per purpose. take() keeps the contents of a buffer that is large enough and
// loses them when it has to grow, so a warm step allocates nothing. Not thread-safe: one executor's.
class Workspace {
 public:
  enum class Slot {
    tokens,      // of all rows of the batch
    sequences,   // where each sequence's rows and blocks begin
    blocks,      // addresses of the KV blocks
    block_runs,  // rows that share a KV block
    residual,
    delta,  // what is to be added to the residual
    qkv,
    attention,
    gate,
    up,
    rounded_f32,
    rounded_i8_group32,
    rounded_i8_group256,
    rounded_bf16_tiles,
    rounded_bf16_split_tiles,
    rounded_i8_tiles,
    rounded_i8_group256_tiles,
    rounded_i8_group256_tables,
    gated_bf16_tiles,
    thread_scratch,
    normed,  // rows that several products or experts read
    // Of recurrent layers:
    shifted,  // where the row before each row lies
    mixed,    // by token shift
    mixer,    // what goes into a recurrence: of Mamba all of it, of RWKV the receptance
    convolved,
    time_steps,
    low_rank,  // between two thin matrices
    keys,
    values,
    first_values,  // the first layer's
    value_mix,
    decays,
    rates,
    mixer_gate,
    attention_items,
    attention_members,
    attention_partials,
    attention_buffers,
    window_blocks,  // as blocks; what follows as for the layers that see everything
    window_items,
    window_members,
    window_partials,
    window_buffers,
    expert_scores,
    expert_choices,
    expert_rows,
    expert_runs,
    run_experts,
    expert_consumers,
    expert_parts,  // what each expert makes of each of its rows
    shared_expert,
    hidden,
    sampled_hidden,
    logits,
    largest,     // logits of the rows, by thread
    encoder_kv,  // K and V of one layer of an encoder
    count,
  };

  explicit Workspace(std::shared_ptr<MemoryPolicy> policy = system_memory()) : policy_(std::move(policy)) {}

  // `count` elements, 64-byte aligned. Asserts that the system has the memory.
  template <class T>
  std::span<T> take(Slot slot, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {reinterpret_cast<T*>(bytes(slot, count * sizeof(T))), count};
  }

  std::size_t total_bytes() const;

 private:
  std::byte* bytes(Slot slot, std::size_t count);
  std::shared_ptr<MemoryPolicy> policy_;
  std::array<AlignedMemory, static_cast<std::size_t>(Slot::count)> buffers_;
};

}  // namespace troupe::engine
