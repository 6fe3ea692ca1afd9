// Reads and truncates the cached K and V of a running sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace troupe::engine {

// A view: owns nothing, valid while the sequence is open. Called by the executor's compute thread, between steps.
// Asserts that positions and layers are within the sequence, and for keys() and values() that all layers of the model
// are of one kind.
class SequenceView {
 public:
  // model and executor belong together and outlive the view; `id` is open (asserted).
  SequenceView(const LoadedModel& model, Executor& executor, SequenceId id);

  std::uint32_t length() const { return executor_.num_computed(id_); }  // positions with K and V
  std::uint32_t capacity() const;                                       // positions in the blocks of its table
  std::span<const TokenId> tokens() const { return executor_.tokens(id_); }

  // Drops K and V from position `length` (<= length()) on. The tokens stay known: the next steps compute them again.
  // O(1). Shared blocks, windows and recurrent states: see Executor::rewind().
  void truncate(std::uint32_t length) { executor_.rewind(id_, length); }
  void clear() { truncate(0); }

  // K (after RoPE) or V of one layer as float32, [length, num_kv_heads, head_dim], as attention reads it: rounded to
  // the KV type. A copy: O(length * num_kv_heads * head_dim).
  std::vector<float> keys(std::uint32_t layer) const { return copy(layer, true); }
  std::vector<float> values(std::uint32_t layer) const { return copy(layer, false); }

 private:
  std::vector<float> copy(std::uint32_t layer, bool keys) const;

  const LoadedModel& model_;
  Executor& executor_;
  SequenceId id_;
};

// The layout of one layer's part of a block, for the model's KV type.
kernels::KvShape kv_shape_of(const LoadedModel& model);

}  // namespace troupe::engine
