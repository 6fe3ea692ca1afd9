// What a running sequence keeps in the cache, to look at and to cut short.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace troupe::engine {

// A view: owns nothing, holds for as long as the sequence is open. Called by the executor's compute thread, between
// steps. Positions and layers outside the sequence are bugs (asserted), and so is a look at keys and values of a model
// that has layers of several kinds.
class SequenceView {
 public:
  // model and executor belong together and outlive the view; `id` is open (asserted).
  SequenceView(const LoadedModel& model, Executor& executor, SequenceId id);

  std::uint32_t length() const { return executor_.num_computed(id_); }  // positions whose K and V are there
  std::uint32_t capacity() const;                                       // positions that the blocks so far can hold
  std::span<const TokenId> tokens() const { return executor_.tokens(id_); }

  // Forgets K and V from position `length` (<= now) on. The tokens stay known: the next steps compute them again.
  // O(1). A block that others share must be replaced by an own copy first. Executor::rewind() says how far a sequence
  // with windows or a recurrent state can go back.
  void truncate(std::uint32_t length) { executor_.rewind(id_, length); }
  void clear() { truncate(0); }

  // K (after RoPE) or V of one layer as float32, [length, num_kv_heads, head_dim]: what attention reads, so already
  // rounded to the KV type. A copy: O(length * num_kv_heads * head_dim).
  std::vector<float> keys(std::uint32_t layer) const;
  std::vector<float> values(std::uint32_t layer) const;

 private:
  enum class Part : std::uint8_t { keys, values };
  std::vector<float> copy(std::uint32_t layer, Part part) const;

  const LoadedModel& model_;
  Executor& executor_;
  SequenceId id_;
};

// How one layer's part of a block is laid out, for the model's KV type.
kernels::KvShape kv_shape_of(const LoadedModel& model);

}  // namespace troupe::engine
