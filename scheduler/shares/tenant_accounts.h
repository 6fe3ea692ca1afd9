// What each tenant holds and has spent, against its limits, and when a refused request may come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "scheduler/shares/admission.h"
#include "scheduler/shares/drain_rate.h"
#include "scheduler/shares/expected_retries.h"
#include "scheduler/shares/tenant.h"
#include "scheduler/shares/token_bucket.h"

namespace troupe::scheduler {

// Every retry_after lies between these, but for those of a bucket, which may be shorter.
inline constexpr double kShortestRetrySeconds = 0.05;
inline constexpr double kLongestRetrySeconds = 60;
// Where a debt of answer tokens takes longer to pay back, a retry after this time is refused again.
inline constexpr double kLongestDebtSeconds = 3600;

// The request that a call is for.
struct Caller {
  // content: equal for a request and its retry, most likely different for others; 0: not known.
  Caller(const Tenant& of, std::uint64_t with_content = 0, bool again = false)  // NOLINT: a tenant alone is a caller
      : tenant(of), content(with_content), came_back(again) {}

  const Tenant& tenant;
  std::uint64_t content;
  bool came_back;  // what comes_back() said, or that it has a place already
};

// A request at its arrival.
struct Arrival {
  std::uint32_t num_choices = 1;
  std::uint64_t prompt_tokens = 0;  // of all texts of an Embed
  bool is_estimate = false;         // prompt_tokens is: the prompt is a text
  bool wants_answer = true;         // false: an Embed
};

// Refusals have Outcome::quota, the limit's name and value, and when a retry can succeed: exactly for the buckets, if
// the tenant spends nothing meanwhile; where requests have to end first, by how fast those of the tenant end, so that
// nine of ten retries find a place. Requests refused one after another get places one after another, and those that
// were told to come back are known by their content for some time: others leave them places and tokens, up to half of
// the limit (the other half is never kept idle for callers that stay away).
//
// The limits are those of the request's policy; a tenant without policy has only max_requests_per_user. An account
// whose tenant holds nothing, and whose buckets are full, is forgotten in time: there are at most twice as many
// accounts as tenants in use, and kMinAccounts.
//
// Times are seconds of any clock. Not thread-safe. O(1), amortised.
class TenantAccounts {
 public:
  explicit TenantAccounts(std::uint32_t max_requests_per_user) : max_requests_(max_requests_per_user) {}

  // Whether a request with this content was told to come back about now; true once for each that was.
  [[nodiscard]] bool comes_back(const Tenant& tenant, std::uint64_t content, double now);
  // The places of a limit that this caller leaves to those that were told to come back.
  [[nodiscard]] std::uint64_t places_for_others(const Caller& caller, std::uint64_t limit, double now);

  // Counts the choices of a request as waiting, or refuses it: by max_choices, max_queued, and by the buckets if
  // nothing is left of the answers', or not enough for the prompt of the prompts'. Takes no tokens. An estimate of the
  // prompt that is more than a minute's tokens needs a full bucket.
  [[nodiscard]] std::optional<Refusal> queue(const Caller& caller, const Arrival& arrival, double now);
  // Choices that were counted as waiting do not wait any more.
  void unqueue(TenantId tenant, std::uint32_t count = 1);

  // Counts so many more live requests, from admission to end. Guests with the tenant of an owner who has sent requests
  // (over TCP the server's own user may have them) leave a part to it: kept_for_owner_of().
  [[nodiscard]] std::optional<Refusal> admit(const Caller& caller, std::uint32_t count, double now);
  // So many live requests this caller's may become.
  [[nodiscard]] std::uint64_t most_live(const Caller& caller, double now);
  // One that was admitted (asserted) has ended. served: it was computed.
  void end(TenantId tenant, bool served, double now);
  [[nodiscard]] std::uint32_t live(TenantId tenant) const;

  // Takes the tokens of an encoded prompt; those that the cache has count as any.
  [[nodiscard]] std::optional<Refusal> take_prompt(const Caller& caller, std::uint64_t tokens, double now);
  void give_back_prompt(const Tenant& tenant, std::uint64_t tokens, double now);
  // Takes tokens of an answer. A running answer goes on when nothing is left: new requests wait until that is paid
  // back.
  void take_answer(const Tenant& tenant, std::uint64_t tokens, double now);

  // Sets retry_after of a SharedLimit's refusal, unless that is set.
  void set_retry_after(Refusal& refusal, const Caller& caller, double now);

  [[nodiscard]] std::size_t size() const { return accounts_.size(); }

  static constexpr std::size_t kMinAccounts = 64;

 private:
  struct Account {
    std::uint32_t queued = 0;
    DrainRate requests;         // the live ones
    double reserved_until = 0;  // when the last refused request has a place
    std::optional<TokenBucket> prompt, answer;
    ExpectedRetries retries{};
    bool has_owner = false;  // it has sent requests

    [[nodiscard]] bool says_nothing(double now);
  };

  Account& account_of(TenantId tenant, double now);
  static double wait_for_places(Account& account, DrainRate& requests, double places, double now);
  static void expect_retry(Account& account, const Caller& caller, const Refusal& refusal, std::uint64_t tokens,
                           double now);
  static std::uint64_t kept_places(Account& account, const Caller& caller, std::uint64_t limit, double now);
  std::uint64_t kept_for_owner(const Account& account, const Caller& caller) const;
  static std::optional<Refusal> check_prompt(Account& account, const Caller& caller, std::uint64_t tokens, double now);

  std::uint32_t max_requests_;
  std::unordered_map<TenantId, Account> accounts_;
  std::size_t forget_at_ = kMinAccounts;
  DrainRate all_;
};

}  // namespace troupe::scheduler
