// The sizes of a decoder, from the metadata of its file.
#include <string>

#include "config/printable.h"
#include "engine/decoder_weights.h"
#include "engine/metadata.h"
#include "engine/tensor_reader.h"

namespace troupe::engine {
namespace {

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxDim = 1 << 18;
constexpr std::int64_t kMaxFfnDim = 1 << 20;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxContext = 1 << 24;

RopeParams read_rope(Metadata& meta, std::uint32_t head_dim) {
  RopeParams rope;
  rope.rotated = meta.count("rope.dimension_count", kMaxHeadDim, head_dim);
  if (rope.rotated > head_dim || rope.rotated % 2 != 0) {
    meta.fail(ErrorCode::bad_model, "rope.dimension_count is " + std::to_string(rope.rotated) +
                                        "; it must be even and at most the head's " + std::to_string(head_dim));
  }
  rope.base = meta.positive("rope.freq_base", 10000.0);
  const std::string scaling = meta.string("rope.scaling.type");
  if (scaling == "linear") {
    rope.position_scale = 1.0 / meta.positive("rope.scaling.factor", 1.0);
  } else if (!scaling.empty() && scaling != "none") {
    meta.fail(ErrorCode::unsupported, "rope scaling of type '" + printable(scaling) +
                                          "' is not supported; 'linear', 'none' and rope_freqs.weight are");
  } else if (scaling.empty()) {
    rope.position_scale = 1.0 / meta.positive("rope.scale_linear", 1.0);  // its name before there were types
  }
  return rope;
}

void read_heads(Metadata& meta, ModelInfo& info) {
  info.num_heads = meta.count("attention.head_count", kMaxHeads);
  info.num_kv_heads = meta.count("attention.head_count_kv", kMaxHeads, info.num_heads);
  if (info.num_heads % info.num_kv_heads != 0) {
    meta.fail(ErrorCode::bad_model, std::to_string(info.num_heads) + " heads cannot share " +
                                        std::to_string(info.num_kv_heads) + " kv heads evenly");
  }
  if (!meta.has("attention.key_length") && info.dim % info.num_heads != 0) {
    meta.fail(ErrorCode::bad_model, "the dimension " + std::to_string(info.dim) + " is not a multiple of the " +
                                        std::to_string(info.num_heads) + " heads");
  }
  info.head_dim = meta.count("attention.key_length", kMaxHeadDim, info.dim / info.num_heads);
  if (meta.count("attention.value_length", kMaxHeadDim, info.head_dim) != info.head_dim) {
    meta.fail(ErrorCode::unsupported, "keys and values of different length are not supported");
  }
  if (info.head_dim % 2 != 0) {
    meta.fail(ErrorCode::bad_model,
              "heads of " + std::to_string(info.head_dim) + " elements cannot be rotated in pairs");
  }
}

}  // namespace

Result<DecoderShape> read_decoder_shape(const ModelFile& file, const DecoderTraits& traits,
                                        const ModelOptions& options) {
  Metadata meta(file, traits.family);
  DecoderShape shape;
  ModelInfo& info = shape.info;
  info.name = model_name(file);
  info.family = traits.family;
  info.num_layers = meta.count("block_count", kMaxLayers);
  info.dim = meta.count("embedding_length", kMaxDim);
  info.ffn_dim = meta.count("feed_forward_length", kMaxFfnDim);
  info.trained_context = meta.count("context_length", kMaxContext);
  info.context = options.context ? options.context : info.trained_context;
  read_heads(meta, info);
  info.rms_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
  shape.rope = read_rope(meta, info.head_dim);
  info.rope_base = static_cast<float>(shape.rope.base);
  if (meta.has("expert_count") && file.integer(traits.family + ".expert_count").value_or(1) != 0) {
    meta.fail(ErrorCode::unsupported, "this is a mixture of experts ('" + traits.family +
                                          ".expert_count'), which is not supported yet; use a dense model");
  }
  if (info.context > kMaxContext) {
    meta.fail(ErrorCode::invalid_argument, "a context of " + std::to_string(info.context) +
                                               " tokens is above the limit of " + std::to_string(kMaxContext) +
                                               "; use a smaller -c");
  }
  if (meta.failed()) return meta.error();
  return shape;
}

}  // namespace troupe::engine
