#include "actors/serving/model_cache.h"

namespace troupe::actors {
namespace {

std::uint64_t bytes_of(const engine::KvArena& arena) { return arena.bytes_per_block() * arena.num_blocks(); }

}  // namespace

cache::LeaseBookOptions lease_book_options(const engine::LoadedModel& model) {
  cache::LeaseBookOptions options;
  options.num_blocks = model.arena()->num_blocks();
  if (const auto* window = model.cache_spec().find(engine::CacheGroup::Kind::window)) {
    options.window = window->window;
    options.num_window_blocks = model.window_arena()->num_blocks();
  }
  if (model.cache_spec().find(engine::CacheGroup::Kind::state)) {
    options.snapshot_rule = {.every = model.snapshot_every(),
                             .at_prompt_end = model.cache_spec().state_type == engine::StateType::f32};
    options.num_snapshots = model.snapshots()->num_snapshots();
  }
  return options;
}

scheduler::Capacity capacity_of(const engine::LoadedModel& model) {
  const cache::LeaseBookOptions book = lease_book_options(model);
  return {.context = model.info().context,
          .num_blocks = book.num_blocks,
          .window = book.window,
          .num_window_blocks = book.num_window_blocks};
}

std::uint64_t kv_bytes(const engine::LoadedModel& model) {
  return bytes_of(*model.arena()) + (model.window_arena() ? bytes_of(*model.window_arena()) : 0);
}

std::uint64_t resident_kv_bytes(const engine::LoadedModel& model) {
  return model.arena()->resident_bytes() + (model.window_arena() ? model.window_arena()->resident_bytes() : 0);
}

}  // namespace troupe::actors
