#include "engine/model/load_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "engine/formats/metadata.h"
#include "engine/memory/process_memory.h"
#include "engine/model/file_verdict.h"
#include "engine/model/kernel_choice.h"
#include "engine/model/memory_budget.h"

namespace troupe::engine {
std::string mebibytes(std::uint64_t bytes) { return fmt::format("{} MiB", (bytes + (1u << 20) - 1) >> 20); }

Result<Ternary> choose_ternary(std::optional<Ternary> ternary) {
  if (ternary) return *ternary;
  const char* wanted = std::getenv("TROUPE_TERNARY");
  if (!wanted || *wanted == '\0') return Ternary::automatic;
  if (const auto found = find_ternary(wanted)) return *found;
  return Error{ErrorCode::invalid_argument,
               fmt::format("TROUPE_TERNARY: '{}' is none of auto, multiply, lookup and trits", wanted)};
}

Result<OpenedModel> open_model(std::shared_ptr<const ModelFile> file, const LoadOptions& options) {
  std::unique_ptr<Team> own_team = options.team ? nullptr : std::make_unique<Team>(default_num_threads());
  Team* const team = options.team ? options.team : own_team.get();
  const auto table = choose_kernels(*file, options, team);
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
  opened.own_team = std::move(own_team);
  opened.options.team = team;
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
