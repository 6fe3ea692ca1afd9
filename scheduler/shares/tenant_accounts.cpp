#include "scheduler/shares/tenant_accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "config/assert.h"
#include "scheduler/shares/shared_limit.h"

namespace troupe::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// While nothing of the tenant's has ended there is no rate, and this is the first guess.
constexpr double kFirstGuessSeconds = 1;
// Of a number of ends that are independent of each other, k take longer than (k + kSpread * sqrt(k)) mean times in
// about one of ten cases.
constexpr double kSpread = 1.3;

std::string for_retries(std::uint64_t places) {
  return places == 0 ? "" : fmt::format(", {} of them for requests that were refused before", places);
}

std::string for_owner(std::uint64_t places) {
  return places == 0 ? "" : fmt::format(", {} of them for the owner's", places);
}

const TenantLimits& limits_of(const Tenant& tenant) {
  static const TenantLimits none;
  return tenant.policy ? tenant.policy->limits : none;
}

Refusal over(const char* limit_name, std::uint64_t limit, double retry_after, std::string message) {
  return {.outcome = Outcome::quota,
          .message = std::move(message),
          .field = limit_name,
          .limit = limit,
          .retry_after = retry_after};
}

TokenBucket& bucket_of(std::optional<TokenBucket>& bucket, std::uint64_t per_minute) {
  const auto capacity = static_cast<double>(per_minute);
  if (!bucket) {
    bucket.emplace(capacity, capacity / 60);
  } else {
    bucket->resize(capacity, capacity / 60);  // the rules may have changed
  }
  return *bucket;
}

Refusal longer_than_a_minute(const Tenant& tenant, std::uint64_t tokens, std::uint64_t per_minute) {
  return over("max-prompt-tokens-per-minute", per_minute, kNever,
              fmt::format("{} prompt tokens are more than {} may send in a minute, {} (max-prompt-tokens-per-minute), "
                          "so no retry can succeed; send less at once",
                          tokens, name_of(tenant), per_minute));
}

// The refusal of what no time can change.
std::optional<Refusal> check_for_ever(const Tenant& tenant, const Arrival& arrival) {
  const TenantLimits& limits = limits_of(tenant);
  const auto may_have_none = [&](const char* name) {
    return over(name, 0, kNever, fmt::format("{} may not do this here: {} is 0", name_of(tenant), name));
  };
  if (limits.max_choices && arrival.num_choices > *limits.max_choices)
    return over("max-choices", *limits.max_choices, kNever,
                fmt::format("{} may ask for {} answers to one request (max-choices), and this one asks for {}; ask for "
                            "fewer",
                            name_of(tenant), *limits.max_choices, arrival.num_choices));
  if (limits.max_queued && arrival.num_choices > *limits.max_queued)
    return over("max-queued", *limits.max_queued, kNever,
                fmt::format("{} answers are more than {} may have waiting at once, {} (max-queued); ask for fewer",
                            arrival.num_choices, name_of(tenant), *limits.max_queued));
  if (arrival.wants_answer && limits.max_running == 0u) return may_have_none("max-running");
  if (arrival.wants_answer && limits.max_answer_tokens_per_minute == 0u)
    return may_have_none("max-answer-tokens-per-minute");
  if (limits.max_prompt_tokens_per_minute && !arrival.is_estimate &&
      arrival.prompt_tokens > *limits.max_prompt_tokens_per_minute)
    return longer_than_a_minute(tenant, arrival.prompt_tokens, *limits.max_prompt_tokens_per_minute);
  return std::nullopt;
}

std::optional<Refusal> check_answers(TokenBucket& bucket, const Tenant& tenant, double now) {
  const double wait = bucket.wait_for(0, now);
  if (wait == 0) return std::nullopt;
  const std::uint64_t per_minute = *limits_of(tenant).max_answer_tokens_per_minute;
  return over("max-answer-tokens-per-minute", per_minute, std::min(wait, kLongestDebtSeconds),
              fmt::format("{} may be given {} answer tokens in a minute (max-answer-tokens-per-minute), and has had "
                          "{:.0f} more; wait until these are made up for",
                          name_of(tenant), per_minute, std::ceil(-bucket.level(now))));
}

}  // namespace

std::optional<Refusal> TenantAccounts::queue(const Caller& caller, const Arrival& arrival, double now) {
  const Tenant& tenant = caller.tenant;
  if (auto refused = check_for_ever(tenant, arrival)) return refused;
  const TenantLimits& limits = limits_of(tenant);
  Account& account = account_of(tenant.id, now);
  if (const auto max = limits.max_queued) {
    const std::uint64_t kept = kept_places(account, caller, *max, now);
    if (account.queued + arrival.num_choices + kept > *max) {
      Refusal refusal = over("max-queued", *max, wait_for_places(account, account.requests, arrival.num_choices, now),
                             fmt::format("{} has {} waiting requests, and may have {} (max-queued){}; wait until some "
                                         "have begun",
                                         name_of(tenant), account.queued, *max, for_retries(kept)));
      expect_retry(account, caller, refusal, 0, now);
      return refusal;
    }
  }
  if (const auto max = limits.max_answer_tokens_per_minute; max && arrival.wants_answer) {
    if (auto refused = check_answers(bucket_of(account.answer, *max), tenant, now)) return refused;
  }
  if (const auto max = limits.max_prompt_tokens_per_minute) {
    if (auto refused = check_prompt(account, caller, std::min(arrival.prompt_tokens, *max), now)) return refused;
  }
  account.queued += arrival.num_choices;
  return std::nullopt;
}

void TenantAccounts::unqueue(TenantId tenant, std::uint32_t count) {
  Account& account = accounts_.at(tenant);
  TROUPE_ASSERT(account.queued >= count);
  account.queued -= count;
}

std::optional<Refusal> TenantAccounts::admit(const Caller& caller, std::uint32_t count, double now) {
  if (count == 0) return std::nullopt;
  Account& account = account_of(caller.tenant.id, now);
  const std::uint32_t live = account.requests.live();
  account.has_owner = account.has_owner || caller.tenant.is_owner;
  const std::uint64_t kept = kept_places(account, caller, max_requests_, now);
  const std::uint64_t owners = kept_for_owner(account, caller);
  if (live + count + kept + owners > max_requests_) {
    const bool never = count + owners > max_requests_;
    Refusal refusal = over(
        "max_requests_per_user", max_requests_, never ? kNever : wait_for_places(account, account.requests, count, now),
        fmt::format("{} has {} requests here, and may have {} (max_requests_per_user){}{}; {}", name_of(caller.tenant),
                    live, max_requests_, for_retries(kept), for_owner(owners),
                    never ? "ask for fewer answers" : "wait until one has ended"));
    expect_retry(account, caller, refusal, 0, now);
    return refusal;
  }
  account.requests.begin(count, now);
  all_.begin(count, now);
  return std::nullopt;
}

void TenantAccounts::end(TenantId tenant, bool served, double now) {
  accounts_.at(tenant).requests.end(served, now);
  all_.end(served, now);
}

std::uint32_t TenantAccounts::live(TenantId tenant) const {
  const auto found = accounts_.find(tenant);
  return found == accounts_.end() ? 0 : found->second.requests.live();
}

std::uint64_t TenantAccounts::most_live(const Caller& caller, double now) {
  Account& account = account_of(caller.tenant.id, now);
  return max_requests_ - kept_places(account, caller, max_requests_, now) - kept_for_owner(account, caller);
}

std::uint64_t TenantAccounts::kept_for_owner(const Account& account, const Caller& caller) const {
  return account.has_owner && !caller.tenant.is_owner ? kept_for_owner_of(max_requests_) : 0;
}

std::optional<Refusal> TenantAccounts::take_prompt(const Caller& caller, std::uint64_t tokens, double now) {
  const auto max = limits_of(caller.tenant).max_prompt_tokens_per_minute;
  if (!max) return std::nullopt;
  if (tokens > *max) return longer_than_a_minute(caller.tenant, tokens, *max);
  Account& account = account_of(caller.tenant.id, now);
  if (auto refused = check_prompt(account, caller, tokens, now)) return refused;
  account.prompt->take(static_cast<double>(tokens), now);
  return std::nullopt;
}

// Whether the bucket has so many, beside those for others. Takes nothing.
std::optional<Refusal> TenantAccounts::check_prompt(Account& account, const Caller& caller, std::uint64_t tokens,
                                                    double now) {
  const std::uint64_t per_minute = *limits_of(caller.tenant).max_prompt_tokens_per_minute;
  TokenBucket& bucket = bucket_of(account.prompt, per_minute);
  const std::uint64_t for_others = caller.came_back ? 0 : account.retries.tokens(now);
  const std::uint64_t kept = std::min({for_others, per_minute / 2, per_minute - tokens});
  if (bucket.wait_for(static_cast<double>(tokens + kept), now) == 0) return std::nullopt;
  Refusal refusal =
      over("max-prompt-tokens-per-minute", per_minute, bucket.reserve(static_cast<double>(tokens), now),
           fmt::format("{} may send {} prompt tokens in a minute (max-prompt-tokens-per-minute), of which {:.0f} are "
                       "left{}, and this takes {}; wait until enough are left",
                       name_of(caller.tenant), per_minute, std::floor(std::max(bucket.level(now), 0.0)),
                       for_retries(kept), tokens));
  expect_retry(account, caller, refusal, tokens, now);
  return refusal;
}

void TenantAccounts::give_back_prompt(const Tenant& tenant, std::uint64_t tokens, double now) {
  const auto found = accounts_.find(tenant.id);
  if (found != accounts_.end() && found->second.prompt)
    found->second.prompt->give_back(static_cast<double>(tokens), now);
}

void TenantAccounts::take_answer(const Tenant& tenant, std::uint64_t tokens, double now) {
  const auto max = limits_of(tenant).max_answer_tokens_per_minute;
  if (!max) return;
  auto& bucket = account_of(tenant.id, now).answer;
  // What a request with an older policy is given must not bring its limit back.
  (bucket ? *bucket : bucket_of(bucket, *max)).take(static_cast<double>(tokens), now);
}

void TenantAccounts::set_retry_after(Refusal& refusal, const Caller& caller, double now) {
  if (refusal.retry_after) return;
  Account& account = account_of(caller.tenant.id, now);
  DrainRate& requests = refusal.outcome == Outcome::queue_full ? all_ : account.requests;
  const double places = std::max(1.0, std::round(refusal.to_free * requests.live()));
  refusal.retry_after = wait_for_places(account, requests, places, now);
  expect_retry(account, caller, refusal, 0, now);
}

bool TenantAccounts::comes_back(const Tenant& tenant, std::uint64_t content, double now) {
  const auto account = accounts_.find(tenant.id);
  return account != accounts_.end() && account->second.retries.take(content, now);
}

std::uint64_t TenantAccounts::places_for_others(const Caller& caller, std::uint64_t limit, double now) {
  return kept_places(account_of(caller.tenant.id, now), caller, limit, now);
}

std::uint64_t TenantAccounts::kept_places(Account& account, const Caller& caller, std::uint64_t limit, double now) {
  return caller.came_back ? 0 : std::min(account.retries.places(now), limit / 2);
}

void TenantAccounts::expect_retry(Account& account, const Caller& caller, const Refusal& refusal, std::uint64_t tokens,
                                  double now) {
  if (caller.content != 0 && std::isfinite(*refusal.retry_after))
    account.retries.add(caller.content, *refusal.retry_after, tokens, now);
}

// Seconds until so many of `requests` will have ended, and those that the tenant's other refused requests wait for.
double TenantAccounts::wait_for_places(Account& account, DrainRate& requests, double places, double now) {
  const auto each = requests.seconds_each(now);
  if (!each) return std::clamp(requests.busy_seconds(now), kFirstGuessSeconds, kLongestRetrySeconds);
  const double ready = std::max(now, account.reserved_until) + places * *each;
  account.reserved_until = std::min(ready, now + kLongestRetrySeconds);
  const double turns = *each > 0 ? (ready - now) / *each : 0;
  return std::clamp((turns + kSpread * std::sqrt(turns)) * *each, kShortestRetrySeconds, kLongestRetrySeconds);
}

bool TenantAccounts::Account::says_nothing(double now) {
  const auto is_full = [&](const std::optional<TokenBucket>& bucket) { return !bucket || bucket->is_full(now); };
  return !has_owner && queued == 0 && requests.live() == 0 && reserved_until <= now && retries.empty(now) &&
         is_full(prompt) && is_full(answer);
}

// Forgets accounts when their number has doubled, which makes it O(1) for each new one.
TenantAccounts::Account& TenantAccounts::account_of(TenantId tenant, double now) {
  const auto found = accounts_.find(tenant);
  if (found != accounts_.end()) return found->second;
  if (accounts_.size() >= forget_at_) {
    for (auto it = accounts_.begin(); it != accounts_.end();)
      it = it->second.says_nothing(now) ? accounts_.erase(it) : std::next(it);
    forget_at_ = std::max(kMinAccounts, 2 * accounts_.size());
  }
  return accounts_[tenant];
}

}  // namespace troupe::scheduler
