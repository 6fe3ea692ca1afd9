// What each tenant has used, by hour: what a program keeps of the UsageEntries of its gateway, and answers. Plain
// values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/requests/request.h"
#include "config/result.h"

namespace troupe::actors {

// Identifies a tenant, also after a restart: a user, or a tenant that the server's rules name.
struct UsageTenant {
  std::optional<std::uint32_t> uid;
  std::string name;  // empty if there is a uid
  friend auto operator<=>(const UsageTenant&, const UsageTenant&) = default;
};
[[nodiscard]] UsageTenant usage_tenant(const scheduler::Tenant& tenant);

struct UsageCounts {
  std::uint64_t done = 0;       // requests, each choice counts: ended by the model, a stop or their length
  std::uint64_t cancelled = 0;  // or at their deadline
  std::uint64_t refused = 0;
  std::uint64_t failed = 0;
  std::uint64_t prompt_tokens = 0;  // of requests to generate that began
  std::uint64_t cached_tokens = 0;  // of these
  std::uint64_t answer_tokens = 0;
  std::uint64_t embed_tokens = 0;  // of requests for vectors that began
  double cpu_seconds = 0;
  double block_seconds = 0;

  UsageCounts& operator+=(const UsageCounts& other);
  friend bool operator==(const UsageCounts&, const UsageCounts&) = default;
};
[[nodiscard]] UsageCounts counts_of(const UsageEntry& entry);
// What ended so counts as cancelled.
[[nodiscard]] constexpr bool counts_as_cancelled(scheduler::Outcome outcome) {
  return outcome == scheduler::Outcome::cancelled || outcome == scheduler::Outcome::deadline;
}

// Calls visit(name, member) for each count.
template <class Visit>
void for_each_count(Visit&& visit) {
  visit("done", &UsageCounts::done);
  visit("cancelled", &UsageCounts::cancelled);
  visit("refused", &UsageCounts::refused);
  visit("failed", &UsageCounts::failed);
  visit("prompt_tokens", &UsageCounts::prompt_tokens);
  visit("cached_tokens", &UsageCounts::cached_tokens);
  visit("answer_tokens", &UsageCounts::answer_tokens);
  visit("embed_tokens", &UsageCounts::embed_tokens);
  visit("cpu_seconds", &UsageCounts::cpu_seconds);
  visit("block_seconds", &UsageCounts::block_seconds);
}

// What one row sums up.
enum class UsagePeriod : std::uint8_t { total, day, hour };  // days and hours of UTC

inline constexpr std::int64_t kHourSeconds = 3600;
[[nodiscard]] constexpr std::int64_t begin_of_hour(std::int64_t time) {
  return time - (time % kHourSeconds + kHourSeconds) % kHourSeconds;
}

struct UsageQuery {
  std::int64_t since = 0;  // seconds since 1970; the hour that it is in counts
  UsagePeriod by = UsagePeriod::total;
  std::optional<UsageTenant> only{};  // none: all
};

struct UsageRow {
  std::int64_t begin = 0;  // of the period, in seconds since 1970; of a total 0
  UsageTenant tenant;
  UsageCounts counts;
};

struct UsageReport {
  std::vector<UsageRow> rows;  // by period, then by tenant; at most kMaxUsageRows
  std::string note;            // why the counts are not all that there were; empty: they are
};
inline constexpr std::size_t kMaxUsageRows = 10'000;

// Answers a question about usage: calls the function once, on any thread. An error is of kind busy, invalid_argument or
// io.
using OnUsageReport = std::function<void(Result<UsageReport>)>;
using AskUsage = std::function<void(UsageQuery, OnUsageReport)>;

}  // namespace troupe::actors
