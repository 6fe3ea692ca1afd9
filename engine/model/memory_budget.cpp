#include "engine/model/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "cache/group.h"
#include "engine/formats/metadata.h"
#include "engine/machine/machine.h"
#include "engine/model/load_choices.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {
namespace {

constexpr double kBudgetShare = 0.6;

// Upper bounds of the tokenizers' memory, with the allocator's overhead.
constexpr std::uint64_t kTokenBytes = 256;       // strings, and entries in several tables
constexpr std::uint64_t kTextCopies = 4;         // of a token's text: as listed, as a piece, and while both are made
constexpr std::uint64_t kSpecialByteBytes = 16;  // entries and strings of two sorted lists
constexpr std::uint64_t kMergeBytes = 64;        // a pair in a hash table

// The most rows of one sequence in a step that the plan allows for; a larger chunk waits for blocks of groups with a
// window.
constexpr std::uint32_t kChunk = 1024;
// A block without bytes is only an id, which costs some 200 bytes in the prefix tree.
constexpr std::uint64_t kMaxNames = 1u << 16;
constexpr std::uint64_t kNameBytes = 200;
constexpr std::uint64_t kSnapshotsPerSequence = 4;
constexpr std::uint64_t kMinSnapshots = 64;

// Whether tokens of this tokenizer.ggml.token_type are searched for in every text.
bool is_special(std::int64_t type) { return type == 2 || type == 3 || type == 4; }

template <class... T>
Error no_room(fmt::format_string<T...> message, T&&... values) {
  return {ErrorCode::out_of_memory, fmt::format(message, std::forward<T>(values)...)};
}

Error too_small(const ModelFile& file, std::uint64_t budget, const std::string& why) {
  return {ErrorCode::out_of_memory,
          fmt::format("{}: a memory budget of {} is too small: {}; use a larger --memory or a smaller model",
                      file.path(), mebibytes(budget), why)};
}

}  // namespace

std::uint64_t default_memory_budget() {
  return static_cast<std::uint64_t>(kBudgetShare * static_cast<double>(available_memory()));
}

namespace {

// Whether it is one expert of a layer ("blk.0.ffn_gate.3.weight"), or all of them ("blk.0.ffn_gate_exps.weight").
bool is_of_experts(std::string_view name) {
  if (name.find("_exps.") != std::string_view::npos) return true;
  for (const std::string_view kind : {".ffn_gate.", ".ffn_up.", ".ffn_down."})
    if (const auto at = name.find(kind); at != std::string_view::npos && at + kind.size() < name.size())
      return name[at + kind.size()] >= '0' && name[at + kind.size()] <= '9';
  return false;
}

// Matrices as they are packed: `count` of this shape in one tensor, such as experts. Layout::file: only looked up.
struct PackedTensor {
  const TensorInfo* tensor = nullptr;
  kernels::Layout layout = kernels::Layout::file;
  std::uint64_t count = 0;  // 0: a vector, or several in one, which are kept as float32

  std::uint64_t bytes() const {
    return count == 0 ? tensor->columns() * tensor->rows() * sizeof(float)
                      : count * kernels::packed_bytes(tensor->type, layout, tensor->shape[1], tensor->columns());
  }
};

// Those that the model computes with.
std::vector<PackedTensor> packed_tensors(const ModelFile& file, const kernels::KernelTable& kernels) {
  const bool has_head = file.find_tensor("output.weight") != nullptr;
  const std::uint64_t num_layers = num_layers_of(file);
  std::vector<PackedTensor> all;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!may_be_computed(tensor.name, num_layers)) continue;
    PackedTensor& packed = all.emplace_back(PackedTensor{.tensor = &tensor});
    if (tensor.shape.size() < 2 || (tensor.shape.size() > 2 && tensor.shape[1] == 1)) continue;
    packed.count = tensor.rows() / tensor.shape[1];
    // An embedding that is not also the head is only looked up, and stays in the file's layout.
    if (!has_head || tensor.name != "token_embd.weight") packed.layout = kernels.layout(tensor.type);
  }
  return all;
}

std::uint64_t with_headers(const PackedTensor& packed) { return packed.bytes() + packed.count * kPackedHeaderBytes; }

}  // namespace

std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels) {
  std::uint64_t bytes = 0;
  for (const PackedTensor& each : packed_tensors(file, kernels)) bytes += with_headers(each);
  return bytes;
}

std::uint64_t packed_expert_bytes(const ModelFile& file, const kernels::KernelTable& kernels) {
  std::uint64_t bytes = 0;
  for (const PackedTensor& each : packed_tensors(file, kernels))
    if (is_of_experts(each.tensor->name)) bytes += with_headers(each);
  return bytes;
}

std::vector<MatrixWork> packed_matrices(const ModelFile& file, const kernels::KernelTable& kernels,
                                        std::uint32_t num_experts, std::uint32_t num_experts_used) {
  const bool has_head = file.find_tensor("output.weight") != nullptr;
  std::vector<MatrixWork> all;
  for (const PackedTensor& each : packed_tensors(file, kernels)) {
    const bool is_embedding = each.tensor->name == "token_embd.weight";
    if (each.count == 0 || (is_embedding && has_head)) continue;
    const bool is_expert = num_experts != 0 && is_of_experts(each.tensor->name);
    all.push_back({.type = each.tensor->type,
                   .layout = each.layout,
                   .outputs_only = is_embedding || each.tensor->name == "output.weight",
                   .num_experts = is_expert ? num_experts : 1,
                   .num_experts_used = is_expert ? num_experts_used : 1,
                   .multiply_adds = each.tensor->rows() * each.tensor->columns(),
                   .bytes = each.bytes()});
  }
  return all;
}

std::uint64_t expected_vocabulary_bytes(const ModelFile& file) {
  Metadata keys(file, "tokenizer.ggml");  // what it refuses, make_tokenizer refuses as well
  const auto* const texts = keys.strings("tokens");
  if (!texts) return 0;
  const auto types = keys.integers("token_type");
  std::uint64_t bytes = texts->size() * kTokenBytes;
  for (std::size_t i = 0; i < texts->size(); ++i) {
    const std::uint64_t length = (*texts)[i].size();
    const bool special = types && i < types->size() && is_special((*types)[i]);
    bytes += length * (kTextCopies + (special ? kSpecialByteBytes : 0));
  }
  if (const auto* const merges = keys.strings("merges")) bytes += merges->size() * kMergeBytes;
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

std::uint32_t blocks_needed(const CacheGroup& group, std::uint32_t context) {
  const std::uint32_t all = blocks_for(context);
  return group.window == 0 ? all : std::min(all, cache::most_window_blocks(group.window, kChunk));
}

std::uint64_t least_cache_bytes(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options) {
  std::uint64_t blocks = 0;
  for (const CacheGroup& group : spec.groups)
    blocks += (options.num_blocks ? options.num_blocks : blocks_needed(group, context)) * group.bytes_per_block;
  if (!spec.has_state()) return blocks;
  // Live states get up to a quarter of the memory, snapshots of chosen number a quarter of the rest.
  const std::uint64_t snapshots = options.num_snapshots * spec.state.snapshot_bytes(options.state_type);
  return blocks * 16 / 9 + 4 * (spec.state.bytes() + snapshots) / 3 + 1;
}

Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                             std::uint64_t left) {
  const std::uint64_t per_context = blocks_for(context);
  const std::uint64_t max_sequences = std::max(1u, options.max_sequences);
  // For one whole context, or the number in the options. Of groups with a window and without: the bytes of a window,
  // and the bytes that each block of positions adds.
  std::uint64_t needed = 0, fixed = 0, growing = 0;
  for (const CacheGroup& group : spec.groups) {
    const std::uint64_t count = options.num_blocks ? options.num_blocks : blocks_needed(group, context);
    needed += count * group.bytes_per_block;
    (group.window ? fixed : growing) += group.bytes_per_block * (group.window ? count : 1);
  }
  const bool names_only = fixed + growing == 0;
  CachePlan plan;

  std::uint64_t for_blocks = left;
  if (spec.has_state()) {
    const std::uint64_t room = left / 4 / spec.state.bytes();
    plan.num_states = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, max_sequences));
    const std::uint64_t live = plan.num_states * spec.state.bytes();
    for_blocks -= std::min(for_blocks, live);
    const std::uint64_t share = for_blocks / (names_only ? 2 : 4);
    const std::uint64_t each = spec.state.snapshot_bytes(options.state_type);
    plan.num_snapshots = options.num_snapshots;
    if (plan.num_snapshots == 0)
      plan.num_snapshots = static_cast<std::uint32_t>(
          std::min(share / each, std::max(kMinSnapshots, kSnapshotsPerSequence * max_sequences)));
    if (live > left)
      return no_room("the state of one sequence takes {}; use a larger --memory or a smaller model",
                     mebibytes(spec.state.bytes()));
    if (plan.num_snapshots > for_blocks / each)
      return no_room("{} snapshots of {} each do not fit; use fewer, or a larger --memory", plan.num_snapshots,
                     mebibytes(each));
    for_blocks -= plan.num_snapshots * each;
  }

  if (needed > for_blocks) {
    const std::uint64_t num_blocks = options.num_blocks ? options.num_blocks : per_context;
    const std::uint64_t longest = fixed > for_blocks || growing == 0 ? 0 : (for_blocks - fixed) / growing * kBlockSize;
    const std::string remedy = longest > 0 ? fmt::format("use -c {} or less, or a larger --memory", longest)
                                           : "use a larger --memory or a smaller model";
    return no_room("the KV cache of {} tokens takes {}; {}", num_blocks * kBlockSize, mebibytes(needed), remedy);
  }
  if (names_only && options.num_blocks > for_blocks / kNameBytes)
    return no_room("the names of {} KV blocks take {}; use fewer, or a larger --memory", options.num_blocks,
                   mebibytes(options.num_blocks * kNameBytes));
  const auto num_blocks_of = [&](const CacheGroup& group) -> std::uint64_t {
    if (options.num_blocks) return options.num_blocks;
    if (names_only) return std::max(per_context, std::min(per_context * max_sequences, kMaxNames));
    if (spec.groups.size() == 1)
      return std::min<std::uint64_t>({for_blocks / growing, per_context * max_sequences, kNoBlock - 1});
    // All groups get room for the same number of sequences of the whole context.
    const double sequences =
        std::min(static_cast<double>(for_blocks) / static_cast<double>(needed), static_cast<double>(max_sequences));
    return static_cast<std::uint64_t>(
        std::min<double>(sequences * blocks_needed(group, context), static_cast<double>(kNoBlock - 1)));
  };
  for (const CacheGroup& group : spec.groups)
    plan.num_blocks.push_back(static_cast<std::uint32_t>(num_blocks_of(group)));
  return plan;
}

}  // namespace troupe::engine
