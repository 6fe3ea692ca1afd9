#include "engine/decoder_weights.h"

#include <algorithm>

#include "engine/tensor_reader.h"

namespace troupe::engine {
namespace {

DecoderLayer read_layer(TensorReader& in, const ModelInfo& info, const RopeParams& rope, const DecoderTraits& traits,
                        std::uint32_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const std::uint64_t q_dim = std::uint64_t{info.num_heads} * info.head_dim;
  const std::uint64_t kv_dim = std::uint64_t{info.num_kv_heads} * info.head_dim;
  const MatrixReading rotated{
      .interleave_head = traits.half_rope ? info.head_dim : 0, .interleave_rotated = rope.rotated, .part = {}};
  DecoderLayer layer;
  layer.attn_norm = in.vector(prefix + "attn_norm.weight", info.dim);
  layer.q = in.matrix(prefix + "attn_q.weight", q_dim, info.dim, rotated);
  layer.k = in.matrix(prefix + "attn_k.weight", kv_dim, info.dim, rotated);
  layer.v = in.matrix(prefix + "attn_v.weight", kv_dim, info.dim);
  if (traits.sub_norms) layer.attn_sub_norm = in.vector(prefix + "attn_sub_norm.weight", q_dim);
  layer.o = in.matrix(prefix + "attn_output.weight", info.dim, q_dim);
  layer.ffn_norm = in.vector(prefix + "ffn_norm.weight", info.dim);
  layer.gate = in.matrix(prefix + "ffn_gate.weight", info.ffn_dim, info.dim);
  layer.up = in.matrix(prefix + "ffn_up.weight", info.ffn_dim, info.dim);
  if (traits.sub_norms) layer.ffn_sub_norm = in.vector(prefix + "ffn_sub_norm.weight", info.ffn_dim);
  layer.down = in.matrix(prefix + "ffn_down.weight", info.dim, info.ffn_dim);
  return layer;
}

// Rows that nobody asked for leave the last layer when their k and v are stored.
std::vector<MatrixWork> matrix_work(const DecoderWeights& weights) {
  std::vector<MatrixWork> all;
  for (const DecoderLayer& layer : weights.layers) {
    const bool last = &layer == &weights.layers.back();
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v}) add_matrix_work(all, *matrix, false);
    for (const PackedMatrix* matrix : {&layer.o, &layer.gate, &layer.up, &layer.down})
      add_matrix_work(all, *matrix, last);
  }
  add_matrix_work(all, weights.head_matrix(), true);
  return all;
}

CacheSpec cache_spec_of(const ModelInfo& info, kernels::KvType type) {
  const kernels::KvShape shape{.type = type, .num_kv_heads = info.num_kv_heads, .head_dim = info.head_dim};
  CacheSpec spec;
  spec.kv_type = type;
  spec.groups.push_back({.kind = CacheGroup::Kind::full,
                         .num_layers = info.num_layers,
                         .bytes_per_block = info.num_layers * shape.layer_bytes()});
  return spec;
}

// Packs the weights, or takes them from the cache if the model is there.
Result<DecoderWeights> read_decoder(const ModelFile& file, const DecoderTraits& traits, const ModelOptions& options,
                                    kernels::Layout ternary, WeightsCache& cache) {
  auto shape = read_decoder_shape(file, traits, options);
  if (!shape) return shape.error();
  const std::uint64_t table_bytes = RopeTable::bytes_for(shape->rope, shape->info.context);
  if (options.memory != 0 && table_bytes > options.memory) {
    return Error{ErrorCode::out_of_memory,
                 file.path() + ": rotations for " + std::to_string(shape->info.context) + " tokens take " +
                     std::to_string(table_bytes >> 20) + " MiB, and the memory budget leaves " +
                     std::to_string(options.memory >> 20) + " MiB; use a smaller -c or a larger --memory"};
  }
  DecoderWeights weights;
  weights.kernels = options.kernels;
  weights.info = std::move(shape->info);
  ModelInfo& info = weights.info;
  info.weight_types = describe_types(file);
  info.num_parameters = count_parameters(file);
  weights.cache = cache_spec_of(info, options.kv_type);
  weights.content_hash = file.content_hash();

  const auto vocab_size = vocabulary_size(file);
  if (!vocab_size) return vocab_size.error();
  info.vocab_size = *vocab_size;

  TensorReader in(file, traits.family, traits.scale_tensors, options, ternary, cache, weights);
  RopeParams rope = shape->rope;
  if (in.has("rope_freqs.weight")) {
    rope.factors = in.vector("rope_freqs.weight", rope.rotated / 2);
    if (std::any_of(rope.factors.begin(), rope.factors.end(), [](float f) { return !(f > 0.0f && f < 1e9f); })) {
      in.fail_model("rope_freqs.weight must hold numbers above 0");
    }
  }
  in.ends(info.vocab_size, info.dim);
  for (std::uint32_t i = 0; i < info.num_layers && !in.failed(); ++i)
    weights.layers.push_back(read_layer(in, info, rope, traits, i));
  in.refuse_unknown_tensors();
  if (in.failed()) return in.error();
  info.matrices = matrix_work(weights);
  in.finish();
  weights.rope = RopeTable(rope, info.context);
  weights.bytes += weights.rope.bytes();
  return weights;
}

}  // namespace

Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits, const ModelOptions& options) {
  return read_with_cache(file, options, [&](kernels::Layout ternary, WeightsCache& cache) {
    return read_decoder(file, traits, options, ternary, cache);
  });
}

}  // namespace troupe::engine
