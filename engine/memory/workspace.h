// Memory that steps reuse: activations, scratch space, tables of rows.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "cache/group.h"
#include "engine/memory/aligned_memory.h"

namespace troupe::engine {

// One growing buffer per purpose. take() keeps the contents of a buffer that is large enough and loses them when it has
// to grow, so a warm step allocates nothing. Not thread-safe: one per executor.
class Workspace {
 public:
  enum class Slot {
    tokens,      // of all rows of the batch
    sequences,   // first row and block of each sequence
    blocks,      // addresses of the KV blocks
    block_runs,  // rows that share a KV block
    residual,
    delta,  // a pending addition to the residual
    qkv,
    attention,
    attention_gate,
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
    shifted,  // address of the row before each row
    mixed,    // by token shift
    mixer,    // input of a recurrence: Mamba's whole input, RWKV's receptance
    convolved,
    time_steps,
    low_rank,  // between two low-rank matrices
    keys,
    values,
    first_values,  // of the first layer
    value_mix,
    decays,
    rates,
    mixer_gate,
    attention_items,
    attention_members,
    attention_partials,
    attention_buffers,
    expert_scores,
    expert_choices,
    expert_rows,
    expert_runs,
    run_experts,
    expert_consumers,
    expert_parts,  // output of each expert for each of its rows
    shared_expert,
    hidden,
    sampled_hidden,
    logits,
    largest,     // logits of the rows, by thread
    encoder_kv,  // K and V of one layer of an encoder
    count,
  };

  explicit Workspace(std::shared_ptr<MemoryPolicy> policy = system_memory()) : policy_(std::move(policy)) {}

  // The most buffers of one purpose: the cache groups, or the attention plans of a step.
  static constexpr std::size_t kMaxOfOneSlot = 16;

  // `count` elements, 64-byte aligned. Asserts that the system has the memory. Each index has a buffer of its own.
  template <class T>
  std::span<T> take(Slot slot, std::size_t count, std::size_t index = 0) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {reinterpret_cast<T*>(bytes(slot, index, count * sizeof(T))), count};
  }

  std::size_t total_bytes() const;

 private:
  std::byte* bytes(Slot slot, std::size_t index, std::size_t count);
  std::shared_ptr<MemoryPolicy> policy_;
  std::array<std::array<AlignedMemory, static_cast<std::size_t>(Slot::count)>, kMaxOfOneSlot> buffers_;
  static_assert(kMaxOfOneSlot >= cache::kMaxGroups);
};

}  // namespace troupe::engine
