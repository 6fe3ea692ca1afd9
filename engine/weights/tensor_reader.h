// Reads tensors from a model file by name and shape, and packs them.
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
#include "engine/compute/team.h"
#include "engine/weights/language_model.h"
#include "engine/weights/ternary_choice.h"
#include "engine/weights/weights_cache.h"

namespace troupe::engine {

// A part of a tensor that holds several matrices: the rows from `first` on, of `of` rows in total (over all experts).
// Of two matrices that take turns every `run` rows it is those of one.
struct TensorPart {
  std::uint64_t first = 0;
  std::uint64_t of = 0;
  std::uint64_t num_experts = 0;  // the size of the third dimension; 0: there is none
  std::uint64_t run = 0;          // rows; 0: one matrix's rows follow each other
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

// How a matrix is read.
struct MatrixReading {
  bool multiplied = true;                // false: only looked up, row by row
  std::uint32_t interleave_head = 0;     // head size: rows are reordered by interleaved_row; 0: file order
  std::uint32_t interleave_rotated = 0;  // rotated elements of a head
  std::optional<TensorPart> part;
  float scale = 1.0f;  // multiplied with every output
};

// The first error is kept and later calls do nothing. Errors: bad_model, unsupported, out_of_memory. Sizes and hashes
// of the tensors read are added to `weights`. Used by the loading thread.
class TensorReader {
 public:
  // `scale_tensors`: a matrix may have a tensor "NAME.scale" of one element. All arguments must outlive the reader.
  TensorReader(const ModelFile& file, std::string_view family, bool scale_tensors, const LoadOptions& options,
               kernels::Layout ternary, WeightsCache& cache, ModelWeights& weights);

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  // Puts the file's name before the message.
  void fail_model(const std::string& what) { fail({ErrorCode::bad_model, file_.path() + ": " + what}); }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  const ModelFile& file() const { return file_; }

  // Reads `count` numbers as float32 from a tensor of dimensions `shape` (empty: one dimension).
  std::vector<float> vector(const std::string& name, std::uint64_t count, const std::vector<std::uint64_t>& shape = {});
  // Empty if the file has no such tensor.
  std::vector<float> optional_vector(const std::string& name, std::uint64_t count);
  // A matrix of `rows` outputs and `k` inputs.
  PackedMatrix matrix(const std::string& name, std::uint64_t rows, std::uint64_t k, const MatrixReading& how = {});
  // Marks a tensor as known although it is not used.
  void skip(const std::string& name) {
    if (has(name)) used_.insert(name);
  }
  // Reads token_embd, the output norm and, if present, output into the weights.
  void read_embedding_and_head(std::uint64_t vocab_size, std::uint64_t dim,
                               const std::string& output_norm = "output_norm.weight");

  // Fails if a layer has tensors that were not read: then the model computes something else. Others are noted.
  void refuse_unknown_tensors();
  // Called once all is read: writes a line to the log, and packed weights to the cache.
  void finish();

 private:
  const TensorInfo* find(const std::string& name, const std::vector<std::uint64_t>& shape);
  // form: with the wanted layout; the packed one may differ.
  Result<PackedMatrix> pack(const TensorInfo& tensor, std::span<const std::byte> file_rows, MatrixForm form,
                            const MatrixReading& how);
  kernels::Layout wanted_layout(kernels::WeightType type) const;
  bool is_ternary_choice(kernels::WeightType type) const;
  float scale_of(const std::string& matrix_name);
  void hash(std::span<const std::byte> bytes);
  void done_with(const TensorInfo& tensor, std::uint64_t bytes);
  void note_speed() const;

  const ModelFile& file_;
  const std::string family_;
  const bool scale_tensors_;
  const LoadOptions& options_;
  const kernels::Layout ternary_;  // panels, lookup or trits
  WeightsCache& cache_;
  ModelWeights& weights_;
  std::vector<WeightsCache::Matrix> packed_;
  std::uint64_t source_hash_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::set<std::string, std::less<>> used_;    // tensors read
  std::set<std::string, std::less<>> hashed_;  // those of used_ in source_hash_
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::optional<Error> error_;
};

// general.name, else that of the file: name_after_file().
[[nodiscard]] std::string model_name(const ModelFile& file);
// "1.17 GB of weights in 0.52 s (2.3 GB/s)"; below 0.1 GB in MB.
[[nodiscard]] std::string speed_text(std::uint64_t bytes, double seconds);
// "Q4_K x 135, Q6_K x 21, F32 x 45": most frequent first.
[[nodiscard]] std::string describe_types(const ModelFile& file);
[[nodiscard]] std::uint64_t count_parameters(const ModelFile& file);
// The rows of token_embd.weight. Error: bad_model.
[[nodiscard]] Result<std::uint32_t> vocabulary_size(const ModelFile& file);

// Calls read(layout of ternary weights, weights cache) -> Result<...>, and again if the cache turns out to be damaged:
// the first result is then discarded. Error of its own: bad_model, if the file changed meanwhile.
template <class Read>
auto read_with_cache(const ModelFile& file, const LoadOptions& options, const Read& read)
    -> decltype(read(kernels::Layout(), std::declval<WeightsCache&>())) {
  const auto ternary = choose_ternary_layout(file, options);
  if (!ternary) return ternary.error();
  WeightsCache cache(options.weights_cache, file, options.kernels, *ternary, *options.team, options.notes);
  const bool cached = cache.has_model();
  auto weights = read(*ternary, cache);
  // The cache file was dropped as damaged: read again, this time packing and writing a new one.
  if (!weights && cached && !cache.has_model()) weights = read(*ternary, cache);
  // Whatever else is wrong with a file that was cut off meanwhile follows from that.
  if (const Status unchanged = file.check_unchanged(); !unchanged) return unchanged.error();
  return weights;
}

// Whether read(options, cache) -> Result<...> finds its tensors in the file: with options.names_only.
template <class Read>
Status check_tensors(const ModelFile& file, LoadOptions options, const Read& read) {
  Team team(1);
  options.kernels = "reference";
  options.team = &team;
  options.memory = 0;
  options.weights_cache = {};
  options.progress = {};
  options.notes = {};
  options.names_only = true;
  WeightsCache cache(options.weights_cache, file, options.kernels, kernels::Layout::panels, team, {});
  const auto found = read(options, cache);
  return found ? Status(Ok{}) : found.error();
}

}  // namespace troupe::engine
