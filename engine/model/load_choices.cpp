#include "engine/model/load_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "engine/formats/metadata.h"
#include "engine/memory/process_memory.h"
#include "engine/model/file_verdict.h"
#include "engine/model/memory_budget.h"
#include "kernels/cpu/cpu_features.h"

namespace troupe::engine {
namespace {

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

}  // namespace

std::string mebibytes(std::uint64_t bytes) { return fmt::format("{} MiB", (bytes + (1u << 20) - 1) >> 20); }

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

Result<Ternary> choose_ternary(std::optional<Ternary> ternary) {
  if (ternary) return *ternary;
  const char* wanted = std::getenv("TROUPE_TERNARY");
  if (!wanted || *wanted == '\0') return Ternary::automatic;
  if (const auto found = find_ternary(wanted)) return *found;
  return Error{ErrorCode::invalid_argument,
               fmt::format("TROUPE_TERNARY: '{}' is none of auto, multiply, lookup and trits", wanted)};
}

Result<OpenedModel> open_model(std::shared_ptr<const ModelFile> file, const LoadOptions& options) {
  const auto table = choose_kernels(options.kernels, options.notes);
  if (!table) return table.error();
  const auto ternary = choose_ternary(options.ternary);
  if (!ternary) return ternary.error();
  OpenedModel opened;
  opened.options = options;
  opened.options.kernels = (*table)->name;
  opened.options.ternary = *ternary;
  opened.budget = options.memory ? options.memory : default_memory_budget();
  opened.expected_vocabulary = expected_vocabulary_bytes(*file);
  const std::uint64_t estimate = opened.expected_vocabulary + packed_weight_bytes(*file, **table);
  opened.options.memory = 0;
  const std::uint64_t heap_before = process_memory().heap_used;
  auto tokenizer = judge_file(*file, opened.options, opened.budget);
  if (!tokenizer) return tokenizer.error();
  opened.vocabulary_bytes = heap_growth(heap_before);
  opened.tokenizer = std::move(*tokenizer);
  if (options.notes)
    for (const std::string& note : metadata_notes(*file, opened.tokenizer.get()))
      options.notes({.warning = true, .text = fmt::format("{}: {}", file->path(), note)});
  opened.file = std::move(file);
  if (!options.team) opened.own_team = std::make_unique<Team>(default_num_threads());
  opened.options.team = options.team ? options.team : opened.own_team.get();
  opened.options.memory = std::max<std::uint64_t>(opened.budget - estimate, 1);
  return opened;
}

std::vector<std::string> metadata_notes(const ModelFile& file, const Tokenizer* tokenizer) {
  std::vector<std::string> notes;
  Metadata general(file, "general");
  (void)general.string("name");
  if (general.failed()) notes.push_back(general.what() + "; the file's name is taken");
  if (tokenizer) notes.insert(notes.end(), tokenizer->notes().begin(), tokenizer->notes().end());
  return notes;
}

std::uint64_t heap_growth(std::uint64_t before) {
  const std::uint64_t now = process_memory().heap_used;
  return now - std::min(before, now);
}

std::string make_numerics_id(const kernels::KernelTable& kernels, const CacheSpec& cache, std::uint64_t hash) {
  const std::string id =
      fmt::format("{}-{}-{}-{:016x}", kernels::kRecipeVersion, kernels.name, kernels::name(cache.kv_type), hash);
  const bool rounds_state = cache.has_state() && cache.state_type == StateType::f16;
  return rounds_state ? fmt::format("{}-s{}", id, cache.snapshot_every) : id;
}

}  // namespace troupe::engine
