// Serves requests for vectors of texts. Plain: no actor, no CAF.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/compute_pool.h"
#include "actors/embedding.h"
#include "actors/failure.h"
#include "actors/gateway.h"
#include "actors/stream_table.h"
#include "actors/thread_pool.h"
#include "engine/encoder.h"
#include "engine/workspace.h"

namespace troupe::actors {

// A request's texts are encoded on a text thread, then go through the model on the compute thread, some at a time:
// between two turns the turns of others run, so that a large request keeps nobody waiting for all of it. A request that
// nobody wants any more ends before its next turn.
//
// Thread-safe. `texts` and `compute` must have run dry before it goes.
class Embedder {
 public:
  Embedder(const GatewayOptions& options, ThreadPool& texts, Compute& compute);

  // From now on there is a model. Before, requests are refused as loading.
  void loaded(std::shared_ptr<const engine::Encoder> encoder);
  void loaded(std::shared_ptr<const engine::TextVectors> hidden_states);
  std::shared_ptr<const engine::Encoder> encoder() const;      // null: not loaded, or the model is none
  std::shared_ptr<const engine::TextVectors> vectors() const;  // null: not loaded

  // Calls `done` exactly once: on a thread of the pools, or for what is refused at once on the caller's own.
  CancelFlag embed(EmbedRequest request, OnEmbedded done);

  // Refuses what comes from now on; what is under way at `deadline` ends as cancelled.
  void drain(TimePoint deadline);
  // Calls `done` once nothing is under way; at once if nothing is.
  void when_empty(std::function<void()> done);

  // Adds what this class counts.
  void fill(StatusSnapshot& snapshot) const;

 private:
  struct Job;

  std::optional<End> admit(const EmbedRequest& request, std::shared_ptr<const engine::TextVectors>& vectors);
  void read_texts(const std::shared_ptr<Job>& job);
  void take_turn(const std::shared_ptr<Job>& job);
  // Whether the job has ended, one way or the other.
  bool encode_some(Job& job);
  bool unwanted(const Job& job) const;
  void finish(Job& job, EmbedAnswer answer);

  const GatewayOptions& options_;
  ThreadPool& texts_;
  Compute& compute_;
  engine::Workspace workspace_;  // the compute thread's

  mutable std::mutex mutex_;
  std::shared_ptr<const engine::Encoder> encoder_;            // if it is one
  std::shared_ptr<const engine::TextVectors> vectors_;        // the encoder, or a model's hidden states
  std::optional<TimePoint> drained_at_;                       // draining
  std::unordered_map<std::uint32_t, std::uint32_t> open_of_;  // requests under way, by uid
  std::uint64_t num_open_ = 0;
  std::uint64_t num_received_ = 0;
  std::unordered_map<scheduler::Outcome, std::uint64_t> num_ended_;  // what was answered counts as eos
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t workspace_bytes_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace troupe::actors
