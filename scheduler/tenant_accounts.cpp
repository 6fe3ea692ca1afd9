#include "scheduler/tenant_accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// While nothing of the tenant's has ended there is no rate, and this is the first guess.
constexpr double kFirstGuessSeconds = 1;
// Of a number of ends that are independent of each other, k take longer than (k + kSpread * sqrt(k)) mean times in
// about one of ten cases.
constexpr double kSpread = 1.3;

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

// Takes nothing.
std::optional<Refusal> check_prompt(TokenBucket& bucket, const Tenant& tenant, std::uint64_t tokens, double now) {
  if (bucket.wait_for(static_cast<double>(tokens), now) == 0) return std::nullopt;
  const std::uint64_t per_minute = *limits_of(tenant).max_prompt_tokens_per_minute;
  return over(
      "max-prompt-tokens-per-minute", per_minute, bucket.promise(static_cast<double>(tokens), now),
      fmt::format("{} may send {} prompt tokens in a minute (max-prompt-tokens-per-minute), of which {:.0f} are "
                  "left, and this takes {}; wait until enough are left",
                  name_of(tenant), per_minute, std::floor(std::max(bucket.level(now), 0.0)), tokens));
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

std::optional<Refusal> TenantAccounts::queue(const Tenant& tenant, const Arrival& arrival, double now) {
  if (auto refused = check_for_ever(tenant, arrival)) return refused;
  const TenantLimits& limits = limits_of(tenant);
  Account& account = account_of(tenant.id, now);
  if (const auto max = limits.max_queued; max && account.queued + arrival.num_choices > *max) {
    const std::uint32_t places = account.queued + arrival.num_choices - *max;
    return over("max-queued", *max, wait_for_places(account, account.requests, places, now),
                fmt::format("{} has {} waiting requests, and may have {} (max-queued); wait until some have begun",
                            name_of(tenant), account.queued, *max));
  }
  if (const auto max = limits.max_answer_tokens_per_minute; max && arrival.wants_answer) {
    if (auto refused = check_answers(bucket_of(account.answer, *max), tenant, now)) return refused;
  }
  if (const auto max = limits.max_prompt_tokens_per_minute) {
    const std::uint64_t tokens = std::min(arrival.prompt_tokens, *max);
    if (auto refused = check_prompt(bucket_of(account.prompt, *max), tenant, tokens, now)) return refused;
  }
  account.queued += arrival.num_choices;
  return std::nullopt;
}

void TenantAccounts::unqueue(TenantId tenant, std::uint32_t count) {
  Account& account = accounts_.at(tenant);
  TROUPE_ASSERT(account.queued >= count);
  account.queued -= count;
}

std::optional<Refusal> TenantAccounts::admit(const Tenant& tenant, std::uint32_t count, double now) {
  Account& account = account_of(tenant.id, now);
  const std::uint32_t live = account.requests.live();
  if (live + std::uint64_t{count} > max_requests_) {
    const bool never = count > max_requests_;
    return over("max_requests_per_user", max_requests_,
                never ? kNever : wait_for_places(account, account.requests, live + count - max_requests_, now),
                fmt::format("{} has {} requests here, and may have {} (max_requests_per_user); {}", name_of(tenant),
                            live, max_requests_, never ? "ask for fewer answers" : "wait until one has ended"));
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

std::optional<Refusal> TenantAccounts::take_prompt(const Tenant& tenant, std::uint64_t tokens, double now) {
  const auto max = limits_of(tenant).max_prompt_tokens_per_minute;
  if (!max) return std::nullopt;
  if (tokens > *max) return longer_than_a_minute(tenant, tokens, *max);
  TokenBucket& bucket = bucket_of(account_of(tenant.id, now).prompt, *max);
  if (auto refused = check_prompt(bucket, tenant, tokens, now)) return refused;
  bucket.take(static_cast<double>(tokens), now);
  return std::nullopt;
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

void TenantAccounts::set_retry_after(Refusal& refusal, const Tenant& tenant, double now) {
  if (refusal.retry_after) return;
  Account& account = account_of(tenant.id, now);
  DrainRate& requests = refusal.outcome == Outcome::queue_full ? all_ : account.requests;
  const double places = std::max(1.0, std::round(refusal.to_free * requests.live()));
  refusal.retry_after = wait_for_places(account, requests, places, now);
}

// Seconds until so many of `requests` will have ended, and those that the tenant's other refused requests wait for.
double TenantAccounts::wait_for_places(Account& account, DrainRate& requests, double places, double now) {
  const auto each = requests.seconds_each(now);
  if (!each) return std::clamp(requests.busy_seconds(now), kFirstGuessSeconds, kLongestRetrySeconds);
  const double ready = std::max(now, account.promised_until) + places * *each;
  account.promised_until = std::min(ready, now + kLongestRetrySeconds);
  const double turns = *each > 0 ? (ready - now) / *each : 0;
  return std::clamp((turns + kSpread * std::sqrt(turns)) * *each, kShortestRetrySeconds, kLongestRetrySeconds);
}

bool TenantAccounts::Account::says_nothing(double now) const {
  const auto is_full = [&](const std::optional<TokenBucket>& bucket) { return !bucket || bucket->is_full(now); };
  return queued == 0 && requests.live() == 0 && promised_until <= now && is_full(prompt) && is_full(answer);
}

// Forgets accounts when their number has doubled, which makes it O(1) for each new one.
TenantAccounts::Account& TenantAccounts::account_of(TenantId tenant, double now) {
  const auto found = accounts_.find(tenant);
  if (found != accounts_.end()) return found->second;
  if (accounts_.size() >= forget_at_) {
    std::erase_if(accounts_, [&](const auto& entry) { return entry.second.says_nothing(now); });
    forget_at_ = std::max(kMinAccounts, 2 * accounts_.size());
  }
  return accounts_[tenant];
}

}  // namespace troupe::scheduler
