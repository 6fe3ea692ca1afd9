// The delays between retries of a refused request. Uses SplitMix64 (Steele, Lea, Flood 2014), so that the delays are
// the same with every standard library.
#include <algorithm>

#include "ipc/client/client.h"

namespace troupe::client {
namespace {

std::uint64_t split_mix(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

Backoff::Backoff(const RetryPolicy& policy) : policy_(policy), random_(policy.seed) {}

std::optional<std::chrono::milliseconds> Backoff::next(const Ended& ended) {
  const bool refused = scheduler::info(ended.outcome).kind == scheduler::OutcomeKind::refused;
  // A draining server will close the connection: a retry needs a new connection, to the next server.
  if (!refused || !ended.retry_after || ended.outcome == Outcome::draining) return std::nullopt;
  if (retries_ >= policy_.max_retries || *ended.retry_after > policy_.max_delay) return std::nullopt;
  // 2^20 times the first delay is beyond every sensible max_delay, and more doublings would overflow.
  const std::uint32_t doublings = std::min(retries_++, 20u);
  const auto base = std::max<std::int64_t>(1, ended.retry_after->count());
  const std::int64_t delay =
      base > (policy_.max_delay.count() >> doublings) ? policy_.max_delay.count() : base << doublings;
  const auto spread = static_cast<std::uint64_t>(delay / 2 + 1);
  return std::chrono::milliseconds(delay + static_cast<std::int64_t>(split_mix(random_) % spread));
}

}  // namespace troupe::client
