#include "engine/model/kernel_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/compute/team.h"
#include "engine/machine/machine.h"
#include "engine/machine/probe_file.h"
#include "engine/weights/timed_product.h"
#include "kernels/cpu/cpu_features.h"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;
using kernels::KernelTable;
using kernels::WeightType;
using nlohmann::json;

constexpr std::uint64_t kLeastShare = 16;  // types with less than this part of the bytes are not measured
constexpr double kLeastGain = 0.98;        // another variant must take less than this share of the best one's time
constexpr std::size_t kMaxChoicesBytes = 1u << 20;

// The best variant that can run. Logs a warning if the CPU has AMX but it cannot be used, because the only symptom
// would be lower speed.
const kernels::KernelTable* best_kernels(const LoadNotes& notes) {
  const kernels::KernelTable& best = kernels::best_table();
  const std::string refusal = kernels::amx_refusal();
  if (notes && !refusal.empty())
    notes({.warning = true, .text = fmt::format("kernels {} in place of amx: {}", best.name, refusal)});
  return &best;
}

// Why a variant cannot be chosen. `table`: the one that this CPU cannot run; null if no variant is called `name`.
std::string why_not(const std::string& name, const kernels::KernelTable* table) {
  std::string supported;
  for (const kernels::KernelTable* each : kernels::supported_tables())
    supported += (supported.empty() ? "" : ", ") + std::string(each->name);
  if (!table) return fmt::format("there is no variant '{}'; this CPU can run {}", name, supported);
  const std::string refusal = name == "amx" ? kernels::amx_refusal() : "";
  if (!refusal.empty()) return fmt::format("'amx' cannot run here: {}; what can run is {}", refusal, supported);
  return fmt::format("this CPU cannot run '{}'; it can run {}", name, supported);
}

// Matrices of a file, by type: their bytes, and the length of the largest one's rows.
struct TypeShare {
  std::uint64_t bytes = 0, largest = 0;
  std::size_t k = 0;
};
std::map<WeightType, TypeShare> types_of(const ModelFile& file) {
  std::map<WeightType, TypeShare> types;
  const bool has_head = file.find_tensor("output.weight") != nullptr;
  const std::uint64_t num_layers = num_layers_of(file);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!may_be_computed(tensor.name, num_layers)) continue;
    if (tensor.rows() < 2 || (has_head && tensor.name == "token_embd.weight")) continue;  // only looked up
    TypeShare& share = types[tensor.type];
    share.bytes += tensor.bytes.size();
    if (tensor.bytes.size() > share.largest) {
      share.largest = tensor.bytes.size();
      share.k = tensor.columns();
    }
  }
  return types;
}

kernels::Layout layout_of(const KernelTable& table, WeightType type, std::size_t k) {
  const kernels::Layout layout = table.layout(type);
  return kernels::has_layout(type, layout, k) ? layout : kernels::Layout::panels;
}

bool has_vectors(const KernelTable& table) { return table.name != "reference" && table.name != "scalar"; }

const KernelTable* latency_kernels(const ModelFile& file) {
  const KernelTable* best = &kernels::best_table();
  if (!uses_tiles(file, *best)) return best;
  for (const KernelTable* table : kernels::supported_tables())  // ascending
    if (!uses_tiles(file, *table)) best = table;
  return best;
}

const KernelTable* measured_kernels(const ModelFile& file, const LoadOptions& options, Team* team) {
  const KernelTable* const best = &kernels::best_table();
  const auto say = [&](bool warning, const std::string& text) {
    if (options.notes) options.notes({.warning = warning, .text = "kernels: " + text});
  };
  const auto folder = probe_folder();
  const std::string key = kernel_choice_key(file, team ? team->num_threads() : default_num_threads());
  if (folder) {
    const auto kept = kept_kernels(kernel_choices_path(*folder), key);
    const KernelTable* const table = kept ? kernels::find_table(*kept) : nullptr;
    if (table && kernels::is_supported(*table)) {
      say(false, fmt::format("{}, as measured before for {}", table->name, key));
      return table;
    }
  }
  if (!team) return best;
  const std::vector<KernelTime> times = time_kernels(file, *team);
  const auto time_of = [&](const KernelTable* table) {
    const auto found = std::ranges::find(times, table, &KernelTime::kernels);
    return found == times.end() ? HUGE_VAL : found->seconds;
  };
  const auto fastest = std::ranges::min_element(times, {}, &KernelTime::seconds);
  const bool gains = fastest != times.end() && fastest->seconds < kLeastGain * time_of(best);
  const KernelTable* const chosen = gains ? fastest->kernels : best;
  std::string text;
  for (const KernelTime& time : times)
    text += fmt::format("{}{} {:.1f} ms", text.empty() ? "" : ", ", time.kernels->name, 1e3 * time.seconds);
  say(false, fmt::format("{}, by measuring one row and eight: {}", chosen->name, text));
  if (!folder) return chosen;
  if (Status kept = keep_kernels(kernel_choices_path(*folder), key, std::string(chosen->name)); !kept)
    say(true, "the choice is not kept: " + kept.error().message);
  return chosen;
}

}  // namespace

Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes) {
  if (name.empty()) {
    const char* wanted = std::getenv("TROUPE_KERNELS");
    if (!wanted || *wanted == '\0') return best_kernels(notes);
    name = wanted;
  }
  const kernels::KernelTable* table = kernels::find_table(name);
  if (table && kernels::is_supported(*table)) return table;
  return Error{table ? ErrorCode::unsupported : ErrorCode::invalid_argument, why_not(name, table)};
}

std::optional<Optimize> find_optimize(std::string_view name) {
  if (name == "auto") return Optimize::automatic;
  if (name == "latency") return Optimize::latency;
  if (name == "throughput") return Optimize::throughput;
  if (name == "measure") return Optimize::measure;
  return std::nullopt;
}

bool uses_tiles(const ModelFile& file, const KernelTable& kernels) {
  return std::ranges::any_of(types_of(file), [&](const auto& type) {
    return kernels::is_tiled(kernels.activation(type.first, layout_of(kernels, type.first, type.second.k)));
  });
}

Result<const KernelTable*> choose_kernels(const ModelFile& file, const LoadOptions& options, Team* team) {
  const char* const wanted = std::getenv("TROUPE_KERNELS");
  if (!options.kernels.empty() || (wanted && *wanted != '\0')) return choose_kernels(options.kernels, options.notes);
  switch (options.optimize) {
    case Optimize::automatic:
    case Optimize::throughput:
      break;
    case Optimize::latency:
      return latency_kernels(file);
    case Optimize::measure:
      return measured_kernels(file, options, team);
  }
  return choose_kernels("", options.notes);
}

std::vector<KernelTime> time_kernels(const ModelFile& file, Team& team) {
  const auto types = types_of(file);
  std::uint64_t all = 0;
  for (const auto& [type, share] : types) all += share.bytes;
  std::deque<TimedProduct> products;
  std::vector<KernelTime> times;
  for (const KernelTable* table : kernels::supported_tables()) {
    if (!has_vectors(*table)) continue;
    times.push_back({table, 0});
    for (const auto& [type, share] : types)
      if (share.bytes * kLeastShare >= all)
        products.emplace_back(*table, team, type, layout_of(*table, type, share.k), share.k);
  }
  time_in_turn(products);
  auto product = products.begin();
  for (KernelTime& time : times)
    for (const auto& [type, share] : types) {
      if (share.bytes * kLeastShare < all) continue;
      const kernels::WeightTypeInfo& info = kernels::info(type);
      const double rows =
          static_cast<double>(share.bytes) / static_cast<double>(share.k / info.group_size * info.group_bytes);
      const auto layout = layout_of(*time.kernels, type, share.k);
      const auto panel = static_cast<double>(kernels::packed_bytes(type, layout, kernels::kPanelRows, share.k));
      time.seconds += product->seconds_per_byte() * panel * rows / kernels::kPanelRows;
      ++product;
    }
  return times;
}

fs::path kernel_choices_path(const fs::path& folder) {
  return probe_path(folder, machine_identity()).replace_extension(".kernels.json");
}

std::optional<std::string> kept_kernels(const fs::path& path, const std::string& key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMaxChoicesBytes || error) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json choices = json::parse(text, nullptr, false);
  if (!choices.is_object() || !choices.contains(key) || !choices[key].is_string()) return std::nullopt;
  return choices[key].get<std::string>();
}

Status keep_kernels(const fs::path& path, const std::string& key, const std::string& name) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  json choices = json::parse(text, nullptr, false);
  if (!choices.is_object() || text.size() > kMaxChoicesBytes / 2) choices = json::object();
  choices[key] = name;
  return replace_file(path, choices.dump(2) + "\n");
}

std::string kernel_choice_key(const ModelFile& file, std::uint32_t num_threads) {
  std::string key;
  for (const auto& [type, share] : types_of(file))
    key += fmt::format("{}{} x {} {} MiB", key.empty() ? "" : ", ", kernels::info(type).name, share.k,
                       (share.bytes + (1u << 19)) >> 20);
  return fmt::format("{}; {} threads", key, num_threads);
}

}  // namespace troupe::engine
