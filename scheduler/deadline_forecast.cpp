#include "scheduler/deadline_forecast.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "config/assert.h"
#include "scheduler/step_bound.h"

namespace troupe::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kFirstAnswerGuess = 256;  // tokens, before any answer has ended
constexpr double kAnswerDecay = 1.0 / 16;  // of the mean, with each answer
// Steps are a fluid here: what is left of less than this part of a token is done.
constexpr double kDust = 1e-6;
constexpr double kShortestStep = 1e-6;  // seconds

// A forecast being made.
class Play {
 public:
  Play(const ForecastServer& server, std::span<const ForecastRequest> requests, const ForecastRequest* next);

  // Until `next` has its last token and no promise is open.
  void run();
  [[nodiscard]] double first(std::size_t request) const { return first_[request]; }
  [[nodiscard]] double last(std::size_t request) const { return last_[request]; }
  // Whether the request has a promise and misses it.
  [[nodiscard]] bool misses(std::size_t request) const {
    const ForecastRequest& of = at(request);
    return of.promised && (of.promised_last ? last_ : first_)[request] * server_.slowdown > *of.promised;
  }

 private:
  struct Prefill {
    std::size_t request = 0;
    double left = 0;  // tokens to compute before the next token of the answer
  };
  struct Decode {
    double end = 0;  // of its answer: after so many of its tenant's steps
    std::size_t request = 0;
  };
  struct Tenant {
    TenantId id{};
    double weight = 1;
    std::vector<std::size_t> waiting{};  // the next one last
    std::vector<Prefill> prefills{};     // in the order in which they get chunks, the next one last
    std::vector<Decode> decodes{};       // a heap, the first to end on top
    double steps = 0;                    // that it was in
    double context = 0;  // of all decodes together, less the tokens that they generated since the beginning
    StepLoad load{};     // of its rows in one step
    double chunk = 0;    // tokens of the prompt in it
    double cost = 0;     // of its rows, in a step with those of all tenants
    double steps_per_second = 0;

    [[nodiscard]] std::size_t places() const { return prefills.size() + decodes.size(); }
  };

  [[nodiscard]] const ForecastRequest& at(std::size_t request) const {
    return request < requests_.size() ? requests_[request] : *next_;
  }
  // Of a tenant's requests, as in FairQueue and, for their prompts, in StepPlanner.
  [[nodiscard]] static auto order_of(const Demand& demand) {
    return std::tuple(demand.priority, demand.due_seconds.value_or(kNever), demand.arrival);
  }
  [[nodiscard]] double step_seconds(const StepLoad& load) const {
    return std::max(server_.costs->predict(load), kShortestStep);
  }
  [[nodiscard]] double computed(const Prefill& of) const { return at(of.request).known - of.left; }
  [[nodiscard]] static bool ends_later(const Decode& a, const Decode& b) { return a.end > b.end; }
  // As time_: without the slowdown.
  [[nodiscard]] double arrival_of(std::size_t request) const { return at(request).from_seconds / server_.slowdown; }
  Tenant& tenant_of(const ForecastRequest& request);
  void start(std::size_t request, Tenant& tenant, double prefill);
  void decode(std::size_t request, Tenant& tenant);
  void arrive();
  void fill_places();
  bool make_place(const Tenant& for_tenant);
  void give_up(Tenant& tenant, std::size_t request);
  [[nodiscard]] double chunk_tokens(const StepLoad& decodes, double pending, double context) const;
  StepLoad set_speeds();
  void jump();
  void had_first(std::size_t request);
  void had_last(std::size_t request);

  const ForecastServer& server_;
  std::span<const ForecastRequest> requests_;
  const ForecastRequest* next_;
  std::vector<Tenant> tenants_;
  std::vector<std::size_t> arriving_;  // the next one last
  std::size_t num_running_ = 0;
  std::vector<double> answer_;        // by request: tokens still to generate when it last got or gave up a place
  std::vector<double> first_, last_;  // by request
  std::size_t num_open_ = 0;          // promises that are neither kept nor missed, and `next`
  double time_ = 0;
};

Play::Play(const ForecastServer& server, std::span<const ForecastRequest> requests, const ForecastRequest* next)
    : server_(server), requests_(requests), next_(next) {
  const std::size_t count = requests.size() + (next ? 1 : 0);
  answer_.resize(count);
  first_.assign(count, kNever);
  last_.assign(count, kNever);
  for (std::size_t i = 0; i < count; ++i) {
    const ForecastRequest& request = at(i);
    TROUPE_ASSERT(request.computed < request.known && request.answer >= 1);
    Tenant& tenant = tenant_of(request);
    answer_[i] = request.answer;
    if (request.known > request.demand.prompt_tokens) first_[i] = 0;
    if (&request == next_ || (request.promised && (request.promised_last || first_[i] == kNever))) ++num_open_;
    if (request.is_running) {
      start(i, tenant, request.known - request.computed);
    } else if (request.from_seconds > 0) {
      arriving_.push_back(i);
    } else {
      tenant.waiting.push_back(i);
    }
  }
  for (Tenant& tenant : tenants_)
    std::ranges::sort(tenant.waiting, std::greater(), [&](std::size_t i) { return order_of(at(i).demand); });
  std::ranges::sort(arriving_, std::greater(), [&](std::size_t i) { return at(i).from_seconds; });
}

Play::Tenant& Play::tenant_of(const ForecastRequest& request) {
  const auto found = std::ranges::find(tenants_, request.demand.tenant, &Tenant::id);
  return found != tenants_.end() ? *found
                                 : tenants_.emplace_back(Tenant{.id = request.demand.tenant, .weight = request.weight});
}

// prefill: tokens; with one left it decodes.
void Play::start(std::size_t request, Tenant& tenant, double prefill) {
  ++num_running_;
  if (prefill <= 1) {
    had_first(request);
    return decode(request, tenant);
  }
  const auto order = [&](const Prefill& of) { return order_of(at(of.request).demand); };
  const Prefill added{.request = request, .left = prefill};
  tenant.prefills.insert(std::ranges::upper_bound(tenant.prefills, order(added), std::greater(), order), added);
}

// It generates what answer_ says.
void Play::decode(std::size_t request, Tenant& tenant) {
  const ForecastRequest& of = at(request);
  tenant.context += of.known + of.answer - answer_[request] - tenant.steps;
  tenant.decodes.push_back({.end = tenant.steps + answer_[request], .request = request});
  std::ranges::push_heap(tenant.decodes, ends_later);
}

void Play::had_first(std::size_t request) {
  if (first_[request] < kNever) return;
  first_[request] = time_;
  const ForecastRequest& of = at(request);
  if (&of != next_ && of.promised && !of.promised_last) --num_open_;
}

void Play::had_last(std::size_t request) {
  last_[request] = time_;
  --num_running_;
  const ForecastRequest& of = at(request);
  if (&of == next_ || (of.promised && of.promised_last)) --num_open_;
}

void Play::run() {
  if (num_running_ > 0) time_ = step_seconds(set_speeds());  // the running step ends first
  while (num_open_ > 0) {
    arrive();
    fill_places();
    if (num_running_ == 0) {
      TROUPE_ASSERT(!arriving_.empty());
      time_ = arrival_of(arriving_.back());
      continue;
    }
    set_speeds();
    jump();
  }
}

// What was to arrive until now waits for a place.
void Play::arrive() {
  const auto order = [&](std::size_t i) { return order_of(at(i).demand); };
  while (!arriving_.empty() && arrival_of(arriving_.back()) <= time_) {
    const std::size_t request = arriving_.back();
    arriving_.pop_back();
    std::vector<std::size_t>& waiting = tenant_of(at(request)).waiting;
    waiting.insert(std::ranges::upper_bound(waiting, order(request), std::greater(), order), request);
  }
}

// As FairQueue: the tenant with the fewest places, then the oldest request.
void Play::fill_places() {
  while (true) {
    Tenant* next = nullptr;
    for (Tenant& tenant : tenants_) {
      if (tenant.waiting.empty()) continue;
      const auto key = [&](const Tenant& of) { return std::tuple(of.places(), at(of.waiting.back()).demand.arrival); };
      if (!next || key(tenant) < key(*next)) next = &tenant;
    }
    if (!next) return;
    if (num_running_ >= server_.max_sequences && !make_place(*next)) return;
    const std::size_t request = next->waiting.back();
    next->waiting.pop_back();
    // What had a place before finds in the cache what it had computed, but for a part of a block.
    const bool is_replay = first_[request] < kNever;
    start(request, *next, is_replay ? kBlockSize / 2.0 : at(request).known - at(request).computed);
  }
}

// As StepPlanner::place_for(): the tenant with most places gives one up if it still has more than the other one has
// now.
bool Play::make_place(const Tenant& for_tenant) {
  Tenant& most = *std::ranges::max_element(tenants_, {}, &Tenant::places);
  if (most.places() <= for_tenant.places() + 1) return false;
  const auto age = [&](std::size_t request) {
    const Demand& demand = at(request).demand;
    return std::tuple(demand.priority, !demand.due_seconds, demand.arrival);
  };
  std::size_t youngest = most.prefills.empty() ? most.decodes.front().request : most.prefills.front().request;
  for (const Prefill& of : most.prefills)
    if (age(of.request) > age(youngest)) youngest = of.request;
  for (const Decode& of : most.decodes)
    if (age(of.request) > age(youngest)) youngest = of.request;
  give_up(most, youngest);
  return true;
}

// Its place.
void Play::give_up(Tenant& tenant, std::size_t request) {
  --num_running_;
  tenant.waiting.push_back(request);
  if (std::erase_if(tenant.prefills, [&](const Prefill& of) { return of.request == request; }) > 0) return;
  const auto found = std::ranges::find(tenant.decodes, request, &Decode::request);
  tenant.context -= at(request).known + at(request).answer - found->end;
  answer_[request] = found->end - tenant.steps;
  tenant.decodes.erase(found);
  std::ranges::make_heap(tenant.decodes, ends_later);
}

// As StepPlanner: what keeps a step within its bound.
double Play::chunk_tokens(const StepLoad& decodes, double pending, double context) const {
  const double room = server_.max_step_tokens - std::min(decodes.num_tokens, server_.max_step_tokens - 1);
  const double most = std::min(pending, room);
  const StepBound bound = step_bound(server_.max_stall_seconds, decodes.num_tokens > 0);
  const auto seconds = [&](double tokens) {
    StepLoad load = decodes;
    load.num_tokens += static_cast<std::uint32_t>(tokens);
    load.num_attended += tokens * (context + 0.5 * tokens);
    return server_.costs->predict(load);
  };
  const double least = std::min<double>(most, bound.least_tokens);
  const double shortest = seconds(least), longest = seconds(most);
  if (longest <= bound.seconds) return most;
  if (shortest >= bound.seconds) return least;
  const double fits = least + (most - least) * (bound.seconds - shortest) / (longest - shortest);
  return std::max(least, std::floor(fits / kBlockSize) * kBlockSize);
}

// How many steps each tenant is in per second. A round of turns is one step of all tenants, in which a tenant's rows
// take `cost`, and then steps of each tenant alone, until it has had as much time, by weight, as the one whose rows
// took most. Returns the load of a step of all.
StepLoad Play::set_speeds() {
  StepLoad all;
  double pending = 0, context = 0, num_prefilling = 0;
  for (Tenant& tenant : tenants_) {
    const auto rows = static_cast<std::uint32_t>(tenant.decodes.size());
    tenant.load = {.num_tokens = rows, .num_outputs = rows, .num_attended = tenant.context + rows * tenant.steps};
    all.num_tokens += rows;
    all.num_outputs += rows;
    all.num_attended += tenant.load.num_attended;
    if (tenant.prefills.empty()) continue;
    for (const Prefill& of : tenant.prefills) pending += of.left;
    context = std::max(context, computed(tenant.prefills.back()));
    ++num_prefilling;
  }
  const double chunk = pending > 0 ? chunk_tokens(all, pending, context) / num_prefilling : 0;
  for (Tenant& tenant : tenants_) {
    if (tenant.prefills.empty()) continue;
    double own = 0;
    for (const Prefill& of : tenant.prefills) own += of.left;
    tenant.chunk = std::max(1.0, std::min(own, chunk));
    const auto tokens = static_cast<std::uint32_t>(std::lround(tenant.chunk));
    const double attended = tenant.chunk * (computed(tenant.prefills.back()) + 0.5 * tenant.chunk);
    tenant.load.num_tokens += tokens;
    tenant.load.num_attended += attended;
    all.num_tokens += tokens;
    all.num_attended += attended;
  }
  double dearest = 0, weights = 0;
  for (Tenant& tenant : tenants_) {
    if (tenant.places() == 0) continue;
    tenant.cost = server_.costs->share(tenant.load, all);
    dearest = std::max(dearest, tenant.cost / tenant.weight);
    weights += tenant.weight;
  }
  const double round = std::max(dearest * weights, kShortestStep);
  for (Tenant& tenant : tenants_) {
    if (tenant.places() == 0) continue;
    const double alone = std::max(0.0, dearest * tenant.weight - tenant.cost);
    tenant.steps_per_second = (1 + (alone > 0 ? alone / step_seconds(tenant.load) : 0)) / round;
  }
  return all;
}

// To the next moment at which a prompt is computed, an answer ends or a request arrives.
void Play::jump() {
  double seconds = kNever;
  for (const Tenant& tenant : tenants_) {
    double steps = kNever;
    if (!tenant.decodes.empty()) steps = tenant.decodes.front().end - tenant.steps;
    if (!tenant.prefills.empty()) steps = std::min(steps, tenant.prefills.back().left / tenant.chunk);
    if (steps < kNever) seconds = std::min(seconds, steps / tenant.steps_per_second);
  }
  if (!arriving_.empty() && arrival_of(arriving_.back()) - time_ < seconds) {
    seconds = arrival_of(arriving_.back()) - time_;
    time_ = arrival_of(arriving_.back());  // not the sum, which may be less
  } else {
    time_ += seconds;
  }
  for (Tenant& tenant : tenants_) {
    if (tenant.places() == 0) continue;
    const double steps = seconds * tenant.steps_per_second;
    tenant.steps += steps;
    while (!tenant.decodes.empty() && tenant.decodes.front().end - tenant.steps <= kDust) {
      const Decode ended = tenant.decodes.front();
      std::ranges::pop_heap(tenant.decodes, ends_later);
      tenant.decodes.pop_back();
      tenant.context -= at(ended.request).known + at(ended.request).answer - ended.end;
      had_last(ended.request);
    }
    if (tenant.prefills.empty()) continue;
    Prefill& next = tenant.prefills.back();
    next.left -= steps * tenant.chunk;
    if (next.left > kDust) continue;
    const std::size_t request = next.request;
    tenant.prefills.pop_back();
    had_first(request);
    answer_[request] -= 1;
    answer_[request] > kDust ? decode(request, tenant) : had_last(request);
  }
}

}  // namespace

Forecast forecast(const ForecastServer& server, std::span<const ForecastRequest> requests,
                  const ForecastRequest& next) {
  TROUPE_ASSERT(server.costs->has_learned());
  Play with(server, requests, &next);
  with.run();
  Forecast result{.first_seconds = with.first(requests.size()) * server.slowdown,
                  .last_seconds = with.last(requests.size()) * server.slowdown};
  std::vector<std::size_t> anyway;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (with.misses(i)) result.broken.push_back(i);
  if (!result.broken.empty()) anyway = missed(server, requests);
  std::erase_if(result.broken, [&](std::size_t i) { return std::ranges::binary_search(anyway, i); });
  return result;
}

std::vector<std::size_t> missed(const ForecastServer& server, std::span<const ForecastRequest> requests) {
  TROUPE_ASSERT(server.costs->has_learned());
  Play play(server, requests, nullptr);
  play.run();
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (play.misses(i)) result.push_back(i);
  return result;
}

Forecast alone(const ForecastServer& server, const ForecastRequest& request) { return forecast(server, {}, request); }

void AnswerLengths::learn(TenantId tenant, std::uint64_t tokens) {
  const auto count = static_cast<double>(std::max<std::uint64_t>(tokens, 1));
  const auto update = [&](double& mean) { mean += (count - mean) * (mean == 0 ? 1 : kAnswerDecay); };
  update(mean_);
  if (means_.size() >= kMaxTenants && !means_.contains(tenant)) means_.clear();
  update(means_[tenant]);
}

std::uint32_t AnswerLengths::expected(TenantId tenant, std::uint64_t generated) const {
  const auto own = means_.find(tenant);
  double mean = own != means_.end() ? own->second : mean_;
  if (mean == 0) mean = kFirstAnswerGuess;
  // An answer that is longer than the mean goes on for a while.
  return static_cast<std::uint32_t>(std::ceil(std::max(mean - static_cast<double>(generated), mean / 4)));
}

}  // namespace troupe::scheduler
