// The operations of an encoder's layer over the rows of some texts.
//
// Each operation runs over all rows (one per token of all texts) with the team; only attention reads other rows: all of
// the same text, in both directions. K and V of one layer are stored in blocks like a decoder's, for the same attention
// kernels, and the next layer overwrites them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "cache/ids.h"
#include "engine/compute/team.h"
#include "engine/layers/attention_plan.h"
#include "engine/layers/encoder_weights.h"
#include "engine/memory/workspace.h"
#include "engine/weights/prepared_activations.h"

namespace troupe::engine {

class EncoderPass {
 public:
  // No text is empty or longer than the context (asserted). All arguments must outlive the pass.
  EncoderPass(const EncoderWeights& weights, Team& team, std::span<const std::span<const TokenId>> texts,
              Workspace& workspace);

  // Runs all layers. Returns the hidden rows [tokens of all texts, dim], text by text, valid until the workspace is
  // used again.
  std::span<const float> run();
  std::size_t first_row(std::size_t text) const { return texts_[text].first_row; }

 private:
  struct BlockRows {  // rows of one text with K and V in one block
    std::uint32_t text = 0;
    std::uint32_t first = 0;  // position
    std::uint32_t count = 0;
    std::byte* kv = nullptr;
  };
  // Query rows of one text over one head.
  struct Item {
    std::uint32_t text = 0;
    std::uint32_t head = 0;
    std::uint32_t first = 0;  // among the text's rows
    std::uint32_t count = 0;
  };

  void list_rows(std::span<const std::span<const TokenId>> texts);
  void embed(std::span<const std::span<const TokenId>> texts);
  void project(const EncoderLayer& layer);           // q, k and v
  void rotate_and_store(const EncoderLayer& layer);  // with their bias
  void attend(const EncoderLayer& layer, const Item& item, const AttentionBuffers& buffers);
  void activate(const EncoderLayer& layer);  // the products of gate and up, rounded for down
  // residual = norm(residual + delta + bias), rounded for `consumers`.
  void add_and_norm(const std::vector<float>& bias, const LayerNormWeights& norm,
                    std::initializer_list<const PackedMatrix*> consumers);
  void round(std::initializer_list<const PackedMatrix*> consumers, const float* rows, std::size_t stride);

  // Calls fn() as an operation that the team's profiler hears of.
  template <class Fn>
  void timed(Operation operation, std::uint32_t layer, Fn&& fn);
  // Calls fn(first_row, num_rows) over all rows, whole tiles at a time.
  template <class Fn>
  void for_rows(Fn&& fn);

  const EncoderWeights& weights_;
  const kernels::KernelTable& kernels_;
  const ModelInfo& info_;
  Team& team_;
  Workspace& workspace_;
  kernels::KvShape kv_shape_;
  std::size_t num_rows_ = 0;
  std::size_t dim_, qkv_stride_;
  std::span<SequencePlace> texts_;
  std::span<Item> items_;
  std::span<const std::byte*> blocks_;
  std::span<BlockRows> block_rows_;
  std::span<std::byte> buffers_;  // of all threads
  std::size_t buffer_bytes_ = 0;
  std::span<float> residual_, delta_, qkv_, attention_, gate_, up_;
  PreparedActivations input_;
};

}  // namespace troupe::engine
