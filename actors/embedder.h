// Serves Embed requests: vectors of texts. Plain: no actor, no CAF.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/embedding.h"
#include "actors/failure.h"
#include "actors/gateway.h"
#include "actors/serving/stream_table.h"
#include "actors/status/memory_ledger.h"
#include "actors/threads/compute_pool.h"
#include "actors/threads/text_threads.h"
#include "engine/memory/workspace.h"
#include "engine/model/encoder.h"
#include "scheduler/shared_limit.h"
#include "scheduler/turn_list.h"

namespace troupe::actors {

// A request's texts are encoded, short ones at once and others on the text threads, then go through the model on the
// compute thread, a few texts at a time. Both are scheduled fairly among users; an unfinished request goes back to the
// end of its user's queue. The embedder has at most one job on the compute thread, and other jobs that wait there run
// between two of its jobs: so between two steps of generation there is at most one pass over max_step_tokens tokens (an
// encoder reads whole texts, together up to kTokensPerTurn or one longer text). A cancelled request ends at its next
// turn.
//
// Thread-safe. All jobs on `texts` and `compute` must have ended before the destructor; the other arguments outlive it.
class Embedder {
 public:
  // streams: Embed requests count against the same per-user quota as its requests.
  Embedder(const GatewayOptions& options, StreamTable& streams, TextThreads& texts, Compute& compute);

  // Sets the model. Before this, requests are refused with Outcome::loading.
  void loaded(std::shared_ptr<const engine::Encoder> encoder);
  void loaded(std::shared_ptr<const engine::TextVectors> hidden_states);
  std::shared_ptr<const engine::Encoder> encoder() const;      // null: not loaded, or the model is no encoder
  std::shared_ptr<const engine::TextVectors> vectors() const;  // null: not loaded

  // Calls `done` exactly once: on a thread of the pools, or, if the request ends at once, on the caller's own. If
  // `done` throws, it is called once more with a failure.
  CancelFlag embed(EmbedRequest request, OnEmbedded done);

  // Refuses new requests; those still live at `deadline` end as cancelled.
  void drain(TimePoint deadline);
  // Calls `done` once no request is live and every answer has been delivered; at once if that is so now.
  void when_empty(std::function<void()> done);

  // While requests are live: the time since a text was encoded, a pass ended, or the first of them arrived, whichever
  // was last. Else 0.
  TimePoint::duration without_progress(TimePoint now) const;
  // Adds this class's counters, without memory.
  void fill(StatusSnapshot& snapshot) const;
  // Adds the memory of the encoder, if there is one, of the live requests, and of their passes.
  void add_to(KnownMemory& known) const;

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  // Texts of one request that go through the model together: one turn of its user in `to_compute_`.
  struct Turn {
    JobPtr job;  // null: no turn has begun
    std::size_t num_texts = 0;
    std::uint64_t num_tokens = 0;
    std::vector<float> rows;
    std::unique_ptr<engine::TextVectors::Reading> reading;
  };

  std::optional<End> admit(Job& job);
  // Encoding.
  void encode(const JobPtr& job);
  void wait_to_encode(const JobPtr& job);
  static std::uint64_t next_part(const Job& job);
  bool encode_some(Job& job, std::size_t max_bytes);
  // Computing.
  void wait_to_compute(const JobPtr& job);
  void compute_waiting();
  bool begin_turn();
  bool advance_turn();
  void end_turn(Job& job);

  bool unwanted(const Job& job) const;
  void count_memory(Job& job, std::uint64_t held);
  void finish(Job& job, EmbedAnswer answer);

  const GatewayOptions& options_;
  StreamTable& streams_;
  TextThreads& texts_;
  Compute& compute_;
  // Used by the compute thread only.
  engine::Workspace workspace_;
  Turn turn_;

  mutable std::mutex mutex_;
  std::shared_ptr<const engine::Encoder> encoder_;      // null if the model is no encoder
  std::shared_ptr<const engine::TextVectors> vectors_;  // the encoder, or a model's hidden states
  std::optional<TimePoint> drained_at_;                 // the deadline of drain(); none: not draining
  scheduler::TurnList<JobPtr> to_compute_;
  bool computing_ = false;  // compute_waiting() is posted or running; always true while there is something to compute
  std::uint64_t num_open_ = 0;        // live requests
  std::uint64_t num_unanswered_ = 0;  // requests for which `done` has not returned: live, or just ended
  TimePoint last_progress_{};
  std::uint64_t num_received_ = 0;
  std::unordered_map<scheduler::Outcome, std::uint64_t> num_ended_;  // answered requests count as eos
  std::uint64_t prompt_tokens_ = 0;
  scheduler::SharedLimit requests_;  // live requests
  scheduler::SharedLimit bytes_;     // claimed by live requests: their inputs and all of their vectors
  std::uint64_t held_bytes_ = 0;     // held by live requests now
  std::uint64_t workspace_bytes_ = 0;
  std::uint64_t reading_bytes_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace troupe::actors
