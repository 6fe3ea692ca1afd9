// Answers the batcher's messages about KV blocks. Plain logic and the protocol: cache/lease_book.h.
//
// Receives  msg::Lease       -> msg::Leased to the sender, unless the reply is empty
//           msg::BeginEpoch  a new batcher takes over
//           msg::FindCached  -> answers the question (UnitQuestions): which anchors are cached
//           msg::Fence       -> msg::Fenced to telemetry
//           msg::Quiesced    no step of an old batcher runs any more: the blocks it held are free again
#pragma once

#include "actors/status/counters.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "cache/lease_book.h"

namespace troupe::actors {

class CacheKeeper : public ActorBase {
 public:
  // options.await_quiesce: an earlier keeper may have given out the same blocks.
  // questions: those that msg::FindCached names; outlives the actor. Null: it is asked none.
  CacheKeeper(caf::actor_config& cfg, cache::LeaseBookOptions options, Counters& counters,
              UnitQuestions* questions = nullptr);

  caf::behavior make_behavior() override;

 private:
  void handle(const scheduler::LeaseMessage& message, LeaseReply& reply);

  cache::LeaseBook book_;
  Counters& counters_;
  UnitQuestions* const questions_;
};

}  // namespace troupe::actors
