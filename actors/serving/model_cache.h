// The sizes and rules of a loaded model's cache, for the keeper, the batcher and the status.
#pragma once

#include <cstdint>

#include "cache/lease_book.h"
#include "engine/engine.h"
#include "scheduler/shares/admission.h"

namespace troupe::actors {

// Options for the first epoch: the cache groups and the snapshot rule. If the model rounds its state,
// snapshots are taken only at positions where it does, else a sequence that begins from a snapshot would differ from
// one computed from its beginning.
[[nodiscard]] cache::LeaseBookOptions lease_book_options(const engine::LoadedModel& model);
[[nodiscard]] scheduler::Capacity capacity_of(const engine::LoadedModel& model);

// Bytes of the blocks of all cache groups: address space, not all of it resident.
[[nodiscard]] std::uint64_t kv_bytes(const engine::LoadedModel& model);
// The part of kv_bytes() that was ever written.
[[nodiscard]] std::uint64_t resident_kv_bytes(const engine::LoadedModel& model);

}  // namespace troupe::actors
