#include "engine/weights/tensor_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "config/printable.h"
#include "engine/compute/team.h"
#include "engine/formats/finite_weights.h"
#include "engine/formats/metadata.h"
#include "engine/formats/split_name.h"

namespace troupe::engine {
namespace {

constexpr std::uint64_t kMaxVocabulary = 1u << 24;

std::string shape_text(const std::vector<std::uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, " x ")); }

// Tensors of old converters that repeat the metadata.
bool is_redundant(std::string_view name) {
  return name.ends_with(".attn_rot_embd") || name.ends_with(".rotary_emb.inv_freq");
}

std::vector<std::byte> interleave(std::span<const std::byte> rows, std::uint64_t num_rows, std::uint32_t head_dim,
                                  std::uint32_t rotated) {
  const std::size_t row_bytes = rows.size() / num_rows;
  std::vector<std::byte> out(rows.size());
  for (std::uint64_t row = 0; row < num_rows; ++row) {
    const std::byte* from = rows.data() + interleaved_row(row, head_dim, rotated) * row_bytes;
    std::memcpy(out.data() + row * row_bytes, from, row_bytes);
  }
  return out;
}

// Every other run of `run` rows, from the first one on.
std::vector<std::byte> every_other_run(std::span<const std::byte> rows, std::size_t run_bytes) {
  std::vector<std::byte> out;
  for (std::size_t at = 0; at < rows.size(); at += 2 * run_bytes)
    out.insert(out.end(), rows.begin() + static_cast<std::ptrdiff_t>(at),
               rows.begin() + static_cast<std::ptrdiff_t>(at + run_bytes));
  return out;
}

std::string not_finite(const TensorInfo& tensor) {
  const std::string as = tensor.converted_from ? fmt::format(" as {}", kernels::info(tensor.type).name) : "";
  return fmt::format(
      "tensor '{}' of type {} has a weight that is not finite{}; the file is damaged, download or convert "
      "it again",
      Printable(tensor.name), tensor.file_type().name, as);
}

// Converts some rows of a tensor, `file_rows`, from the file's type to the loaded type.
Result<AlignedMemory> convert_rows(Team& team, const TensorInfo& tensor, std::span<const std::byte> file_rows,
                                   std::uint64_t num_rows) {
  const kernels::ConvertedType& from = *tensor.converted_from;
  const std::size_t from_bytes = file_rows.size() / num_rows;
  const std::size_t to_bytes = tensor.columns() * kernels::info(tensor.type).group_bytes;
  auto rows = AlignedMemory::allocate(num_rows * to_bytes);
  if (!rows.data())
    return Error{ErrorCode::out_of_memory, fmt::format("no memory to convert tensor '{}'", Printable(tensor.name))};
  std::atomic<bool> finite = true;
  team.parallel_for(num_rows, [&](std::size_t row, std::uint32_t) {
    if (!kernels::convert(from, file_rows.data() + row * from_bytes, rows.data() + row * to_bytes, tensor.columns()))
      finite = false;
  });
  if (!finite) return Error{ErrorCode::bad_model, not_finite(tensor)};
  return rows;
}

}  // namespace

TensorReader::TensorReader(const ModelFile& file, std::string_view family, bool scale_tensors,
                           const LoadOptions& options, kernels::Layout ternary, WeightsCache& cache,
                           ModelWeights& weights)
    : file_(file),
      family_(family),
      scale_tensors_(scale_tensors),
      options_(options),
      ternary_(ternary),
      cache_(cache),
      weights_(weights) {
  for (const TensorInfo& tensor : file.tensors()) total_bytes_ += tensor.bytes.size();
}

std::vector<float> TensorReader::vector(const std::string& name, std::uint64_t count,
                                        const std::vector<std::uint64_t>& shape) {
  const TensorInfo* tensor = find(name, shape.empty() ? std::vector{count} : shape);
  if (!tensor) return {};
  std::vector<float> values(count);
  if (tensor->converted_from)
    kernels::dequantize(*tensor->converted_from, tensor->bytes.data(), values.data(), count);
  else
    kernels::dequantize(tensor->type, tensor->bytes.data(), values.data(), count);
  if (tensor->scale != 1.0f)
    for (float& value : values) value *= tensor->scale;
  if (!all_finite(kernels::WeightType::f32, std::as_bytes(std::span(values)))) {
    fail({ErrorCode::bad_model, fmt::format("{}: {}", file_.path_of(tensor->bytes), not_finite(*tensor))});
    return {};
  }
  weights_.bytes += count * sizeof(float);
  hash(std::as_bytes(std::span(values)));
  done_with(*tensor, tensor->bytes.size());
  return values;
}

std::vector<float> TensorReader::optional_vector(const std::string& name, std::uint64_t count) {
  return has(name) ? vector(name, count) : std::vector<float>();
}

PackedMatrix TensorReader::matrix(const std::string& name, std::uint64_t rows, std::uint64_t k,
                                  const MatrixReading& how) {
  float scale = scale_of(name) * how.scale;
  const TensorPart part = how.part.value_or(TensorPart{.first = 0, .of = rows});
  std::vector<std::uint64_t> shape = {k, part.of};
  if (part.num_experts != 0) shape = {k, part.of / part.num_experts, part.num_experts};
  const TensorInfo* tensor = find(name, shape);
  if (!tensor) return {};
  if (options_.names_only) return {};
  if (tensor->file_type().tail_bytes != 0) {
    scale *= tensor->scale;
    hash(std::as_bytes(std::span(&tensor->scale, 1)));  // because it is not in the packed body
  }
  const std::string part_name = how.part ? fmt::format("{}#{}", name, part.first) : name;
  const std::size_t row_bytes = tensor->bytes.size() / part.of;
  const std::uint64_t all_rows = part.run == 0 ? rows : 2 * rows - part.run;
  const std::span<const std::byte> file_rows = tensor->bytes.subspan(part.first * row_bytes, all_rows * row_bytes);
  MatrixForm form{.type = tensor->type, .layout = kernels::Layout::file, .rows = rows, .k = k, .scale = scale};
  if (how.multiplied) form.layout = wanted_layout(tensor->type);
  auto packed =
      cache_.has_model() ? cache_.read(part_name, form, options_.memory_policy) : pack(*tensor, file_rows, form, how);
  if (!packed) {
    fail({packed.error().code, fmt::format("{}: {}", file_.path_of(tensor->bytes), packed.error().message)});
    return {};
  }
  if (!*packed) {
    fail({ErrorCode::io, cache_.path() + ": damaged"});  // read_with_cache then reads again, packing
    return {};
  }
  packed_.push_back({WeightsCache::hash_of_name(part_name), packed->bytes()});
  weights_.bytes += packed->bytes().size();
  weights_.matrix_bytes += packed->bytes().size();
  weights_.content_hash = combine_hashes(weights_.content_hash, packed->header().content);
  done_with(*tensor, rows * row_bytes);
  return std::move(*packed);
}

void TensorReader::read_embedding_and_head(std::uint64_t vocab_size, std::uint64_t dim,
                                           const std::string& output_norm) {
  const bool tied = !has("output.weight");
  // An untied embedding is only looked up row by row.
  weights_.embedding = matrix("token_embd.weight", vocab_size, dim, {.multiplied = tied, .part = {}});
  weights_.output_norm = vector(output_norm, dim);
  if (!tied) weights_.head = matrix("output.weight", vocab_size, dim);
}

void TensorReader::refuse_unknown_tensors() {
  if (error_) return;  // what follows a failure was not looked for
  std::vector<std::string> of_other_parts;
  for (const std::string& name : file_.unread_tensors()) of_other_parts.push_back(Printable(name).text());
  const std::uint64_t num_layers = num_layers_of(file_);
  for (const TensorInfo& tensor : file_.tensors()) {
    if (used_.contains(tensor.name) || is_redundant(tensor.name)) continue;
    const bool is_in_layer = tensor.name.starts_with("blk.") && may_be_computed(tensor.name, num_layers);
    if (!is_in_layer) {
      of_other_parts.push_back(Printable(tensor.name).text());
      continue;
    }
    fail({ErrorCode::unsupported, fmt::format("{}: tensor '{}' is not part of a '{}' model as it is supported here",
                                              file_.path(), Printable(tensor.name), family_)});
  }
  if (!of_other_parts.empty() && options_.notes)
    options_.notes(
        {.warning = true,
         .text = fmt::format("{}: {} tensors are of no part that is computed here, and are not read, as '{}'",
                             file_.path(), of_other_parts.size(), of_other_parts.front())});
}

void TensorReader::finish() {
  note_speed();
  if (!cache_.is_used() || cache_.has_model()) return;
  if (!file_.check_unchanged()) return;             // read_with_cache() says why; nothing of it is kept
  for (const TensorInfo& tensor : file_.tensors())  // redundant tensors, which are not read
    if (!hashed_.contains(tensor.name)) source_hash_ += tensor_hash(*options_.team, tensor);
  cache_.keep(packed_, source_hash_);
}

const TensorInfo* TensorReader::find(const std::string& name, const std::vector<std::uint64_t>& shape) {
  if (failed()) return nullptr;
  const TensorInfo* tensor = file_.find_tensor(name);
  if (!tensor) {
    fail_model(fmt::format("tensor '{}' is missing", name));
    return nullptr;
  }
  std::vector<std::uint64_t> actual = tensor->shape;
  while (actual.size() > shape.size() && actual.back() == 1) actual.pop_back();
  while (actual.size() < shape.size()) actual.push_back(1);
  if (actual != shape) {
    fail_model(fmt::format("tensor '{}' has shape {}; the metadata ask for {}", name, shape_text(tensor->shape),
                           shape_text(shape)));
    return nullptr;
  }
  used_.insert(name);
  return tensor;
}

Result<PackedMatrix> TensorReader::pack(const TensorInfo& tensor, std::span<const std::byte> file_rows, MatrixForm form,
                                        const MatrixReading& how) {
  std::vector<std::byte> gathered, interleaved;
  if (how.part && how.part->run != 0) {
    const std::size_t row_bytes = tensor.bytes.size() / how.part->of;
    gathered = every_other_run(file_rows, how.part->run * row_bytes);
    file_rows = gathered;
  }
  if (how.interleave_head != 0) {
    interleaved = interleave(file_rows, form.rows, how.interleave_head, how.interleave_rotated);
    file_rows = interleaved;
  }
  AlignedMemory converted;
  if (tensor.converted_from) {
    auto rows_of = convert_rows(*options_.team, tensor, file_rows, form.rows);
    if (!rows_of) return rows_of.error();
    converted = std::move(*rows_of);
    file_rows = {converted.data(), converted.size()};
  }
  if (how.multiplied && is_ternary_choice(form.type))
    form.layout = kernels::ternary_layout_for(ternary_, form.type, file_rows.data(), form.rows, form.k);
  else if (how.multiplied)
    form.layout = kernels::layout_for(kernels_of(options_), form.type, file_rows.data(), form.rows, form.k);
  auto packed = PackedMatrix::pack(*options_.team, form, file_rows, options_.memory_policy);
  if (!packed && packed.error().code == ErrorCode::bad_model) return Error{ErrorCode::bad_model, not_finite(tensor)};
  return packed;
}

// The preferred layout; the weights may not allow it.
kernels::Layout TensorReader::wanted_layout(kernels::WeightType type) const {
  return is_ternary_choice(type) ? ternary_ : kernels_of(options_).layout(type);
}
// Whether ternary_ applies. Panels mean no choice: the kernels' preferred layout is used.
bool TensorReader::is_ternary_choice(kernels::WeightType type) const {
  return kernels::is_ternary(type) && ternary_ != kernels::Layout::panels;
}

float TensorReader::scale_of(const std::string& matrix_name) {
  const std::string name = matrix_name.substr(0, matrix_name.rfind('.')) + ".scale";
  if (!scale_tensors_ || !has(name)) return 1.0f;
  const std::vector<float> values = vector(name, 1);
  return values.empty() ? 1.0f : values[0];
}

void TensorReader::hash(std::span<const std::byte> bytes) {
  weights_.content_hash = combine_hashes(weights_.content_hash, checksum(*options_.team, bytes));
}

void TensorReader::done_with(const TensorInfo& tensor, std::uint64_t bytes) {
  if (cache_.is_used() && !cache_.has_model() && hashed_.insert(tensor.name).second)
    source_hash_ += tensor_hash(*options_.team, tensor);
  file_.drop_pages(tensor.bytes);
  if (Status unchanged = file_.check_unchanged(); !unchanged) return fail(unchanged.error());
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
}

void TensorReader::note_speed() const {
  if (!options_.notes) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  options_.notes({.warning = false,
                  .text = cache_.has_model()
                              ? fmt::format("read {} from {}", speed_text(weights_.bytes, seconds), cache_.path())
                              : "packed " + speed_text(total_bytes_, seconds)});
}

std::string speed_text(std::uint64_t bytes, double seconds) {
  const bool large = bytes >= 100'000'000;
  const double amount = static_cast<double>(bytes) / (large ? 1e9 : 1e6);
  const char* const unit = large ? "GB" : "MB";
  return fmt::format("{:.2f} {} of weights in {:.2f} s ({:.1f} {}/s)", amount, unit, seconds,
                     amount / std::max(seconds, 1e-9), unit);
}

std::string model_name(const ModelFile& file) {
  const std::string name = Metadata(file, "general").string("name");
  return Printable(name.empty() ? name_after_file(file.path()) : name, kMaxModelNameBytes).text();
}

std::string describe_types(const ModelFile& file) {
  std::map<std::string_view, std::size_t> counts;
  for (const TensorInfo& tensor : file.tensors()) ++counts[tensor.file_type().name];
  std::vector<std::pair<std::string_view, std::size_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : order) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", name, count);
  return text;
}

std::uint64_t count_parameters(const ModelFile& file) {
  std::uint64_t count = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name.starts_with("rope_f")) continue;  // rope_freqs, rope_factors_long and _short
    count += tensor.columns() * tensor.rows();
  }
  return count;
}

Result<std::uint32_t> vocabulary_size(const ModelFile& file) {
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::bad_model, fmt::format("{}: {}", file.path(), what)};
  };
  if (!embedding) return bad("tensor 'token_embd.weight' is missing");
  if (embedding->rows() > kMaxVocabulary) return bad(fmt::format("a vocabulary of {} tokens", embedding->rows()));
  return static_cast<std::uint32_t>(embedding->rows());
}

}  // namespace troupe::engine
