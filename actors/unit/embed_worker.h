// Makes vectors of texts (Embed), with an encoder or with a language model's hidden states.
//
// A request's texts go through the model a few at a time: a turn of its user in a fair queue. A turn is computed in one
// or more passes, jobs of the compute pool; the worker has at most one job there, so between two steps of generation
// there is at most one pass over max_step_tokens tokens (an encoder reads whole texts, together up to kTokensPerTurn or
// one longer text). While its user was served more than one whose streams run, the next pass waits
// (ComputeShares). A request whose passes throw kMaxFaults times is ended; before that, the turn is repeated.
//
// Receives  msg::Enqueue     a request, new or resumed
//           msg::Forget      a stream has ended; msg::ForgetAll: all have
//           msg::PassEnded   from its job; msg::PassFailed: the pass threw
//           msg::TurnCame    from the batcher: the pass that waited may go
#pragma once

#include "actors/requests/failure.h"
#include "actors/status/counters.h"
#include "actors/threads/compute_pool.h"
#include "actors/threads/compute_shares.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "scheduler/shares/turn_list.h"

namespace troupe::actors {

class EmbedWorker : public ActorBase {
 public:
  // max_step_tokens: of one pass. memory: for its buffers.
  EmbedWorker(caf::actor_config& cfg, std::shared_ptr<const ServedModel> model, std::uint32_t max_step_tokens,
              const std::shared_ptr<engine::MemoryPolicy>& memory, StreamTable& streams, Counters& counters,
              std::shared_ptr<ComputeShares> shares, Compute& compute, scheduler::JobSource source, FaultPoints faults);

  caf::behavior make_behavior() override;

 private:
  // A request and its vectors so far.
  struct Job {
    AssignmentPtr task;
    std::shared_ptr<const void> counted;  // in the shares, while there is the job
    std::shared_ptr<Embeddings> answer;
    std::size_t num_read = 0;  // inputs
    std::uint32_t tokens_read = 0;
  };
  struct Turn;  // what the compute thread works on

  void add(AssignmentPtr task);
  void queue(std::shared_ptr<Job> job);
  void forget(RequestId request);
  void forget_all();
  void pass_ended(const msg::PassEnded& pass);
  void pass_failed(const Failure& why);
  void next();
  void count_memory();

  const std::uint32_t max_step_tokens_;
  StreamTable& streams_;
  Counters& counters_;
  const std::shared_ptr<ComputeShares> shares_;
  Compute& compute_;
  const scheduler::JobSource source_;
  scheduler::TurnList<std::shared_ptr<Job>> waiting_;
  std::shared_ptr<Turn> turn_;
  // The request of the turn; null while a pass of a forgotten request ends, or nothing is computed.
  std::shared_ptr<Job> current_;
  std::shared_ptr<Job> computed_;  // of the pass that is posted or running; null: none is
  bool waiting_for_turn_ = false;
};

}  // namespace troupe::actors
