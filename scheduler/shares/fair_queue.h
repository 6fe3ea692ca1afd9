// The requests that wait for admission, and which of them goes next.
//
// First the tenant: the one that FairShares says, among those with fewer places and claims in the batch than the
// max_running of their first request; the requests of others wait, and hold up none. Then, among that tenant's
// requests, lower priority numbers, always. Within a priority the request with the longest cached or in-flight prefix
// goes first (then the oldest), and no request is overtaken more than kMaxOvertaken times: a prefix hit may change the
// order but must not starve a request (SGLang's plain longest-prefix order starves cold requests). Only the oldest
// kMaxOvertaken + 1 are candidates: with more, hits far back in the queue use up the overtaking that requests allow
// (128 shuffled requests over 8 prefixes with room for 3: 84-87 % of prefix blocks hit instead of 87-89 %; 93.75 % is
// the most there can be).
//
// Requests with a deadline go before the others of their priority, in the order in which they have to begin: least
// slack first, since the time left shrinks for all of them alike. After kMaxOvertaken of them in a row one of the
// others goes, so that deadlines starve nothing.
//
// A request that kMaxPassed more urgent ones of its tenant have passed gets the priority of the last of them, for good:
// a stream of urgent requests starves nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/rank.h"
#include "scheduler/shares/admission.h"
#include "scheduler/shares/fair_shares.h"

namespace troupe::scheduler {

inline constexpr std::uint32_t kMaxOvertaken = 32;
inline constexpr std::uint32_t kMaxPassed = 128;

// Not thread-safe. push, remove and pick are O(waiting requests).
class FairQueue {
 public:
  // `shares` must outlive the queue. Requests of tenants for which may_admit returns false wait: peek(), pick() and
  // candidates() ignore them.
  explicit FairQueue(const FairShares& shares, std::function<bool(TenantId)> may_admit = {})
      : shares_(&shares), may_admit_(std::move(may_admit)) {}

  // The request's rank among its tenant's, waiting and running. Leases compare the ranks of all tenants, and know
  // neither tenants nor priorities.
  [[nodiscard]] static cache::Rank rank_of(const Demand& demand) { return {demand.priority, demand.arrival}; }

  // Adds a request; the caller bounds their number. A number that is queued already is a bug (asserted).
  void push(RequestNumber number, const Demand& demand);
  // Removes a request. False if it is not queued.
  bool remove(RequestNumber number);

  // The requests among which pick() would choose now, oldest first: the ones to set_prediction() for. None where peek()
  // has none.
  void candidates(std::vector<RequestNumber>& out) const;
  // How many tokens need not be computed for this request (PrefixPrediction: cached + in flight). Kept until the
  // next call; unknown numbers are ignored.
  void set_prediction(RequestNumber number, std::uint32_t tokens);
  // The next to admit, without taking it out; none if the queue is empty, or no tenant in it may run one more.
  [[nodiscard]] std::optional<RequestNumber> peek() const;
  // Removes and returns what peek() returns. If that has no deadline, counts one overtaking for each request before it.
  // priority: set to the one that it has from now on.
  std::optional<RequestNumber> pick(std::int32_t* priority = nullptr);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  struct Entry {
    RequestNumber number;
    Demand demand;
    cache::Rank rank;
    std::uint32_t prediction = 0;
    std::uint32_t overtaken = 0;
    std::uint32_t passed = 0;  // by more urgent ones

    [[nodiscard]] bool has_deadline() const { return demand.due_seconds.has_value(); }
    [[nodiscard]] double due() const { return demand.due_seconds.value_or(std::numeric_limits<double>::infinity()); }
  };
  // A tenant's requests by rank, at least one.
  struct Line : std::vector<Entry> {
    std::uint32_t deadlines_in_a_row = 0;  // that were picked last
  };
  [[nodiscard]] bool may_run_more(const Line& line) const;
  [[nodiscard]] const Line* next_line() const;
  [[nodiscard]] static std::size_t num_candidates(const Line& line);
  [[nodiscard]] static std::size_t choose(const Line& line);
  static void pass(Line& line, std::int32_t priority);

  const FairShares* shares_;
  std::function<bool(TenantId)> may_admit_;
  std::unordered_map<TenantId, Line> lines_;
  std::uint32_t size_ = 0;
};

}  // namespace troupe::scheduler
