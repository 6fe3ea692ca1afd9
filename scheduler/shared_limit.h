// A limit that all users share, and of which none of them can take all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "scheduler/admission.h"

namespace troupe::scheduler {

// On whose account something is held.
struct Tenant {
  std::uint32_t uid = 0;
  bool is_owner = false;  // the user who runs the server, or root
};

// Of any shared limit: a guest may hold a quarter (at least 1), the owner all but a quarter. Fixed parts, because
// nobody knows how many users there will be; with one active user the rest stays free for who comes next.
[[nodiscard]] constexpr std::uint64_t share_of(std::uint64_t limit, bool is_owner) {
  if (is_owner) return limit - limit / 4;
  return limit < 4 ? (limit > 0 ? 1 : 0) : limit / 4;
}
// What guests cannot take, all of them together: a sixteenth, at least 1; nothing of a limit of 1.
[[nodiscard]] constexpr std::uint64_t kept_for_owner_of(std::uint64_t limit) {
  if (limit < 2) return 0;
  return limit < 16 ? 1 : limit / 16;
}

struct SharedLimitOptions {
  std::string name;  // in the configuration: "max_queued_texts"
  std::string what;  // is counted: "queued texts"
  std::uint64_t limit = 0;
  // One that is larger than the whole limit is taken while nothing else is held.
  bool takes_any_alone = false;
};

// Not thread-safe. O(1).
class SharedLimit {
 public:
  explicit SharedLimit(SharedLimitOptions options) : options_(std::move(options)) {}

  // Counts so much more on this tenant's account, or says why not: Outcome::queue_full if the limit is met,
  // Outcome::quota if only the tenant's share is. A tenant who holds nothing may go beyond the share with one thing,
  // where it fits into the limit.
  [[nodiscard]] std::optional<Refusal> try_take(const Tenant& tenant, std::uint64_t amount = 1);
  // Whether the share allows so much more, whatever others hold. Takes nothing.
  [[nodiscard]] std::optional<Refusal> check_share(const Tenant& tenant, std::uint64_t amount = 1) const;
  // Counts what cannot be refused any more; it may go beyond the share and the limit.
  void take(std::uint32_t uid, std::uint64_t amount = 1);
  // Some of what was taken (asserted) is gone.
  void give_back(std::uint32_t uid, std::uint64_t amount = 1);

  [[nodiscard]] std::uint64_t limit() const { return options_.limit; }
  [[nodiscard]] std::uint64_t held() const { return held_; }
  [[nodiscard]] std::uint64_t held_by(std::uint32_t uid) const;

 private:
  SharedLimitOptions options_;
  std::uint64_t held_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> held_by_;  // only tenants with something
};

}  // namespace troupe::scheduler
