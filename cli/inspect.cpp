// troupe inspect: what a model file holds, and what serving it would cost.
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "cache/ids.h"
#include "cli/exit_code.h"
#include "cli/model_options.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "engine/encoder.h"
#include "engine/memory_budget.h"
#include "engine/model.h"
#include "engine/model_file.h"
#include "engine/tokenizer.h"
#include "kernels/weight_type.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownElements = 6;  // of an array
constexpr std::size_t kShownBytes = 200;   // of a string

// A value in one line: long strings and arrays are cut.
struct Abbreviate {
  ordered_json operator()(const std::string& text) const {
    return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
  }
  template <class T>
  ordered_json operator()(const std::vector<T>& values) const {
    ordered_json array = ordered_json::array();
    for (const T& value : values) {
      if (array.size() == kShownElements) break;
      array.push_back(value);
    }
    return array;
  }
  template <class T>
  ordered_json operator()(const T& value) const {
    return value;
  }
};

// Elements of an array; 0 for a scalar.
struct CountElements {
  template <class T>
  std::size_t operator()(const std::vector<T>& values) const {
    return values.size();
  }
  template <class T>
  std::size_t operator()(const T&) const {
    return 0;
  }
};

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t dimension : shape) text += (text.empty() ? "" : " x ") + std::to_string(dimension);
  return text.empty() ? "1" : text;
}

// "TQ2_0 x 42, F32 x 31": most frequent first.
std::string weight_types(const engine::ModelFile& file) {
  std::map<std::string, int> counts;
  for (const engine::TensorInfo& tensor : file.tensors()) ++counts[std::string(tensor.file_type().name)];
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [type, count] : sorted) text += (text.empty() ? "" : ", ") + type + " x " + std::to_string(count);
  return text;
}

std::uint64_t num_parameters(const engine::ModelFile& file) {
  std::uint64_t count = 0;
  for (const engine::TensorInfo& tensor : file.tensors()) count += tensor.columns() * tensor.rows();
  return count;
}

// What a token of context takes.
struct PerToken {
  std::uint64_t num_layers = 0;
  kernels::KvShape kv;               // of a layer, whatever the type; no heads: unknown
  std::uint64_t rotation_bytes = 0;  // of the table of rotations, which sequences share
};

// By the metadata that all attention models in GGUF share; zeros where they are missing.
PerToken per_token(const engine::ModelFile& file) {
  const std::string* architecture = file.string("general.architecture");
  if (!architecture) return {};
  const auto get = [&](const char* key) { return file.integer(*architecture + key).value_or(0); };
  const std::int64_t layers = get(".block_count"), heads = get(".attention.head_count"), dim = get(".embedding_length");
  const std::int64_t kv_heads = file.integer(*architecture + ".attention.head_count_kv").value_or(heads);
  std::int64_t head_dim = get(".attention.key_length");
  if (head_dim == 0 && heads > 0) head_dim = dim / heads;
  const std::int64_t rotated = file.integer(*architecture + ".rope.dimension_count").value_or(head_dim);
  constexpr std::int64_t kSane = 1 << 24;
  for (const std::int64_t value : {layers, kv_heads, head_dim})
    if (value <= 0 || value > kSane) return {};
  return {
      .num_layers = static_cast<std::uint64_t>(layers),
      .kv = {.num_kv_heads = static_cast<std::uint32_t>(kv_heads), .head_dim = static_cast<std::uint32_t>(head_dim)},
      .rotation_bytes = static_cast<std::uint64_t>(std::clamp<std::int64_t>(rotated, 0, head_dim)) * sizeof(float)};
}

std::string served_by(const engine::ModelFile& file) {
  std::string names;
  for (const engine::Family& family : engine::families()) {
    if (family.accepts(file)) return std::string(family.name);
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  if (engine::is_encoder(file)) return *file.string("general.architecture") + " (encoder)";
  return "none (there are " + names + ", and the encoders bert and nomic-bert)";
}

struct KvCost {
  std::string type;
  std::uint64_t bytes_per_token = 0;
  std::uint64_t longest_context = 0;  // of one sequence alone, in whole blocks
  std::uint64_t num_sequences = 0;    // of Cost::context tokens at once
};

struct Cost {
  std::uint64_t memory = 0;   // the budget, in bytes
  std::uint64_t weights = 0;  // in memory, packed
  std::uint64_t trained = 0;  // context in tokens
  std::uint64_t context = 0;  // --ctx-size, else the trained one
  std::vector<KvCost> kv;
};

// As the loader divides its budget, so that the longest context here is the longest that `serve -c` takes.
Cost cost_of(const engine::ModelFile& file, const config::Options& options, const kernels::KernelTable& kernels) {
  Cost cost;
  cost.memory = options.memory.count ? options.memory.count : engine::default_memory_budget();
  cost.weights = engine::packed_weight_bytes(file, kernels);
  if (const std::string* architecture = file.string("general.architecture"))
    cost.trained = static_cast<std::uint64_t>(file.integer(*architecture + ".context_length").value_or(0));
  cost.context = options.ctx_size ? static_cast<std::uint64_t>(options.ctx_size) : cost.trained;
  if (engine::is_encoder(file)) return cost;  // keeps nothing between texts
  PerToken token = per_token(file);
  if (token.num_layers == 0) return cost;
  for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8}) {
    token.kv.type = type;
    KvCost kv{.type = std::string(kernels::name(type)),
              .bytes_per_token = token.num_layers * token.kv.layer_bytes() / kBlockSize};
    kv.longest_context = kBlockSize * engine::blocks_that_fit(cost.memory, cost.weights,
                                                              kBlockSize * (kv.bytes_per_token + token.rotation_bytes));
    const std::uint64_t blocks = engine::blocks_that_fit(
        cost.memory, cost.weights + cost.context * token.rotation_bytes, kBlockSize * kv.bytes_per_token);
    if (cost.context > 0) kv.num_sequences = blocks / ((cost.context + kBlockSize - 1) / kBlockSize);
    cost.kv.push_back(std::move(kv));
  }
  return cost;
}

// Empty also for a vocabulary that cannot be read: what can be told of the file is told.
std::vector<TokenId> end_ids(const engine::ModelFile& file) {
  const auto tokenizer = engine::make_tokenizer(file);
  if (!tokenizer) return {};
  return engine::find_end_ids(file, tokenizer->get(), std::numeric_limits<std::int32_t>::max());
}

void print_json(const engine::ModelFile& file, const Cost& cost) {
  ordered_json object{{"path", file.path()},
                      {"file_bytes", file.file_bytes()},
                      {"num_parameters", num_parameters(file)},
                      {"weight_types", weight_types(file)},
                      {"family", served_by(file)},
                      {"end_ids", end_ids(file)},
                      {"memory_budget", cost.memory},
                      {"weight_bytes", cost.weights},
                      {"kv_bytes_per_token", ordered_json::object()},
                      {"longest_context", ordered_json::object()},
                      {"metadata", ordered_json::object()},
                      {"tensors", ordered_json::array()}};
  for (const KvCost& kv : cost.kv) {
    object["kv_bytes_per_token"][kv.type] = kv.bytes_per_token;
    object["longest_context"][kv.type] = kv.longest_context;
  }
  for (const auto& [key, value] : file.metadata()) {
    const std::size_t count = std::visit(CountElements{}, value);
    ordered_json shown = std::visit(Abbreviate{}, value);
    object["metadata"][key] = count > kShownElements ? ordered_json{{"length", count}, {"first", shown}} : shown;
  }
  for (const engine::TensorInfo& tensor : file.tensors())
    object["tensors"].push_back({{"name", tensor.name}, {"type", tensor.file_type().name}, {"shape", tensor.shape}});
  std::cout << object.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_text(const engine::ModelFile& file, const Cost& cost) {
  std::string ends;
  for (const TokenId id : end_ids(file)) ends += (ends.empty() ? "" : ", ") + std::to_string(id);
  std::vector<std::pair<std::string, std::string>> lines{
      {"file", file.path() + ", " + human_bytes(file.file_bytes())},
      {"family", served_by(file)},
      {"weights", human_count(num_parameters(file)) + " parameters, " + weight_types(file) + "; " +
                      human_bytes(cost.weights) + " in memory"},
      {"trained context", std::to_string(cost.trained) + " tokens"},
      {"answers end at", ends.empty() ? "no token that is known" : "token " + ends},
      {"memory budget", human_bytes(cost.memory)},
  };
  for (const KvCost& kv : cost.kv) {
    std::string fits = std::to_string(kv.bytes_per_token) + " bytes per token; the longest context that fits is " +
                       std::to_string(kv.longest_context) + " tokens";
    if (cost.context > 0)
      fits += "; " + std::to_string(kv.num_sequences) + " sequences of " + std::to_string(cost.context);
    lines.emplace_back("KV cache " + kv.type, fits);
  }
  std::cout << aligned(lines) << "\nMetadata (" << file.metadata().size() << ")\n";
  std::vector<std::pair<std::string, std::string>> metadata;
  for (const auto& [key, value] : file.metadata()) {
    const std::size_t count = std::visit(CountElements{}, value);
    std::string shown = dump(std::visit(Abbreviate{}, value));
    if (count > kShownElements) shown += " ... (" + std::to_string(count) + ")";
    metadata.emplace_back("  " + key, shown);
  }
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const engine::TensorInfo& tensor : file.tensors())
    tensors.emplace_back("  " + tensor.name, std::string(tensor.file_type().name) + "  " + shape_text(tensor.shape) +
                                                 "  " + human_bytes(tensor.bytes.size()));
  std::cout << aligned(metadata) << "\nTensors (" << file.tensors().size() << ")\n" << aligned(tensors);
}

}  // namespace

Result<int> inspect(const config::Parsed& parsed) {
  config::Options options = parsed.options;
  if (parsed.arguments.size() > 1)
    return Error{ErrorCode::invalid_argument, "one file at a time; '" + parsed.arguments[1] + "' is a second one"};
  if (!parsed.arguments.empty()) options.model = parsed.arguments.front();
  const auto load = load_options(parsed);
  if (!load) return load.error();
  const kernels::KernelTable* kernels =
      load->kernels.empty() ? &kernels::best_table() : kernels::find_table(load->kernels);
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  const Cost cost = cost_of(**file, options, *kernels);
  if (options.json)
    print_json(**file, cost);
  else
    print_text(**file, cost);
  return kExitOk;
}

}  // namespace troupe::cli
