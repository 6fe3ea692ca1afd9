// Takes tensors out of a model file by name and shape, and packs them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/result.h"
#include "engine/weights/language_model.h"
#include "engine/weights/ternary_choice.h"
#include "engine/weights/weights_cache.h"

namespace troupe::engine {

// A part of a tensor, where several matrices lie in one: its rows [first, first + rows asked for) of `of` rows in all
// (rows of all experts count).
struct TensorPart {
  std::uint64_t first = 0;
  std::uint64_t of = 0;
  std::uint64_t num_experts = 0;  // the extent of a third dimension; 0: there is none
};

// The order of q and k rows that makes rotating (i, i + rotated/2) a rotation of neighbours: scores are sums over a
// head's elements, so a permutation that q and k share changes nothing but their order. Row `row` of the result is row
// interleaved_row(row, ...) of the tensor.
[[nodiscard]] constexpr std::uint64_t interleaved_row(std::uint64_t row, std::uint32_t head_dim,
                                                      std::uint32_t rotated) {
  const std::uint64_t element = row % head_dim;
  if (element >= rotated) return row;
  return row - element + element / 2 + (element % 2) * (rotated / 2);
}

// How a matrix is taken.
struct MatrixReading {
  bool multiplied = true;                // false: only looked up, row by row
  std::uint32_t interleave_head = 0;     // rows as interleaved_row says, heads of so many; 0: as they are
  std::uint32_t interleave_rotated = 0;  // of a head
  std::optional<TensorPart> part;
};

// The first failure sticks, later calls do nothing. Errors: bad_model, unsupported, out_of_memory. What is read is
// counted and hashed in `weights`. By the loading thread.
class TensorReader {
 public:
  // `scale_tensors`: "NAME.scale" of one element may belong to a matrix. All must outlive the reader.
  TensorReader(const ModelFile& file, std::string_view family, bool scale_tensors, const ModelOptions& options,
               kernels::Layout ternary, WeightsCache& cache, ModelWeights& weights);

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  // With the file's name in front.
  void fail_model(const std::string& what) { fail({ErrorCode::bad_model, file_.path() + ": " + what}); }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  const ModelFile& file() const { return file_; }

  // `count` numbers as float32, whatever dimensions they have in the file (`shape`; empty: one).
  std::vector<float> vector(const std::string& name, std::uint64_t count, std::vector<std::uint64_t> shape = {});
  // Empty where the file has no such tensor.
  std::vector<float> optional_vector(const std::string& name, std::uint64_t count);
  // A matrix of `rows` outputs and `k` inputs.
  PackedMatrix matrix(const std::string& name, std::uint64_t rows, std::uint64_t k, const MatrixReading& how = {});
  // What the file has, and nobody computes with.
  void skip(const std::string& name) {
    if (has(name)) used_.insert(name);
  }
  // token_embd, output_norm.weight and, where it is there, output: into the weights.
  void read_embedding_and_head(std::uint64_t vocab_size, std::uint64_t dim);

  // Whatever has not been asked for means that the file computes something else.
  void refuse_unknown_tensors();
  // Once all has been read: a line for the log, and packed weights to the cache.
  void finish();

 private:
  const TensorInfo* find(const std::string& name, const std::vector<std::uint64_t>& shape);
  Result<PackedMatrix> pack(const TensorInfo& tensor, std::span<const std::byte> file_rows, std::uint64_t rows,
                            std::uint64_t k, float scale, const MatrixReading& how);
  kernels::Layout wanted_layout(kernels::WeightType type) const;
  bool is_ternary_choice(kernels::WeightType type) const;
  float scale_of(const std::string& matrix_name);
  void hash(std::span<const std::byte> bytes);
  void done_with(const TensorInfo& tensor, std::uint64_t bytes);
  void note_speed() const;

  const ModelFile& file_;
  const std::string family_;
  const bool scale_tensors_;
  const ModelOptions& options_;
  const kernels::Layout ternary_;  // panels, or lookup or trits where the kernels have them
  WeightsCache& cache_;
  ModelWeights& weights_;
  std::vector<WeightsCache::Matrix> packed_;
  std::uint64_t source_hash_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::set<std::string, std::less<>> used_;    // tensors asked for
  std::set<std::string, std::less<>> hashed_;  // of them, those in source_hash_
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::optional<Error> error_;
};

// general.name, else the file's name.
[[nodiscard]] std::string model_name(const ModelFile& file);
// "Q4_K x 135, Q6_K x 21, F32 x 45": most frequent first.
[[nodiscard]] std::string describe_types(const ModelFile& file);
[[nodiscard]] std::uint64_t count_parameters(const ModelFile& file);
// The rows of token_embd.weight. Error: bad_model.
[[nodiscard]] Result<std::uint32_t> vocabulary_size(const ModelFile& file);

// read(layout of ternary weights, cache of packed ones) -> Result<...>, called again where the cache turns out to be
// damaged: what was read before is thrown away.
template <class Read>
auto read_with_cache(const ModelFile& file, const ModelOptions& options, const Read& read)
    -> decltype(read(kernels::Layout(), std::declval<WeightsCache&>())) {
  const auto ternary = choose_ternary_layout(file, options);
  if (!ternary) return ternary.error();
  WeightsCache cache(options.weights_cache, file, options.kernels->name, *ternary, *options.team, options.notes);
  const bool cached = cache.has_model();
  auto weights = read(*ternary, cache);
  // The file was one whole, and is written as one again.
  if (!weights && cached && !cache.has_model()) weights = read(*ternary, cache);
  return weights;
}

}  // namespace troupe::engine
