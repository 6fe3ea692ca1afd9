#include "engine/model/memory_budget.h"

#include <fmt/format.h>

#include <string>

#include "engine/machine/machine.h"
#include "engine/model/load_choices.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {
namespace {

constexpr double kBudgetShare = 0.6;

// Upper bounds of the tokenizers' memory, with the allocator's overhead.
constexpr std::uint64_t kTokenBytes = 256;       // strings, and entries in several tables
constexpr std::uint64_t kTextCopies = 4;         // of a token's text: as listed, as a piece, and while both are made
constexpr std::uint64_t kSpecialByteBytes = 72;  // a node of a trie, and its edge in a hash table
constexpr std::uint64_t kMergeBytes = 64;        // a pair in a hash table

// Whether tokens of this tokenizer.ggml.token_type are searched for in every text.
bool is_special(std::int64_t type) { return type == 2 || type == 3 || type == 4; }

Error too_small(const ModelFile& file, std::uint64_t budget, const std::string& why) {
  return {ErrorCode::out_of_memory,
          fmt::format("{}: a memory budget of {} is too small: {}; use a larger --memory or a smaller model",
                      file.path(), mebibytes(budget), why)};
}

}  // namespace

std::uint64_t default_memory_budget() {
  return static_cast<std::uint64_t>(kBudgetShare * static_cast<double>(available_memory()));
}

std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels) {
  const bool has_head = file.find_tensor("output.weight") != nullptr;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.shape.size() < 2 || (tensor.shape.size() > 2 && tensor.shape[1] == 1)) {
      bytes += tensor.columns() * tensor.rows() * sizeof(float);  // vectors, or several in one, are kept as float32
      continue;
    }
    // An embedding that is not also the head is only looked up, and stays in the file's layout.
    const bool looked_up = has_head && tensor.name == "token_embd.weight";
    const kernels::Layout layout = looked_up ? kernels::Layout::file : kernels.layout(tensor.type);
    // Several matrices in one tensor, such as experts, are packed separately.
    const std::uint64_t num_matrices = tensor.rows() / tensor.shape[1];
    bytes += num_matrices *
             (kPackedHeaderBytes + kernels::packed_bytes(tensor.type, layout, tensor.shape[1], tensor.columns()));
  }
  return bytes;
}

std::uint64_t expected_vocabulary_bytes(const ModelFile& file) {
  const auto* const texts = file.strings("tokenizer.ggml.tokens");
  if (!texts) return 0;
  const auto* const types = file.integers("tokenizer.ggml.token_type");
  std::uint64_t bytes = texts->size() * kTokenBytes;
  for (std::size_t i = 0; i < texts->size(); ++i) {
    const std::uint64_t length = (*texts)[i].size();
    const bool special = types && i < types->size() && is_special((*types)[i]);
    bytes += length * (kTextCopies + (special ? kSpecialByteBytes : 0));
  }
  if (const auto* const merges = file.strings("tokenizer.ggml.merges")) bytes += merges->size() * kMergeBytes;
  return bytes;
}

Status check_budget(const ModelFile& file, const kernels::KernelTable& kernels, std::uint64_t budget) {
  const std::uint64_t weights = packed_weight_bytes(file, kernels);
  const std::uint64_t vocabulary = expected_vocabulary_bytes(file);
  if (weights <= budget && vocabulary <= budget - weights) return Ok{};
  std::string why = "weights take " + mebibytes(weights);
  if (vocabulary > 0) why += " and the vocabulary up to " + mebibytes(vocabulary);
  return too_small(file, budget, why);
}

Result<std::shared_ptr<const Tokenizer>> make_tokenizer_within(const ModelFile& file, std::uint64_t budget) {
  if (const std::uint64_t bytes = expected_vocabulary_bytes(file); bytes > budget)
    return too_small(file, budget, "the vocabulary takes up to " + mebibytes(bytes));
  return make_tokenizer(file);
}

}  // namespace troupe::engine
