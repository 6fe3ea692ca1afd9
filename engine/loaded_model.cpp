#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "engine/engine.h"
#include "engine/memory/process_memory.h"
#include "engine/model/load_choices.h"
#include "engine/model/memory_budget.h"

namespace troupe::engine {

Result<std::shared_ptr<LoadedModel>> LoadedModel::load(const std::string& path, const LoadOptions& options) {
  auto file = open_gguf(path);
  if (!file) return file.error();
  return load(*std::move(file), options);
}

Result<std::shared_ptr<LoadedModel>> LoadedModel::load(std::shared_ptr<const ModelFile> file,
                                                       const LoadOptions& options) {
  const std::string path = file->path();
  auto opened = open_model(std::move(file), options);
  if (!opened) return opened.error();
  auto loaded = std::shared_ptr<LoadedModel>(new LoadedModel());
  const std::uint64_t heap_before = process_memory().heap_used;
  auto model = load_model(*opened->file, opened->options);
  if (!model) return model.error();
  loaded->weight_heap_bytes_ = heap_growth(heap_before);
  const ModelInfo& info = (*model)->info();
  const CacheSpec& cache = (*model)->cache_spec();
  const std::uint64_t fixed = (*model)->weight_bytes() + opened->expected_vocabulary;
  const auto plan = plan_cache(cache, info.context, options, opened->budget - std::min(opened->budget, fixed));
  if (!plan) {
    return Error{plan.error().code,
                 fmt::format("{}: with a memory budget of {}, of which weights{} take {} and {}", path,
                             mebibytes(opened->budget), opened->expected_vocabulary ? " and vocabulary" : "",
                             mebibytes(fixed), plan.error().message)};
  }
  for (GroupId group = 0; group < cache.groups.size(); ++group) {
    auto arena = KvArena::create(plan->num_blocks[group], cache.groups[group].bytes_per_block, options.memory_policy);
    if (!arena) return arena.error();
    loaded->arenas_.push_back(std::move(*arena));
  }
  if (cache.has_state()) {
    auto snapshots = SnapshotArena::create(plan->num_snapshots, cache.state, cache.state_type, options.memory_policy);
    if (!snapshots) return snapshots.error();
    loaded->snapshots_ = std::move(*snapshots);
    loaded->snapshot_every_ = options.snapshot_every;
    loaded->num_states_ = plan->num_states;
  }
  loaded->kernels_ = &kernels_of(opened->options);
  auto end_ids = find_end_ids(*opened->file, opened->tokenizer.get(), info.vocab_size);
  if (!end_ids) return end_ids.error();
  loaded->end_ids_ = std::move(*end_ids);
  auto templates = find_chat_templates(*opened->file);
  if (!templates) return templates.error();
  loaded->chat_templates_ = std::move(*templates);
  loaded->numerics_id_ = make_numerics_id(*loaded->kernels_, cache, (*model)->content_hash());
  if (opened->tokenizer) loaded->vocabulary_digest_ = engine::vocabulary_digest(*opened->file, *opened->tokenizer);
  loaded->tokenizer_ = std::move(opened->tokenizer);
  loaded->model_ = std::move(*model);
  loaded->memory_policy_ = options.memory_policy;
  loaded->vocabulary_bytes_ = opened->vocabulary_bytes;
  return loaded;
}

}  // namespace troupe::engine
