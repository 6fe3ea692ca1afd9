#include "actors/serving/model_cache.h"

namespace troupe::actors {
cache::LeaseBookOptions lease_book_options(const engine::LoadedModel& model) {
  cache::LeaseBookOptions options;
  for (GroupId group = 0; group < model.arenas().size(); ++group)
    options.groups.push_back(
        {.num_blocks = model.arena(group)->num_blocks(), .window = model.cache_spec().groups[group].window});
  if (model.cache_spec().has_state()) {
    options.snapshot_rule = {.every = model.snapshot_every(),
                             .at_prompt_end = model.cache_spec().state_type == engine::StateType::f32};
    options.num_snapshots = model.snapshots()->num_snapshots();
  }
  return options;
}

scheduler::Capacity capacity_of(const engine::LoadedModel& model) {
  return {.context = model.info().context, .groups = lease_book_options(model).groups};
}

std::uint64_t kv_bytes(const engine::LoadedModel& model) {
  std::uint64_t bytes = 0;
  for (const auto& arena : model.arenas()) bytes += arena->bytes_per_block() * arena->num_blocks();
  return bytes;
}

std::uint64_t resident_kv_bytes(const engine::LoadedModel& model) {
  std::uint64_t bytes = 0;
  for (const auto& arena : model.arenas()) bytes += arena->resident_bytes();
  return bytes;
}

}  // namespace troupe::actors
