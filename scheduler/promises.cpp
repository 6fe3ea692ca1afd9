#include "scheduler/promises.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

constexpr double kMarginStep = 0.15;  // of PromiseMargin
constexpr double kLeastMargin = 1.1, kMostMargin = 4;
constexpr double kLeastWait = 0.1;
constexpr double kSpacing = 1.4;
constexpr double kRecovery = 120;  // seconds, of a margin that has risen

double promised_part(const Forecast& expected, const ForecastRequest& request) {
  return request.promised_last ? expected.last_seconds : expected.first_seconds;
}

// The share of the time of each tenant that has requests, by weight.
class Shares {
 public:
  Shares(const ForecastServer& server, std::span<const ForecastRequest> requests, const ForecastRequest& next)
      : server_(server), requests_(requests), next_(next) {
    for (const ForecastRequest& request : requests) of(request).work += work_of(request) / request.weight;
    of(next);
    for (const auto& [id, tenant] : tenants_) weights_ += tenant.weight;
  }

  // Whether its share alone is enough for `next`, beside what else the tenant has.
  bool is_carried() {
    if (!is_carried_) {
      const TenantId own = next_.demand.tenant;
      const Forecast expected = forecast(part_of(own), requests_of(own, nullptr), next_);
      is_carried_ = promised_part(expected, next_) <= *next_.promised;
    }
    return *is_carried_;
  }
  // Whether the tenant of `next` is below its share beside this one: its share alone is enough for `next`, or it has
  // less to compute than the other, by weight, so that fair turns end with the other's requests.
  bool goes_before(TenantId other) {
    const TenantId own = next_.demand.tenant;
    if (other == own) return false;
    return tenants_.at(own).work < tenants_.at(other).work || is_carried();
  }
  // What `next` takes of its tenant's share, in a full batch, and some more, as it comes back at a random time.
  double work_at_share() const { return kSpacing * server_.slowdown * work_of(next_) * weights_ / next_.weight; }
  // Whether the share alone of the request's tenant is enough for its promise.
  bool carries(std::size_t request) {
    const TenantId id = requests_[request].demand.tenant;
    Tenant& tenant = tenants_.at(id);
    if (!tenant.beyond) {
      std::vector<std::size_t> indices;
      const auto own = requests_of(id, &indices);
      tenant.beyond.emplace();
      for (const std::size_t i : missed(part_of(id), own)) tenant.beyond->push_back(indices[i]);
    }
    return !std::ranges::binary_search(*tenant.beyond, request);
  }

 private:
  struct Tenant {
    double weight = 1;
    double work = 0;                                   // seconds of computing that are left, divided by the weight
    std::optional<std::vector<std::size_t>> beyond{};  // requests whose promise the share alone does not keep
  };

  Tenant& of(const ForecastRequest& request) {
    return tenants_.try_emplace(request.demand.tenant, Tenant{.weight = request.weight}).first->second;
  }
  // As if every step were full: only compared.
  double work_of(const ForecastRequest& request) const {
    const StepLoad full{.num_tokens = server_.max_step_tokens, .num_outputs = server_.max_sequences};
    StepLoad prompt, answer;
    prompt.add_row(request.computed, request.known - request.computed, 0);
    answer.add_row(request.known + request.answer / 2, 1, 1);
    return server_.costs->share(prompt, full) + request.answer * server_.costs->share(answer, full);
  }
  ForecastServer part_of(TenantId tenant) const {
    const double part = tenants_.at(tenant).weight / weights_;
    ForecastServer server = server_;
    server.slowdown /= part;
    server.max_sequences = std::max(1u, static_cast<std::uint32_t>(server.max_sequences * part));
    return server;
  }
  std::vector<ForecastRequest> requests_of(TenantId tenant, std::vector<std::size_t>* indices) const {
    std::vector<ForecastRequest> result;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].demand.tenant != tenant) continue;
      result.push_back(requests_[i]);
      if (indices) indices->push_back(i);
    }
    return result;
  }

  const ForecastServer& server_;
  std::span<const ForecastRequest> requests_;
  const ForecastRequest& next_;
  std::unordered_map<TenantId, Tenant> tenants_;
  double weights_ = 0;
  std::optional<bool> is_carried_{};  // next
};

struct Attempt {
  Forecast expected;
  bool is_met = false;  // it is in time, and so are the others that count
};

// num_live: of the requests, the first that are not booked.
Attempt attempt(const ForecastServer& server, std::span<const ForecastRequest> requests, std::size_t num_live,
                const ForecastRequest& next) {
  Shares shares(server, requests, next);
  Attempt result{.expected = forecast(server, requests, next)};
  const auto counts = [&](std::size_t i) {
    return i >= num_live || !shares.goes_before(requests[i].demand.tenant) || shares.carries(i);
  };
  result.is_met =
      promised_part(result.expected, next) <= *next.promised && std::ranges::none_of(result.expected.broken, counts);
  return result;
}

// Until another try, such that it is promised then if nothing else arrives: as late as it can begin and still be done
// when it would be if it stood behind all the others, or when these are done.
double wait_for(const ForecastServer& server, std::span<const ForecastRequest> requests, const ForecastRequest& next) {
  ForecastRequest last = next;
  last.demand.priority = std::numeric_limits<std::int32_t>::max();
  last.demand.due_seconds.reset();
  const double done = promised_part(forecast(server, requests, last), last);
  const double shortest = promised_part(alone(server, next), next);
  const double soon = std::max(kLeastWait, done - *next.promised);
  ForecastRequest again = next;
  again.from_seconds = soon;
  *again.promised += soon;
  if (again.demand.due_seconds) *again.demand.due_seconds += soon;
  return attempt(server, requests, requests.size(), again).is_met ? soon : std::max(soon, done - shortest);
}

}  // namespace

void PromiseMargin::learn(bool was_kept) {
  factor_ = std::clamp(factor_ * (1 + kMarginStep * (was_kept ? -kMissed : 1 - kMissed)), kLeastMargin, kMostMargin);
}

void append_expected(std::vector<ForecastRequest>& requests, const RecentUse& use, const ForecastRequest& next,
                     double now) {
  constexpr std::uint32_t kKnown = 256, kEndless = 1u << 30;  // tokens
  std::unordered_set<TenantId> present{next.demand.tenant};
  for (const ForecastRequest& request : requests) present.insert(request.demand.tenant);
  use.for_each(now, [&](TenantId tenant, double weight, double part) {
    if (present.contains(tenant)) return;
    requests.push_back({.demand = {.tenant = tenant, .prompt_tokens = 1},
                        .weight = std::min(weight, next.weight * part / std::max(1 - part, 0.01)),
                        .known = kKnown,
                        .computed = kKnown - 1,
                        .answer = kEndless,
                        .is_running = true});
  });
}

void PromiseMargin::recover(double seconds) {
  if (factor_ > kRecovered) factor_ = kRecovered + (factor_ - kRecovered) * std::exp(-seconds / kRecovery);
}

double PromiseMargins::factor(TenantId tenant, double now) const {
  const auto found = margins_.find(tenant);
  if (found == margins_.end()) return PromiseMargin::kFirst;
  PromiseMargin margin = found->second.margin;
  margin.recover(now - found->second.at);
  return margin.factor();
}

void PromiseMargins::learn(TenantId tenant, bool was_kept, double now) {
  if (margins_.size() >= kMaxTenants && !margins_.contains(tenant)) margins_.clear();
  Learned& learned = margins_.try_emplace(tenant, Learned{.at = now}).first->second;
  learned.margin.recover(now - learned.at);
  learned.margin.learn(was_kept);
  learned.at = now;
}

// What is booked does not run yet: it would hide whose promises this one breaks.
PromiseAnswer decide_promise(const ForecastServer& server, std::span<const ForecastRequest> requests,
                             std::span<const ForecastRequest> booked, const ForecastRequest& next, bool came_back) {
  TROUPE_ASSERT(next.promised);
  std::vector<ForecastRequest> all(requests.begin(), requests.end());
  all.insert(all.end(), booked.begin(), booked.end());
  // What its tenant's share carries, beside what is booked for that tenant, does not wait for what is booked for
  // others.
  Shares shares(server, all, next);
  std::vector<ForecastRequest> before(requests.begin(), requests.end());
  for (const ForecastRequest& each : booked)
    if (each.demand.tenant == next.demand.tenant || !shares.is_carried()) before.push_back(each);
  Attempt tried = attempt(server, requests, requests.size(), next);
  if (tried.is_met && !came_back && before.size() > requests.size())
    tried = attempt(server, before, requests.size(), next);
  return {.expected = std::move(tried.expected),
          .wait = tried.is_met ? 0 : wait_for(server, requests, next),
          .work = shares.work_at_share()};
}

}  // namespace troupe::scheduler
