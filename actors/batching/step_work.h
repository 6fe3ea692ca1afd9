// What the batcher exchanges with the cache keeper and the target worker: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors/requests/failure.h"
#include "actors/requests/request.h"
#include "actors/sessions/sessions.h"
#include "cache/lease_book.h"
#include "engine/drafting/model_drafter.h"
#include "engine/engine.h"
#include "scheduler/serving_loop.h"

namespace troupe::actors {

// The keeper's reply to one msg::Lease.
struct LeaseReply {
  cache::LeaseEffects effects;
  std::vector<scheduler::Prediction> predictions;
};

// To the worker -------------------------------------------------------------------------------------

// Blocks of positions [from, to) of a session's sequence are copied to memory, from where they are written to a file.
struct ImageSave {
  std::shared_ptr<SessionSaving> saving;
  BlockTables tables;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  SequenceId state_of = 0;  // set with the last part: the open sequence whose state is saved, too
  TenantId tenant{};        // charged for it
  double seconds = 0;       // that it took, set by the worker
};

// The same the other way: blocks are filled with what was read from a file.
struct ImageFill {
  std::shared_ptr<const engine::SequenceImage> image;
  BlockTables tables;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  RequestId request = 0;  // on its receipt
  TenantId tenant{};      // charged for it
  double seconds = 0;     // that it took, set by the worker
};

// Adds a tenant, unless it is there.
inline void add_once(std::vector<TenantId>& tenants, TenantId tenant) {
  const bool is_last = !tenants.empty() && tenants.back() == tenant;  // mostly: neighbouring rows are of one tenant
  if (!is_last && std::ranges::find(tenants, tenant) == tenants.end()) tenants.push_back(tenant);
}

// Done in this order: saves, closes, fills, opens, swaps (also in sequences just opened again after a failed step),
// then one step over `batch`, which may have no items. If the batch has no number (0), only the closes are done.
struct StepWork {
  std::vector<ImageSave> saves;
  std::vector<ImageFill> fills;
  std::vector<SequenceId> closes;
  std::vector<scheduler::BlockSwap> swaps;
  std::vector<engine::SequenceSpec> opens;
  engine::StepBatch batch;
  std::vector<TenantId> tenants;  // of its rows
};

// To the draft worker -------------------------------------------------------------------------------

struct DraftWork {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> closes;  // requests that have ended; done first
  std::vector<engine::DraftAsk> asks;
  std::vector<TenantId> tenants;  // of these
};

// From the worker -----------------------------------------------------------------------------------

// A step that failed: none of its rows advanced, and the worker has no sequence open any more. The blocks written by
// earlier steps are still valid.
struct StepFailure {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  Failure why;
  double seconds = 0;  // that it took
};

}  // namespace troupe::actors
