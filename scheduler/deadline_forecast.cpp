#include "scheduler/deadline_forecast.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kFirstAnswerGuess = 256;  // tokens, before any answer has ended
constexpr double kAnswerDecay = 1.0 / 16;  // of the mean, with each answer
constexpr double kMarginStep = 0.15;       // of PromiseMargin
constexpr double kLeastMargin = 1.1, kMostMargin = 4;
constexpr double kMostSlowdown = 4, kSlowdownDecay = 1.0 / 64;
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
  // Whether the request, one with a promise, misses it.
  [[nodiscard]] bool misses(std::size_t request) const {
    const ForecastRequest& of = at(request);
    return (of.promised_last ? last_ : first_)[request] * server_.slowdown > *of.promised;
  }

 private:
  struct Row {
    std::size_t request = 0;
    std::size_t tenant = 0;
    double prefill = 0;  // tokens to compute before the next token of the answer
    double answer = 0;   // tokens to generate
  };
  struct Tenant {
    TenantId id{};
    double weight = 1;
    std::vector<std::size_t> waiting;  // the next one last
    std::uint32_t places = 0;
    StepLoad load;                // of its rows in one step
    const Row* first = nullptr;   // of its rows whose prompts are not computed: the one that chunks go to
    double prefill = 0;           // tokens left to compute of all of them
    double chunk = 0;             // of these in one step
    double cost = 0;              // of its rows, in a step with everybody's
    double steps_per_second = 0;  // that it is in
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
  std::size_t tenant_of(const ForecastRequest& request);
  void start(std::size_t request, std::size_t tenant, double prefill);
  void fill_places();
  bool make_place(std::size_t for_tenant);
  void measure_rows();
  [[nodiscard]] double chunk_tokens(const StepLoad& decodes, double pending, double context) const;
  void set_speeds();
  void jump();
  void had_first(std::size_t request);
  void had_last(std::size_t request);

  const ForecastServer& server_;
  std::span<const ForecastRequest> requests_;
  const ForecastRequest* next_;
  std::vector<Tenant> tenants_;
  std::vector<Row> rows_;
  std::vector<double> answer_;        // by request: tokens still to generate when it last got a place
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
  rows_.reserve(server.max_sequences);
  for (std::size_t i = 0; i < count; ++i) {
    const ForecastRequest& request = at(i);
    TROUPE_ASSERT(request.computed < request.known && request.answer >= 1);
    const std::size_t tenant = tenant_of(request);
    answer_[i] = request.answer;
    if (request.known > request.demand.prompt_tokens) first_[i] = 0;
    if (&request == next_ || (request.promised && (request.promised_last || first_[i] == kNever))) ++num_open_;
    if (request.is_running) {
      start(i, tenant, request.known - request.computed);
    } else {
      tenants_[tenant].waiting.push_back(i);
    }
  }
  for (Tenant& tenant : tenants_)
    std::ranges::sort(tenant.waiting, std::greater(), [&](std::size_t i) { return order_of(at(i).demand); });
}

std::size_t Play::tenant_of(const ForecastRequest& request) {
  const auto found = std::ranges::find(tenants_, request.demand.tenant, &Tenant::id);
  if (found != tenants_.end()) return static_cast<std::size_t>(found - tenants_.begin());
  tenants_.push_back({.id = request.demand.tenant, .weight = request.weight, .waiting = {}, .load = {}});
  return tenants_.size() - 1;
}

void Play::start(std::size_t request, std::size_t tenant, double prefill) {
  const bool decodes = prefill <= 1;
  rows_.push_back({.request = request, .tenant = tenant, .prefill = decodes ? 0 : prefill, .answer = answer_[request]});
  ++tenants_[tenant].places;
  if (decodes) had_first(request);
}

void Play::had_first(std::size_t request) {
  if (first_[request] < kNever) return;
  first_[request] = time_;
  const ForecastRequest& of = at(request);
  if (&of != next_ && of.promised && !of.promised_last) --num_open_;
}

void Play::had_last(std::size_t request) {
  last_[request] = time_;
  const ForecastRequest& of = at(request);
  if (&of == next_ || (of.promised && of.promised_last)) --num_open_;
}

void Play::run() {
  if (!rows_.empty()) {  // the running step ends first
    set_speeds();
    StepLoad load;
    for (const Tenant& tenant : tenants_) {
      load.num_tokens += tenant.load.num_tokens;
      load.num_outputs += tenant.load.num_outputs;
      load.num_attended += tenant.load.num_attended;
    }
    time_ = step_seconds(load);
  }
  while (num_open_ > 0) {
    fill_places();
    TROUPE_ASSERT(!rows_.empty());
    set_speeds();
    jump();
    std::erase_if(rows_, [&](const Row& row) { return last_[row.request] < kNever; });
  }
}

// As FairQueue: the tenant with the fewest places, then the oldest request.
void Play::fill_places() {
  while (true) {
    Tenant* next = nullptr;
    for (Tenant& tenant : tenants_) {
      if (tenant.waiting.empty()) continue;
      const auto key = [&](const Tenant& of) { return std::tuple(of.places, at(of.waiting.back()).demand.arrival); };
      if (!next || key(tenant) < key(*next)) next = &tenant;
    }
    if (!next) return;
    const auto index = static_cast<std::size_t>(next - tenants_.data());
    if (rows_.size() >= server_.max_sequences && !make_place(index)) return;
    const std::size_t request = next->waiting.back();
    next->waiting.pop_back();
    // What had a place before finds in the cache what it had computed, but for a part of a block.
    const bool is_replay = first_[request] < kNever;
    start(request, index, is_replay ? kBlockSize / 2.0 : at(request).known - at(request).computed);
  }
}

// As StepPlanner::place_for(): the youngest sequence of the tenant with most places gives its place up, if the other
// tenant has fewer than that one has without it.
bool Play::make_place(std::size_t for_tenant) {
  const auto most = std::ranges::max_element(tenants_, {}, &Tenant::places);
  if (most->places <= tenants_[for_tenant].places + 1) return false;
  const auto age = [&](const Row& row) {
    const Demand& demand = at(row.request).demand;
    return std::tuple(demand.priority, !demand.due_seconds, demand.arrival);
  };
  const Row* youngest = nullptr;
  for (const Row& row : rows_)
    if (&tenants_[row.tenant] == &*most && (!youngest || age(*youngest) < age(row))) youngest = &row;
  TROUPE_ASSERT(youngest != nullptr);
  most->waiting.push_back(youngest->request);
  answer_[youngest->request] = youngest->answer;
  --most->places;
  rows_.erase(rows_.begin() + (youngest - rows_.data()));
  return true;
}

// Sets what the rows of each tenant decode in a step, and what they have yet to prefill.
void Play::measure_rows() {
  for (Tenant& tenant : tenants_) {
    tenant.load = {};
    tenant.first = nullptr;
    tenant.prefill = 0;
  }
  for (const Row& row : rows_) {
    Tenant& tenant = tenants_[row.tenant];
    const ForecastRequest& request = at(row.request);
    if (row.prefill > 0) {
      if (!tenant.first || order_of(request.demand) < order_of(at(tenant.first->request).demand)) tenant.first = &row;
      tenant.prefill += row.prefill;
    } else {
      ++tenant.load.num_tokens;
      ++tenant.load.num_outputs;
      tenant.load.num_attended += request.known + request.answer - row.answer;
    }
  }
}

// As StepPlanner: all that fits into a step, or while something decodes, what keeps it within max_stall_seconds.
double Play::chunk_tokens(const StepLoad& decodes, double pending, double context) const {
  const double room = server_.max_step_tokens - std::min(decodes.num_tokens, server_.max_step_tokens - 1);
  const double most = std::min(pending, room);
  if (decodes.num_tokens == 0) return most;
  const auto seconds = [&](double tokens) {
    StepLoad load = decodes;
    load.num_tokens += static_cast<std::uint32_t>(tokens);
    load.num_attended += tokens * (context + 0.5 * tokens);
    return server_.costs->predict(load);
  };
  const double block = std::min<double>(most, kBlockSize);
  const double shortest = seconds(block), longest = seconds(most), limit = server_.max_stall_seconds;
  if (longest <= limit) return most;
  if (shortest >= limit) return block;
  const double fits = block + (most - block) * (limit - shortest) / (longest - shortest);
  return std::max(block, std::floor(fits / kBlockSize) * kBlockSize);
}

// How many steps each tenant is in per second. In one round of turns there is one step of all tenants, whose rows cost
// `cost` each, and steps of the cheaper ones alone until everybody has had as much as the dearest, by weight.
void Play::set_speeds() {
  measure_rows();
  StepLoad decodes;
  double pending = 0, context = 0, num_prefilling = 0;
  for (const Tenant& tenant : tenants_) {
    decodes.num_tokens += tenant.load.num_tokens;
    decodes.num_outputs += tenant.load.num_outputs;
    decodes.num_attended += tenant.load.num_attended;
    if (!tenant.first) continue;
    pending += tenant.prefill;
    context = std::max(context, at(tenant.first->request).known - tenant.first->prefill);
    ++num_prefilling;
  }
  const double chunk = pending > 0 ? chunk_tokens(decodes, pending, context) : 0;
  StepLoad all = decodes;
  for (Tenant& tenant : tenants_) {
    if (!tenant.first) continue;
    tenant.chunk = std::max(1.0, std::min(tenant.prefill, chunk / num_prefilling));
    const double before = at(tenant.first->request).known - tenant.first->prefill;
    const auto tokens = static_cast<std::uint32_t>(std::lround(tenant.chunk));
    const double attended = tenant.chunk * (before + 0.5 * tenant.chunk);
    tenant.load.num_tokens += tokens;
    tenant.load.num_attended += attended;
    all.num_tokens += tokens;
    all.num_attended += attended;
  }
  double dearest = 0, weights = 0;
  for (Tenant& tenant : tenants_) {
    if (tenant.places == 0) continue;
    tenant.cost = server_.costs->share(tenant.load, all);
    dearest = std::max(dearest, tenant.cost / tenant.weight);
    weights += tenant.weight;
  }
  const double round = std::max(dearest * weights, kShortestStep);
  for (Tenant& tenant : tenants_) {
    if (tenant.places == 0) continue;
    const double alone = std::max(0.0, dearest * tenant.weight - tenant.cost);
    tenant.steps_per_second = (1 + (alone > 0 ? alone / step_seconds(tenant.load) : 0)) / round;
  }
}

// To the next moment at which a prompt is computed or an answer ends.
void Play::jump() {
  double seconds = kNever;
  for (const Row& row : rows_) {
    const Tenant& tenant = tenants_[row.tenant];
    if (row.prefill <= 0) {
      seconds = std::min(seconds, row.answer / tenant.steps_per_second);
    } else if (tenant.first == &row) {
      seconds = std::min(seconds, row.prefill / (tenant.chunk * tenant.steps_per_second));
    }
  }
  time_ += seconds;
  for (Row& row : rows_) {
    const Tenant& tenant = tenants_[row.tenant];
    const double steps = seconds * tenant.steps_per_second;
    if (row.prefill <= 0) {
      row.answer -= steps;
    } else if (tenant.first == &row) {
      row.prefill -= steps * tenant.chunk;
      if (row.prefill > kDust) continue;
      row.prefill = 0;
      row.answer -= 1;
      had_first(row.request);
    }
    if (row.answer > kDust) continue;
    had_last(row.request);
    --tenants_[row.tenant].places;
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
  std::optional<Play> without;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].promised || !with.misses(i)) continue;
    if (!without) without.emplace(server, requests, nullptr).run();
    if (!without->misses(i))
      result.breaks_promise_until = std::max(result.breaks_promise_until.value_or(0), *requests[i].promised);
  }
  return result;
}

Forecast alone(const ForecastServer& server, const ForecastRequest& request) { return forecast(server, {}, request); }

void PromiseMargin::learn(bool was_kept) {
  factor_ = std::clamp(factor_ * (1 + kMarginStep * (was_kept ? -kMissed : 1 - kMissed)), kLeastMargin, kMostMargin);
}

void Experience::learn_slowdown(double wall, double step) {
  if (step > 0) slowdown += (std::clamp(wall / step, 1.0, kMostSlowdown) - slowdown) * kSlowdownDecay;
}

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
