// What the receipts of streams say about computing: what was charged to each, what it held meanwhile, and what part of
// all computing its tenant had. Plain values: times are arguments. Not thread-safe: the StreamTable owns them.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "actors/requests/request.h"

namespace troupe::actors {

// One stream's part of a step, or a pass over texts of an Embed.
struct Charge {
  RequestId request = 0;
  TenantId tenant{};
  double seconds = 0;
  std::uint32_t num_tokens = 0;  // that were computed
  std::uint32_t num_drafted = 0, num_accepted = 0;
  std::uint32_t num_blocks = 0;  // of KV that the stream holds at its end
};

// Of one stream, from its first step on.
class StreamWork {
 public:
  // It has a place in the batch, with so many blocks: for the first time, again after a preemption, or in a new batch.
  void began(std::uint32_t num_blocks, double parked_seconds, TimePoint now);
  // A step that took step_seconds has ended.
  void charge(const Charge& charge, double step_seconds, TimePoint now);
  // It lost its place and its blocks. While it is out of credit it does not wait for another: unparked() follows.
  void preempted(bool parked, TimePoint now);
  // It has credit again.
  void unparked(TimePoint now);
  // Sets the receipt's figures of a stream that ends now. parked_seconds: as of began(), in all.
  void fill(Usage& usage, double parked_seconds, std::uint32_t num_threads, TimePoint now) const;

 private:
  double held(TimePoint now) const { return num_blocks_ * seconds_between(held_since_, now); }  // block-seconds

  double compute_seconds_ = 0;
  double step_seconds_ = 0;  // of the whole steps
  std::uint64_t computed_tokens_ = 0;
  std::uint64_t drafted_tokens_ = 0, accepted_tokens_ = 0;
  double block_seconds_ = 0;  // until held_since_
  std::uint32_t num_blocks_ = 0;
  TimePoint held_since_{};
  double preempted_seconds_ = 0;  // until preempted_since_
  std::optional<TimePoint> preempted_since_;
  bool has_place_ = false;
  std::optional<TimePoint> first_step_;
  double parked_before_ = 0;  // the first step
};

// The computing that was charged while requests lived, for each tenant that has some. O(1) each.
class ChargedTime {
 public:
  // The sums when a request arrived.
  struct Mark {
    double tenant = 0, all = 0;
  };
  [[nodiscard]] Mark begin(TenantId tenant);
  void charge(TenantId tenant, double seconds);
  // A request that began at `mark` has ended. Returns the tenant's part of what was charged since; 0: nothing was.
  double end(TenantId tenant, const Mark& mark);

 private:
  struct Sum {
    std::uint64_t live = 0;  // requests
    double seconds = 0;
  };
  std::unordered_map<TenantId, Sum> tenants_;  // those with live requests
  double all_ = 0;
};

}  // namespace troupe::actors
