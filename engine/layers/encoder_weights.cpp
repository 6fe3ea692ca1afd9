#include "engine/layers/encoder_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "engine/formats/metadata.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {
namespace {

constexpr std::int64_t kMaxTokenTypes = 1024;

struct EncoderShape {
  ModelInfo info;
  float epsilon = 0;
  bool rotates = false;
  RopeParams rope;
};

// Refuses partial rotation and scaled positions.
void refuse_scaled_positions(Metadata& meta, std::int64_t head_dim) {
  meta.refuse_unless("rope.dimension_count", {head_dim}, "an encoder rotates whole heads");
  meta.refuse_unless("rope.scaling.type", {"none", "linear"}, "an encoder's positions are not scaled");
  for (const char* const factor : {"rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"})
    meta.refuse_unless(factor, {0, 1}, "an encoder's positions are not scaled");
}

Result<EncoderShape> read_shape(const ModelFile& file, const std::string& family, const LoadOptions& options) {
  Metadata meta(file, family);
  EncoderShape shape;
  shape.info = read_model_info(file, family, meta, options);
  ModelInfo& info = shape.info;
  info.ffn_dim = meta.count("feed_forward_length", kMaxFfnDim);
  info.num_heads = meta.count("attention.head_count", kMaxHeads);
  info.num_kv_heads = info.num_heads;
  if (info.dim % info.num_heads != 0 || info.dim / info.num_heads > kMaxHeadDim) {
    meta.fail(ErrorCode::bad_model, fmt::format("a dimension of {} cannot have {} heads", info.dim, info.num_heads));
  }
  info.head_dim = info.dim / info.num_heads;
  shape.epsilon = static_cast<float>(meta.positive("attention.layer_norm_epsilon"));
  shape.rotates = family == "nomic-bert";
  if (shape.rotates) {
    if (info.head_dim % 2 != 0) meta.fail(ErrorCode::bad_model, "heads of odd size cannot be rotated in pairs");
    shape.rope.rotated = info.head_dim;
    shape.rope.base = meta.positive("rope.freq_base", 10000.0);
    info.rope_base = static_cast<float>(shape.rope.base);
    refuse_scaled_positions(meta, info.head_dim);
  }
  const std::uint32_t longest = std::min(info.trained_context, kMaxEncoderTokens);
  if (options.context > longest) {
    meta.fail(ErrorCode::invalid_argument,
              fmt::format("this encoder reads texts of up to {} tokens; use no -c, or a smaller one", longest));
  }
  info.context = options.context ? options.context : longest;
  meta.refuse_unless("attention.causal", {false}, "tokens of an encoder see all others");
  if (meta.failed()) return meta.error();
  return shape;
}

// Reads q, k and v from three tensors, or from one joined tensor.
void read_qkv(TensorReader& in, const std::string& prefix, const EncoderShape& shape, kernels::KvType kv_type,
              EncoderLayer& layer) {
  const std::uint64_t dim = shape.info.dim;
  const bool joined = in.has(prefix + "attn_qkv.weight");
  PackedMatrix* const matrices[] = {&layer.q, &layer.k, &layer.v};
  const char* const names[] = {"attn_q", "attn_k", "attn_v"};
  for (std::uint64_t i = 0; i < 3; ++i) {
    MatrixReading how;
    if (shape.rotates && i < 2) {  // RoPE rotates pairs (i, i + head_dim / 2)
      how.interleave_head = shape.info.head_dim;
      how.interleave_rotated = shape.rope.rotated;
    }
    if (joined) how.part = TensorPart{.first = i * dim, .of = 3 * dim};
    *matrices[i] = in.matrix(prefix + (joined ? "attn_qkv" : names[i]) + ".weight", dim, dim, how);
  }
  if (joined) {
    layer.qkv_bias = in.optional_vector(prefix + "attn_qkv.bias", 3 * dim);
  } else if (in.has(prefix + "attn_q.bias")) {
    for (const char* const name : names) {
      const std::vector<float> bias = in.vector(prefix + name + ".bias", dim);
      layer.qkv_bias.insert(layer.qkv_bias.end(), bias.begin(), bias.end());
    }
  }
  if (shape.rotates && !layer.qkv_bias.empty()) {
    in.fail({ErrorCode::unsupported, in.file().path() + ": biases in front of a rotation are not supported"});
  }
  if (in.failed() || layer.qkv_bias.empty() || kv_type != kernels::KvType::i8) return;
  layer.value_bias.assign(layer.qkv_bias.end() - static_cast<std::ptrdiff_t>(dim), layer.qkv_bias.end());
  layer.qkv_bias.resize(dim);
}

EncoderLayer read_layer(TensorReader& in, const EncoderShape& shape, kernels::KvType kv_type, std::uint32_t index) {
  const std::string prefix = fmt::format("blk.{}.", index);
  const std::uint64_t dim = shape.info.dim, ffn_dim = shape.info.ffn_dim;
  EncoderLayer layer;
  read_qkv(in, prefix, shape, kv_type, layer);
  layer.o = in.matrix(prefix + "attn_output.weight", dim, dim);
  layer.o_bias = in.optional_vector(prefix + "attn_output.bias", dim);
  layer.attn_norm = read_layer_norm(in, prefix + "attn_output_norm", dim);
  if (shape.info.family == "nomic-bert") layer.gate = in.matrix(prefix + "ffn_gate.weight", ffn_dim, dim);
  layer.up = in.matrix(prefix + "ffn_up.weight", ffn_dim, dim);
  layer.up_bias = in.optional_vector(prefix + "ffn_up.bias", ffn_dim);
  layer.down = in.matrix(prefix + "ffn_down.weight", dim, ffn_dim);
  layer.down_bias = in.optional_vector(prefix + "ffn_down.bias", dim);
  layer.ffn_norm = read_layer_norm(in, prefix + "layer_output_norm", dim);
  if (layer.gate && !layer.up_bias.empty()) {
    in.fail({ErrorCode::unsupported, in.file().path() + ": biases of gated layers are not supported"});
  }
  return layer;
}

std::vector<float> read_token_type(TensorReader& in, std::uint64_t dim) {
  const TensorInfo* const types = in.file().find_tensor("token_types.weight");
  if (types == nullptr) return {};
  const std::uint64_t count = types->rows();
  if (count < 1 || count > static_cast<std::uint64_t>(kMaxTokenTypes)) {
    in.fail_model(fmt::format("token_types.weight has {} rows", count));
    return {};
  }
  const std::vector<std::uint64_t> shape = count == 1 ? std::vector{dim} : std::vector{dim, count};
  std::vector<float> all = in.vector("token_types.weight", dim * count, shape);
  if (!all.empty()) all.resize(dim);
  return all;
}

Result<EncoderWeights> read_encoder(const ModelFile& file, const LoadOptions& options, kernels::Layout ternary,
                                    WeightsCache& cache) {
  const std::string family = *read_architecture(file);
  auto shape = read_shape(file, family, options);
  if (!shape) return shape.error();
  const std::uint64_t table_bytes = shape->rotates ? RopeTable::bytes_for(shape->rope, shape->info.context) : 0;
  if (const Status fits = check_rope_memory(file, options, shape->info.context, table_bytes); !fits)
    return fits.error();
  EncoderWeights weights;
  weights.kernels = &kernels_of(options);
  weights.epsilon = shape->epsilon;
  weights.info = shape->info;
  ModelInfo& info = weights.info;
  weights.cache.kv_type = options.kv_type;
  weights.content_hash = file.content_hash();
  const auto vocab_size = vocabulary_size(file);
  if (!vocab_size) return vocab_size.error();
  info.vocab_size = *vocab_size;

  TensorReader in(file, family, /*scale_tensors=*/false, options, ternary, cache, weights);
  weights.embedding = in.matrix("token_embd.weight", info.vocab_size, info.dim, {.multiplied = false, .part = {}});
  if (!shape->rotates) {
    weights.positions =
        in.matrix("position_embd.weight", info.trained_context, info.dim, {.multiplied = false, .part = {}});
  }
  weights.token_type = read_token_type(in, info.dim);
  weights.embedding_norm = read_layer_norm(in, "token_embd_norm", info.dim);
  for (std::uint32_t i = 0; i < info.num_layers && !in.failed(); ++i)
    weights.layers.push_back(read_layer(in, *shape, options.kv_type, i));
  in.refuse_unknown_tensors();
  if (in.failed()) return in.error();
  if (options.names_only) return weights;
  for (const EncoderLayer& layer : weights.layers) {
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      add_matrix_work(info.matrices, *matrix, false);
  }
  in.finish();
  if (shape->rotates) weights.rope = RopeTable(shape->rope, info.context);
  weights.bytes += weights.rope.bytes();
  return weights;
}

}  // namespace

Status check_encoder(const ModelFile& file, const LoadOptions& options) {
  const auto shape = read_shape(file, *read_architecture(file), options);
  return shape ? Status(Ok{}) : shape.error();
}

Status check_encoder_tensors(const ModelFile& file, const LoadOptions& options) {
  return check_tensors(file, options, [&](const LoadOptions& names, WeightsCache& cache) {
    return read_encoder(file, names, kernels::Layout::panels, cache);
  });
}

Result<EncoderWeights> load_encoder(const ModelFile& file, const LoadOptions& options) {
  return read_with_cache(file, options, [&](kernels::Layout ternary, WeightsCache& cache) {
    return read_encoder(file, options, ternary, cache);
  });
}

}  // namespace troupe::engine
