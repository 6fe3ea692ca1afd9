// troupe inspect: what a model file holds, and what serving it would cost.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cache/ids.h"
#include "cli/exit_code.h"
#include "cli/model_options.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "engine/machine.h"
#include "engine/model.h"
#include "engine/model_file.h"
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
  for (const engine::TensorInfo& tensor : file.tensors()) ++counts[std::string(kernels::info(tensor.type).name)];
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

// What the KV cache keeps per token, by the metadata that all attention models in GGUF share; 0 where they are missing.
std::uint64_t kv_elements_per_token(const engine::ModelFile& file) {
  const std::string* architecture = file.string("general.architecture");
  if (!architecture) return 0;
  const auto get = [&](const char* key) { return file.integer(*architecture + key).value_or(0); };
  const std::int64_t layers = get(".block_count"), heads = get(".attention.head_count"), dim = get(".embedding_length");
  const std::int64_t kv_heads = file.integer(*architecture + ".attention.head_count_kv").value_or(heads);
  std::int64_t head_dim = get(".attention.key_length");
  if (head_dim == 0 && heads > 0) head_dim = dim / heads;
  constexpr std::int64_t kSane = 1 << 24;
  for (const std::int64_t value : {layers, kv_heads, head_dim})
    if (value <= 0 || value > kSane) return 0;
  return 2 * static_cast<std::uint64_t>(layers) * static_cast<std::uint64_t>(kv_heads * head_dim);
}

std::string served_by(const engine::ModelFile& file) {
  std::string names;
  for (const engine::Family& family : engine::families()) {
    if (family.accepts(file)) return std::string(family.name);
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  return "none (there are " + names + ")";
}

struct Cost {
  std::uint64_t memory = 0;                                                             // the budget, in bytes
  std::uint64_t trained = 0;                                                            // context in tokens
  std::vector<std::pair<std::string, std::uint64_t>> bytes_per_token, longest_context;  // by KV type
};

Cost cost_of(const engine::ModelFile& file, const config::Options& options) {
  Cost cost;
  cost.memory = options.memory.count ? options.memory.count : engine::available_memory() / 10 * 6;
  if (const std::string* architecture = file.string("general.architecture"))
    cost.trained = static_cast<std::uint64_t>(file.integer(*architecture + ".context_length").value_or(0));
  const std::uint64_t elements = kv_elements_per_token(file);
  const std::uint64_t left = cost.memory > file.file_bytes() ? cost.memory - file.file_bytes() : 0;
  if (elements == 0) return cost;
  for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::f32}) {
    const std::uint64_t bytes = elements * kernels::element_bytes(type);
    cost.bytes_per_token.emplace_back(kernels::name(type), bytes);
    cost.longest_context.emplace_back(kernels::name(type), left / (bytes * kBlockSize) * kBlockSize);
  }
  return cost;
}

void print_json(const engine::ModelFile& file, const Cost& cost) {
  ordered_json object{{"path", file.path()},
                      {"file_bytes", file.file_bytes()},
                      {"num_parameters", num_parameters(file)},
                      {"weight_types", weight_types(file)},
                      {"family", served_by(file)},
                      {"memory_budget", cost.memory},
                      {"kv_bytes_per_token", ordered_json::object()},
                      {"longest_context", ordered_json::object()},
                      {"metadata", ordered_json::object()},
                      {"tensors", ordered_json::array()}};
  for (const auto& [type, bytes] : cost.bytes_per_token) object["kv_bytes_per_token"][type] = bytes;
  for (const auto& [type, tokens] : cost.longest_context) object["longest_context"][type] = tokens;
  for (const auto& [key, value] : file.metadata()) {
    const std::size_t count = std::visit(CountElements{}, value);
    ordered_json shown = std::visit(Abbreviate{}, value);
    object["metadata"][key] = count > kShownElements ? ordered_json{{"length", count}, {"first", shown}} : shown;
  }
  for (const engine::TensorInfo& tensor : file.tensors())
    object["tensors"].push_back(
        {{"name", tensor.name}, {"type", kernels::info(tensor.type).name}, {"shape", tensor.shape}});
  std::cout << object.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_text(const engine::ModelFile& file, const Cost& cost, const config::Options& options) {
  std::vector<std::pair<std::string, std::string>> lines{
      {"file", file.path() + ", " + human_bytes(file.file_bytes())},
      {"family", served_by(file)},
      {"weights", human_count(num_parameters(file)) + " parameters, " + weight_types(file)},
      {"trained context", std::to_string(cost.trained) + " tokens"},
      {"memory budget", human_bytes(cost.memory)},
  };
  for (std::size_t i = 0; i < cost.bytes_per_token.size(); ++i) {
    const auto& [type, bytes] = cost.bytes_per_token[i];
    const std::uint64_t tokens = cost.longest_context[i].second;
    std::string fits = std::to_string(bytes) + " bytes per token; " + std::to_string(tokens) + " tokens fit the budget";
    const std::uint64_t wanted = options.ctx_size ? static_cast<std::uint64_t>(options.ctx_size) : cost.trained;
    if (wanted > 0) fits += ": " + std::to_string(tokens / wanted) + " sequences of " + std::to_string(wanted);
    lines.emplace_back("KV cache " + type, fits);
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
    tensors.emplace_back("  " + tensor.name, std::string(kernels::info(tensor.type).name) + "  " +
                                                 shape_text(tensor.shape) + "  " + human_bytes(tensor.bytes.size()));
  std::cout << aligned(metadata) << "\nTensors (" << file.tensors().size() << ")\n" << aligned(tensors);
}

}  // namespace

Result<int> inspect(const config::Parsed& parsed) {
  config::Options options = parsed.options;
  if (parsed.arguments.size() > 1)
    return Error{ErrorCode::invalid_argument, "one file at a time; '" + parsed.arguments[1] + "' is a second one"};
  if (!parsed.arguments.empty()) options.model = parsed.arguments.front();
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  const Cost cost = cost_of(**file, options);
  if (options.json)
    print_json(**file, cost);
  else
    print_text(**file, cost, options);
  return kExitOk;
}

}  // namespace troupe::cli
