// The limits that live requests count against: their tenants' (scheduler::TenantAccounts), and those that all share.
// Part of StreamTable, whose lock guards it.
//
// Each call that takes something returns the refusal if a limit or the tenant's share is reached, with the time after
// which a retry should succeed; the caller then ends the request, and end() gives back what it still holds. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "actors/requests/request.h"
#include "config/options/server_limits.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/request_line.h"
#include "scheduler/shares/shared_limit.h"
#include "scheduler/shares/tenant_accounts.h"

namespace troupe::actors {

class RequestLimits {
 public:
  // What one stream counts against the limits.
  struct Held {
    bool quota = false;
    bool queue_room = false;
    std::uint64_t queue_tokens = 0;
    std::uint64_t charged_prompt = 0;  // tokens taken from the tenant's of this minute
    std::uint64_t embed_bytes = 0;
    // Of the first choice only (scheduler::Caller): content_of() of the request, and whether it is a retry at the time
    // that a refusal named, or has its place already.
    std::uint64_t content = 0;
    bool came_back = false;
  };

  explicit RequestLimits(const config::StreamLimits& limits);

  // StreamTable::take_queue_room(). choices: of all live choices of the request, the first one's first.
  std::optional<scheduler::Refusal> take_queue_room(const Request& request, std::span<Held* const> choices,
                                                    TimePoint now);
  // StreamTable::retake_queue_room(), for a stream that has room in the queue.
  std::optional<scheduler::Refusal> retake_queue_room(const Request& request, Held& held, std::uint64_t prompt_tokens,
                                                      TimePoint now);
  std::optional<scheduler::Refusal> take_quota(const Request& request, std::span<Held* const> choices, TimePoint now);
  std::optional<scheduler::Refusal> take_embed_bytes(const Request& request, Held& held, std::uint64_t bytes,
                                                     TimePoint now);
  // A tenant with a full share of parked streams begins no other.
  std::optional<scheduler::Refusal> check_parked(const Request& request, const Held& held, TimePoint now);

  // StreamTable::room_of().
  scheduler::RequestLoad room_of(const scheduler::Tenant& tenant, TimePoint now);

  void leave_queue(TenantId tenant, Held& held);  // it runs, is parked or ends; calls after the first change nothing
  void end(const Request& request, const Held& held, bool has_run, bool is_refused, TimePoint now);
  void take_answer(const scheduler::Tenant& tenant, std::uint64_t tokens, TimePoint now);
  scheduler::SharedLimit& parked() { return parked_; }  // streams
  const scheduler::SharedLimit& parked() const { return parked_; }

 private:
  scheduler::Refusal with_retry(scheduler::Refusal refusal, const Request& request, const Held& held, TimePoint now);

  scheduler::TenantAccounts accounts_;
  scheduler::SharedLimit queued_requests_, queued_tokens_;
  scheduler::SharedLimit parked_;
  scheduler::SharedLimit embed_bytes_;  // of texts, ids and vectors of Embed requests
};

}  // namespace troupe::actors
