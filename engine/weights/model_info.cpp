#include "engine/weights/model_info.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/assert.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

const kernels::KernelTable& kernels_of(const LoadOptions& options) {
  const kernels::KernelTable* const table = kernels::find_table(options.kernels);
  TROUPE_ASSERT(table);
  return *table;
}

namespace {

std::optional<Pooling> read_pooling(Metadata& meta) {
  constexpr std::int64_t kNone = 0, kRank = 4;
  constexpr std::optional<Pooling> kPoolings[] = {std::nullopt, Pooling::mean, Pooling::cls, Pooling::last};
  const std::int64_t type = meta.integer("pooling_type").value_or(kNone);
  if (type >= kNone && type < kRank) return kPoolings[type];
  if (type == kRank)
    meta.refuse_unless("pooling_type", {kNone}, "this model ranks pairs of texts");
  else
    meta.fail(ErrorCode::bad_model, fmt::format("'pooling_type' is {}; it must be from 0 to 4", type));
  return std::nullopt;
}

}  // namespace

ModelInfo read_model_info(const ModelFile& file, const std::string& family, Metadata& meta,
                          const LoadOptions& options) {
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
    meta.fail(
        ErrorCode::invalid_argument,
        fmt::format("a context of {} tokens is above the limit of {}; use a smaller -c", info.context, kMaxContext));
  }
  info.pooling = read_pooling(meta);
  return info;
}

Result<std::string> read_architecture(const ModelFile& file) {
  Metadata general(file, "general");
  std::string architecture = general.string("architecture");
  if (architecture.empty())
    general.fail_key(ErrorCode::bad_model, "architecture", "is missing; this is no language model");
  if (general.failed()) return general.error();
  return architecture;
}

bool architecture_is(const ModelFile& file, std::string_view name) {
  const auto architecture = read_architecture(file);
  return architecture && *architecture == name;
}

std::uint64_t trained_context(const ModelFile& file) {
  const auto architecture = read_architecture(file);
  const auto tokens = architecture ? Metadata(file, *architecture).integer("context_length") : std::nullopt;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(tokens.value_or(0), 0));
}

}  // namespace troupe::engine
