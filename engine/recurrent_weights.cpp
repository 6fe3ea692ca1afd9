#include "engine/recurrent_weights.h"

namespace troupe::engine {
namespace {

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxDim = 1 << 18;
constexpr std::int64_t kMaxContext = 1 << 24;

}  // namespace

ModelInfo read_recurrent_info(const ModelFile& file, const std::string& family, Metadata& meta,
                              const ModelOptions& options) {
  ModelInfo info;
  info.name = model_name(file);
  info.family = family;
  info.weight_types = describe_types(file);
  info.num_parameters = count_parameters(file);
  info.num_layers = meta.count("block_count", kMaxLayers);
  info.dim = meta.count("embedding_length", kMaxDim);
  info.trained_context = meta.count("context_length", kMaxContext);
  info.context = options.context ? options.context : info.trained_context;
  if (info.context > kMaxContext) {
    meta.fail(ErrorCode::invalid_argument, "a context of " + std::to_string(info.context) +
                                               " tokens is above the limit of " + std::to_string(kMaxContext) +
                                               "; use a smaller -c");
  }
  return info;
}

}  // namespace troupe::engine
