// Answers the batcher's messages about KV blocks. Plain logic: cache::LeaseBook, where the protocol is explained.
//
// Receives  msg::Lease       -> sends msg::Leased to the sender, if there is anything to say
//           msg::BeginEpoch  a new batcher takes over
//           msg::Quiesced    no step of an old batcher runs any more: what it held comes back
#pragma once

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/status/counters.h"
#include "cache/lease_book.h"

namespace troupe::actors {

class CacheKeeper : public ActorBase {
 public:
  // options.await_quiesce: another keeper gave out the same blocks before.
  CacheKeeper(caf::actor_config& cfg, cache::LeaseBookOptions options, Counters& counters);

  caf::behavior make_behavior() override;

 private:
  void handle(const LeaseMessage& message, LeaseReply& reply);

  cache::LeaseBook book_;
  Counters& counters_;
};

}  // namespace troupe::actors
