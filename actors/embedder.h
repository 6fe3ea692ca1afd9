// Serves requests for vectors of texts. Plain: no actor, no CAF.
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
// compute thread, some at a time. In both places users take turns, and a user's requests too. The compute thread has at
// most one job of ours, and between two of them whatever else waits there runs: between two steps of generation lies at
// most one pass over max_step_tokens tokens (an encoder reads whole texts, of some thousand tokens together). A request
// that nobody wants any more ends when its turn comes.
//
// Thread-safe. `texts` and `compute` must have run dry before it goes; the others outlive it.
class Embedder {
 public:
  // streams: whose requests count against the same quota of their user.
  Embedder(const GatewayOptions& options, StreamTable& streams, TextThreads& texts, Compute& compute);

  // From now on there is a model. Before, requests are refused as loading.
  void loaded(std::shared_ptr<const engine::Encoder> encoder);
  void loaded(std::shared_ptr<const engine::TextVectors> hidden_states);
  std::shared_ptr<const engine::Encoder> encoder() const;      // null: not loaded, or the model is none
  std::shared_ptr<const engine::TextVectors> vectors() const;  // null: not loaded

  // Calls `done` exactly once: on a thread of the pools, or for what is refused at once on the caller's own. Should it
  // throw, it is called once more, with a failure that says so.
  CancelFlag embed(EmbedRequest request, OnEmbedded done);

  // Refuses what comes from now on; what is under way at `deadline` ends as cancelled.
  void drain(TimePoint deadline);
  // Calls `done` once nothing is under way and everybody has their answer; at once if that is so now.
  void when_empty(std::function<void()> done);

  // While requests are under way: how long ago a text was encoded, a pass ended, or the first of them came. Else
  // nothing.
  TimePoint::duration without_progress(TimePoint now) const;
  // Adds what this class counts, but for memory.
  void fill(StatusSnapshot& snapshot) const;
  // Adds the encoder, if there is one, the requests under way, and what their passes need.
  void add_to(KnownMemory& known) const;

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  // Some texts of one request on their way through the model.
  struct Turn {
    JobPtr job;  // null: nobody's
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
  // The compute thread's.
  engine::Workspace workspace_;
  Turn turn_;

  mutable std::mutex mutex_;
  std::shared_ptr<const engine::Encoder> encoder_;      // if it is one
  std::shared_ptr<const engine::TextVectors> vectors_;  // the encoder, or a model's hidden states
  std::optional<TimePoint> drained_at_;                 // draining
  scheduler::TurnList<JobPtr> to_compute_;
  bool computing_ = false;  // a job of ours is with the compute thread; it is wherever there is something to compute
  std::uint64_t num_open_ = 0;
  std::uint64_t num_unanswered_ = 0;  // of these, and of those that have ended but not heard so yet
  TimePoint last_progress_{};
  std::uint64_t num_received_ = 0;
  std::unordered_map<scheduler::Outcome, std::uint64_t> num_ended_;  // what was answered counts as eos
  std::uint64_t prompt_tokens_ = 0;
  scheduler::SharedLimit requests_;  // open ones
  scheduler::SharedLimit bytes_;     // that they hold at most
  std::uint64_t held_bytes_ = 0;     // that they hold
  std::uint64_t workspace_bytes_ = 0;
  std::uint64_t reading_bytes_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace troupe::actors
