#include "engine/decoder_weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "config/printable.h"
#include "engine/team.h"
#include "engine/ternary_choice.h"

namespace troupe::engine {
namespace {

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) text += (text.size() > 1 ? " x " : "") + std::to_string(extent);
  return text + "]";
}

// Old converters wrote these; they say nothing that the metadata does not.
bool is_redundant(std::string_view name) {
  return name.ends_with(".attn_rot_embd") || name.ends_with(".rotary_emb.inv_freq");
}

// The order of q and k rows that makes rotating (i, i + rotated/2) a rotation of neighbours: scores are
// sums over a head's elements, so a permutation that q and k share changes nothing but their order.
std::vector<std::byte> interleave_halves(const TensorInfo& tensor, std::uint32_t head_dim, std::uint32_t rotated) {
  const std::uint64_t num_rows = tensor.rows();
  const std::size_t row_bytes = tensor.bytes.size() / num_rows;
  std::vector<std::byte> out(tensor.bytes.size());
  for (std::uint64_t row = 0; row < num_rows; ++row) {
    const std::uint64_t element = row % head_dim;
    const std::uint64_t source = element >= rotated ? element : element / 2 + (element % 2) * (rotated / 2);
    std::memcpy(out.data() + row * row_bytes, tensor.bytes.data() + (row - element + source) * row_bytes, row_bytes);
  }
  return out;
}

// All rows of a tensor, which are `file_rows` in its file's type, in the type that they become.
Result<AlignedMemory> convert_rows(Team& team, const TensorInfo& tensor, std::span<const std::byte> file_rows) {
  const kernels::ConvertedType& from = *tensor.converted_from;
  const std::size_t from_bytes = file_rows.size() / tensor.rows();
  const std::size_t to_bytes = tensor.columns() * kernels::info(tensor.type).group_bytes;
  auto rows = AlignedMemory::allocate(tensor.rows() * to_bytes);
  if (!rows.data()) {
    return Error{ErrorCode::out_of_memory, "no memory to convert tensor '" + printable(tensor.name) + "'"};
  }
  std::atomic<bool> finite = true;
  team.parallel_for(tensor.rows(), [&](std::size_t row, std::uint32_t) {
    if (!kernels::convert(from, file_rows.data() + row * from_bytes, rows.data() + row * to_bytes, tensor.columns()))
      finite = false;
  });
  if (!finite) {
    return Error{ErrorCode::bad_model, "tensor '" + printable(tensor.name) + "' of type " +
                                           std::string(from.info.name) + " has a weight that is not finite as " +
                                           std::string(kernels::info(tensor.type).name)};
  }
  return rows;
}

// Takes tensors out of a file by name and shape; the first failure sticks, later calls do nothing.
class TensorReader {
 public:
  TensorReader(const ModelFile& file, const DecoderTraits& traits, const ModelOptions& options, kernels::Layout ternary,
               WeightsCache& cache, DecoderWeights& weights)
      : file_(file), traits_(traits), options_(options), ternary_(ternary), cache_(cache), weights_(weights) {
    for (const TensorInfo& tensor : file.tensors()) total_bytes_ += tensor.bytes.size();
  }

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

  // A vector of `count` numbers, as float32.
  std::vector<float> vector(const std::string& name, std::uint64_t count) {
    const TensorInfo* tensor = find(name, {count});
    if (!tensor) return {};
    std::vector<float> values(count);
    if (tensor->converted_from)
      kernels::dequantize(*tensor->converted_from, tensor->bytes.data(), values.data(), count);
    else
      kernels::dequantize(tensor->type, tensor->bytes.data(), values.data(), count);
    if (tensor->scale != 1.0f)
      for (float& value : values) value *= tensor->scale;
    weights_.bytes += count * sizeof(float);
    hash({reinterpret_cast<const std::byte*>(values.data()), count * sizeof(float)});
    done_with(*tensor);
    return values;
  }

  // A matrix of `rows` outputs and `k` inputs.
  PackedMatrix matrix(const std::string& name, std::uint64_t rows, std::uint64_t k) {
    return matrix(name, rows, k, /*multiplied=*/true, /*interleave=*/false, {});
  }

  // The embedding is read row by row where nothing multiplies with it.
  PackedMatrix embedding(const std::string& name, std::uint64_t rows, std::uint64_t k, bool multiplied) {
    return matrix(name, rows, k, multiplied, false, {});
  }

  // q or k: rows in heads, whose elements are about to be rotated.
  PackedMatrix rotated_matrix(const std::string& name, std::uint64_t rows, std::uint64_t k, const RopeParams& rope) {
    return matrix(name, rows, k, true, traits_.half_rope, rope);
  }

  // Once all has been read: a line for the log.
  void note_speed() const {
    if (!options_.notes) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double gigabytes = 1e-9 * static_cast<double>(cache_.has_model() ? weights_.bytes : total_bytes_);
    char text[96];
    std::snprintf(text, sizeof text, "%s %.2f GB of weights in %.2f s (%.1f GB/s)",
                  cache_.has_model() ? "read" : "packed", gigabytes, seconds, gigabytes / seconds);
    options_.notes({.warning = false, .text = text + (cache_.has_model() ? " from " + cache_.path() : "")});
  }

  // Once all has been read: packed weights go to the cache.
  void keep_in_cache() {
    if (!cache_.is_used() || cache_.has_model()) return;
    for (const TensorInfo& tensor : file_.tensors())  // redundant ones, which nobody read
      if (!used_.contains(tensor.name)) source_hash_ += tensor_hash(*options_.team, tensor);
    cache_.keep(packed_, source_hash_);
  }

  // Whatever has not been asked for means that the file computes something else.
  void refuse_unknown_tensors() {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (used_.contains(tensor.name) || is_redundant(tensor.name)) continue;
      const bool experts =
          tensor.name.find("_exps") != std::string::npos || tensor.name.find("gate_inp") != std::string::npos;
      fail({ErrorCode::unsupported, file_.path() + ": tensor '" + printable(tensor.name) + "' is not part of a '" +
                                        traits_.family + "' model as it is supported here" +
                                        (experts ? " (mixtures of experts are not)" : "")});
    }
  }

 private:
  const TensorInfo* find(const std::string& name, const std::vector<std::uint64_t>& shape) {
    if (failed()) return nullptr;
    const TensorInfo* tensor = file_.find_tensor(name);
    if (!tensor) {
      fail({ErrorCode::bad_model, file_.path() + ": tensor '" + name + "' is missing"});
      return nullptr;
    }
    std::vector<std::uint64_t> actual = tensor->shape;
    while (actual.size() > shape.size() && actual.back() == 1) actual.pop_back();
    if (actual != shape) {
      fail({ErrorCode::bad_model, file_.path() + ": tensor '" + name + "' has shape " + shape_text(tensor->shape) +
                                      "; the metadata ask for " + shape_text(shape)});
      return nullptr;
    }
    used_.insert(name);
    return tensor;
  }

  PackedMatrix matrix(const std::string& name, std::uint64_t rows, std::uint64_t k, bool multiplied, bool interleave,
                      const RopeParams& rope) {
    float scale = scale_of(name);
    const TensorInfo* tensor = find(name, {k, rows});
    if (!tensor) return {};
    if (tensor->file_type().tail_bytes != 0) {
      scale *= tensor->scale;
      hash(std::as_bytes(std::span(&tensor->scale, 1)));  // it is not in the packed body
    }
    auto packed = cache_.has_model() ? cache_.read(name, tensor->type,
                                                   multiplied ? wanted_layout(tensor->type) : kernels::Layout::file,
                                                   rows, k, scale, options_.memory_policy)
                                     : pack(*tensor, rows, k, scale, multiplied, interleave, rope);
    if (!packed) {
      fail({packed.error().code, file_.path() + ": " + packed.error().message});
      return {};
    }
    if (!*packed) {
      fail({ErrorCode::io, cache_.path() + ": damaged"});  // load_decoder then packs
      return {};
    }
    packed_.push_back({WeightsCache::hash_of_name(name), packed->bytes()});
    weights_.bytes += packed->bytes().size();
    weights_.matrix_bytes += packed->bytes().size();
    weights_.content_hash = combine_hashes(weights_.content_hash, packed->header().content);
    done_with(*tensor);
    return std::move(*packed);
  }

  Result<PackedMatrix> pack(const TensorInfo& tensor, std::uint64_t rows, std::uint64_t k, float scale, bool multiplied,
                            bool interleave, const RopeParams& rope) {
    std::vector<std::byte> interleaved;
    if (interleave) interleaved = interleave_halves(tensor, weights_.info.head_dim, rope.rotated);
    std::span<const std::byte> file_rows = interleave ? std::span<const std::byte>(interleaved) : tensor.bytes;
    AlignedMemory converted;
    if (tensor.converted_from) {
      auto rows_of = convert_rows(*options_.team, tensor, file_rows);
      if (!rows_of) return rows_of.error();
      converted = std::move(*rows_of);
      file_rows = {converted.data(), converted.size()};
    }
    kernels::Layout layout = kernels::Layout::file;
    if (multiplied && is_ternary_choice(tensor.type))
      layout = kernels::ternary_layout_for(ternary_, tensor.type, file_rows.data(), rows, k);
    else if (multiplied)
      layout = kernels::layout_for(*options_.kernels, tensor.type, file_rows.data(), rows, k);
    return PackedMatrix::pack(*options_.team, tensor.type, layout, file_rows, rows, k, scale, options_.memory_policy);
  }

  // If the weights allow it.
  kernels::Layout wanted_layout(kernels::WeightType type) const {
    return is_ternary_choice(type) ? ternary_ : options_.kernels->layout(type);
  }
  // Panels are no choice: they mean what the kernels like best.
  bool is_ternary_choice(kernels::WeightType type) const {
    return kernels::is_ternary(type) && ternary_ != kernels::Layout::panels;
  }

  float scale_of(const std::string& matrix_name) {
    const std::string name = matrix_name.substr(0, matrix_name.rfind('.')) + ".scale";
    if (!traits_.scale_tensors || !has(name)) return 1.0f;
    const std::vector<float> values = vector(name, 1);
    return values.empty() ? 1.0f : values[0];
  }

  void hash(std::span<const std::byte> bytes) {
    weights_.content_hash = combine_hashes(weights_.content_hash, checksum(*options_.team, bytes));
  }

  void done_with(const TensorInfo& tensor) {
    if (cache_.is_used() && !cache_.has_model()) source_hash_ += tensor_hash(*options_.team, tensor);
    file_.drop_pages(tensor.bytes);
    done_bytes_ += tensor.bytes.size();
    if (options_.progress) {
      options_.progress(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
    }
  }

  const ModelFile& file_;
  const DecoderTraits& traits_;
  const ModelOptions& options_;
  const kernels::Layout ternary_;  // panels, or lookup or trits where the kernels have them
  WeightsCache& cache_;
  DecoderWeights& weights_;
  std::vector<WeightsCache::Matrix> packed_;
  std::uint64_t source_hash_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::set<std::string, std::less<>> used_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::optional<Error> error_;
};

DecoderLayer read_layer(TensorReader& in, const ModelInfo& info, const RopeParams& rope, bool sub_norms,
                        std::uint32_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const std::uint64_t q_dim = std::uint64_t{info.num_heads} * info.head_dim;
  const std::uint64_t kv_dim = std::uint64_t{info.num_kv_heads} * info.head_dim;
  DecoderLayer layer;
  layer.attn_norm = in.vector(prefix + "attn_norm.weight", info.dim);
  layer.q = in.rotated_matrix(prefix + "attn_q.weight", q_dim, info.dim, rope);
  layer.k = in.rotated_matrix(prefix + "attn_k.weight", kv_dim, info.dim, rope);
  layer.v = in.matrix(prefix + "attn_v.weight", kv_dim, info.dim);
  if (sub_norms) layer.attn_sub_norm = in.vector(prefix + "attn_sub_norm.weight", q_dim);
  layer.o = in.matrix(prefix + "attn_output.weight", info.dim, q_dim);
  layer.ffn_norm = in.vector(prefix + "ffn_norm.weight", info.dim);
  layer.gate = in.matrix(prefix + "ffn_gate.weight", info.ffn_dim, info.dim);
  layer.up = in.matrix(prefix + "ffn_up.weight", info.ffn_dim, info.dim);
  if (sub_norms) layer.ffn_sub_norm = in.vector(prefix + "ffn_sub_norm.weight", info.ffn_dim);
  layer.down = in.matrix(prefix + "ffn_down.weight", info.dim, info.ffn_dim);
  return layer;
}

// "Q4_K x 135, Q6_K x 21, F32 x 45": most frequent first.
std::string describe_types(const ModelFile& file) {
  std::map<std::string_view, std::size_t> counts;
  for (const TensorInfo& tensor : file.tensors()) ++counts[tensor.file_type().name];
  std::vector<std::pair<std::string_view, std::size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : order) {
    text += (text.empty() ? "" : ", ") + std::string(name) + " x " + std::to_string(count);
  }
  return text;
}

std::uint64_t count_parameters(const ModelFile& file) {
  std::uint64_t count = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name != "rope_freqs.weight") count += tensor.columns() * tensor.rows();
  }
  return count;
}

// Rows that nobody asked for leave the last layer when their k and v are stored.
std::vector<MatrixWork> matrix_work(const DecoderWeights& weights) {
  std::vector<MatrixWork> all;
  const auto add = [&](const PackedMatrix& matrix, bool outputs_only) {
    if (!matrix) return;
    const kernels::MatrixView& view = matrix.view();
    auto found = std::find_if(all.begin(), all.end(), [&](const MatrixWork& work) {
      return work.type == view.type && work.layout == view.layout && work.outputs_only == outputs_only;
    });
    if (found == all.end())
      found = all.insert(found, {.type = view.type, .layout = view.layout, .outputs_only = outputs_only});
    found->multiply_adds += view.rows * view.k;
    found->bytes += kernels::packed_bytes(view.type, view.layout, view.rows, view.k);
  };
  for (const DecoderLayer& layer : weights.layers) {
    const bool last = &layer == &weights.layers.back();
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v}) add(*matrix, false);
    for (const PackedMatrix* matrix : {&layer.o, &layer.gate, &layer.up, &layer.down}) add(*matrix, last);
  }
  add(weights.head_matrix(), true);
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

  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (!embedding) return Error{ErrorCode::bad_model, file.path() + ": tensor 'token_embd.weight' is missing"};
  if (embedding->rows() > 1u << 24) {
    return Error{ErrorCode::bad_model,
                 file.path() + ": a vocabulary of " + std::to_string(embedding->rows()) + " tokens"};
  }
  info.vocab_size = static_cast<std::uint32_t>(embedding->rows());

  TensorReader in(file, traits, options, ternary, cache, weights);
  RopeParams rope = shape->rope;
  if (in.has("rope_freqs.weight")) {
    rope.factors = in.vector("rope_freqs.weight", rope.rotated / 2);
    if (std::any_of(rope.factors.begin(), rope.factors.end(), [](float f) { return !(f > 0.0f && f < 1e9f); })) {
      in.fail({ErrorCode::bad_model, file.path() + ": rope_freqs.weight must hold numbers above 0"});
    }
  }
  const bool tied = !in.has("output.weight");
  weights.embedding = in.embedding("token_embd.weight", info.vocab_size, info.dim, tied);
  for (std::uint32_t i = 0; i < info.num_layers && !in.failed(); ++i) {
    weights.layers.push_back(read_layer(in, info, rope, traits.sub_norms, i));
  }
  weights.output_norm = in.vector("output_norm.weight", info.dim);
  if (!tied) weights.head = in.matrix("output.weight", info.vocab_size, info.dim);
  in.refuse_unknown_tensors();
  if (in.failed()) return in.error();
  info.matrices = matrix_work(weights);
  in.note_speed();
  in.keep_in_cache();
  weights.rope = RopeTable(rope, info.context);
  weights.bytes += weights.rope.bytes();
  return weights;
}

}  // namespace

Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits, const ModelOptions& options) {
  const auto ternary = choose_ternary_layout(file, options);
  if (!ternary) return ternary.error();
  WeightsCache cache(options.weights_cache, file, options.kernels->name, *ternary, *options.team, options.notes);
  const bool cached = cache.has_model();
  auto weights = read_decoder(file, traits, options, *ternary, cache);
  // What was read before the damage is thrown away: the file was one whole, and is written as one again.
  if (!weights && cached && !cache.has_model()) weights = read_decoder(file, traits, options, *ternary, cache);
  return weights;
}

}  // namespace troupe::engine
