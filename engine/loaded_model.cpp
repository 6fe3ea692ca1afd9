#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "engine/engine.h"
#include "engine/families/families.h"
#include "engine/memory/process_memory.h"
#include "engine/model/cache_plan.h"
#include "engine/model/load_choices.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {
namespace {

// 0 instead of a negative difference: other threads may free memory in between.
std::uint64_t grown(std::uint64_t before, std::uint64_t after) { return after - std::min(before, after); }

}  // namespace

Result<std::shared_ptr<LoadedModel>> LoadedModel::load(const std::string& path, const LoadOptions& options) {
  const auto table = choose_kernels(options.kernels, options.notes);
  if (!table) return table.error();
  const auto ternary = choose_ternary(options.ternary);
  if (!ternary) return ternary.error();
  const auto file = open_gguf(path);
  if (!file) return file.error();
  if (const Status whole = refuse_shard(**file); !whole) return whole.error();
  const std::uint64_t budget = options.memory ? options.memory : default_memory_budget();
  // Checked before anything is built or packed: a model that cannot fit is refused early.
  const std::uint64_t vocabulary = expected_vocabulary_bytes(**file);
  const std::uint64_t estimate = vocabulary + packed_weight_bytes(**file, **table);
  if (const Status fits = check_budget(**file, **table, budget); !fits) return fits.error();
  const std::uint64_t heap_before = process_memory().heap_used;
  auto tokenizer = make_tokenizer(**file);
  if (!tokenizer) return tokenizer.error();
  const std::uint64_t heap_with_vocabulary = process_memory().heap_used;

  std::unique_ptr<Team> own_team;
  if (!options.team) own_team = std::make_unique<Team>(default_num_threads());
  auto model = load_model(**file, {.kernels = *table,
                                   .ternary = *ternary,
                                   .kv_type = options.kv_type,
                                   .state_type = options.state_type,
                                   .snapshot_every = options.snapshot_every,
                                   .context = options.context,
                                   .memory = std::max<std::uint64_t>(budget - estimate, 1),
                                   .team = options.team ? options.team : own_team.get(),
                                   .weights_cache = options.weights_cache,
                                   .memory_policy = options.memory_policy,
                                   .progress = options.progress,
                                   .notes = options.notes});
  if (!model) return model.error();
  const std::uint64_t heap_with_weights = process_memory().heap_used;
  const ModelInfo& info = (*model)->info();
  if (*tokenizer && (*tokenizer)->size() != info.vocab_size) {
    return Error{ErrorCode::bad_model, fmt::format("{}: the vocabulary has {} tokens, but the embedding has {} rows",
                                                   path, (*tokenizer)->size(), info.vocab_size)};
  }
  const std::uint64_t weights = (*model)->weight_bytes();
  const auto plan =
      plan_cache((*model)->cache_spec(), info.context, options, budget - std::min(budget, weights + vocabulary));
  if (!plan) {
    return Error{plan.error().code, path + ": with a memory budget of " + mebibytes(budget) + ", of which weights" +
                                        (vocabulary ? " and vocabulary" : "") + " take " +
                                        mebibytes(weights + vocabulary) + " and " + plan.error().message};
  }
  const CacheSpec& cache = (*model)->cache_spec();
  KvArenas arenas;
  for (GroupId group = 0; group < cache.groups.size(); ++group) {
    auto arena = KvArena::create(plan->num_blocks[group], cache.groups[group].bytes_per_block, options.memory_policy);
    if (!arena) return arena.error();
    arenas.push_back(std::move(*arena));
  }

  auto loaded = std::shared_ptr<LoadedModel>(new LoadedModel());
  loaded->end_ids_ = find_end_ids(**file, tokenizer->get(), info.vocab_size);
  loaded->numerics_id_ = make_numerics_id(**table, cache, (*model)->content_hash());
  loaded->kernels_ = *table;
  loaded->tokenizer_ = std::move(*tokenizer);
  loaded->arenas_ = std::move(arenas);
  if (cache.has_state()) {
    auto snapshots = SnapshotArena::create(plan->num_snapshots, cache.state, cache.state_type, options.memory_policy);
    if (!snapshots) return snapshots.error();
    loaded->snapshots_ = std::move(*snapshots);
    loaded->snapshot_every_ = options.snapshot_every;
    loaded->num_states_ = plan->num_states;
  }
  loaded->model_ = std::move(*model);
  loaded->memory_policy_ = options.memory_policy;
  loaded->vocabulary_bytes_ = grown(heap_before, heap_with_vocabulary);
  loaded->weight_heap_bytes_ = grown(heap_with_vocabulary, heap_with_weights);
  return loaded;
}

}  // namespace troupe::engine
