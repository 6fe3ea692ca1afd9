// What the batcher exchanges with the cache keeper and the target worker: plain values.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "actors/request.h"
#include "cache/lease_book.h"
#include "engine/engine.h"

namespace troupe::actors {

// To the keeper -------------------------------------------------------------------------------------

// Every step up to this one has ended. Sent before the messages that its result causes.
struct StepEnded {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
};

// How much of this request's tokens is cached or being computed?
struct Predict {
  RequestId request = 0;
  cache::ScopeList scopes;
  cache::Tokens tokens;
};

using LeaseMessage =
    std::variant<StepEnded, cache::Acquire, cache::Extend, cache::Commit, cache::Yield, cache::Release, Predict>;

struct Prediction {
  RequestId request = 0;
  std::uint32_t tokens = 0;  // cached or in flight
};

// What the keeper has to say to one message full of them.
struct LeaseReply {
  cache::LeaseEffects effects;
  std::vector<Prediction> predictions;
};

// To the worker -------------------------------------------------------------------------------------

// Entry `index` of the block table becomes `block`: equal bits, somebody published them first.
struct BlockSwap {
  SequenceId sequence = 0;
  std::uint32_t index = 0;
  BlockId block = 0;
};

// Done in this order: closes, swaps, opens, then one step over `batch` if it has items.
struct StepWork {
  std::vector<SequenceId> closes;
  std::vector<BlockSwap> swaps;
  std::vector<engine::SequenceSpec> opens;
  engine::StepBatch batch;
};

}  // namespace troupe::actors
