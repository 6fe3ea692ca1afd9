// What a loaded model keeps of its sequences, as the keeper, the batcher and the status need to know it.
#pragma once

#include <cstdint>

#include "cache/lease_book.h"
#include "engine/engine.h"
#include "scheduler/admission.h"

namespace troupe::actors {

// Of the first epoch: the pools, and the rules of windows and snapshots. Snapshots of a state that is rounded are taken
// where it is rounded, or a sequence that goes on from one would differ from one that came all the way.
[[nodiscard]] cache::LeaseBookOptions lease_book_options(const engine::LoadedModel& model);
[[nodiscard]] scheduler::Capacity capacity_of(const engine::LoadedModel& model);

// Of the blocks of all groups; address space at first.
[[nodiscard]] std::uint64_t kv_bytes(const engine::LoadedModel& model);
// The part of it that was ever written.
[[nodiscard]] std::uint64_t resident_kv_bytes(const engine::LoadedModel& model);

}  // namespace troupe::actors
