#include "tests/scheduler/models_sim.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace troupe::scheduler {
namespace {

constexpr double kUnloadSeconds = 0.1;
constexpr double kParallel = 4;  // so many requests run as fast as one

// As REQUIRE, which would take most of the time: a simulation asks this millions of times.
void must(bool holds, const char* what) {
  if (!holds) FAIL(what);
}

// What decides, as the simulation sees it.
class ModelPolicy {
 public:
  virtual ~ModelPolicy() = default;
  virtual std::variant<ModelResidency::Answer, Refusal> ask(const ModelAsk& ask, double now) = 0;
  virtual void began(RequestNumber) {}
  virtual void ended(RequestNumber request, double now) = 0;
  virtual void load_ended(ModelNumber model, std::uint64_t bytes, double seconds, double now) = 0;
  virtual void load_failed(ModelNumber model, double seconds, double now) = 0;
  virtual void unload_ended(ModelNumber model, double now) = 0;
  virtual Decisions decide(double now) = 0;
  virtual double loading_share(double) const { return 0; }
};

class Turns final : public ModelPolicy {
 public:
  Turns(const ModelsSimOptions& options, std::shared_ptr<ServedTime> served)
      : residency_({.budget_bytes = options.budget,
                    .max_models = options.max_models,
                    .max_loading = options.max_loading,
                    .max_waiting = 100000,
                    .max_wait_seconds = options.max_wait_seconds,
                    .drain_seconds = options.drain_seconds},
                   std::move(served)) {
    for (std::size_t i = 0; i < options.models.size(); ++i) {
      const SimModel& model = options.models[i];
      residency_.add(static_cast<ModelNumber>(i), {.name = std::string("m") + std::to_string(i),
                                                   .bytes = model.bytes,
                                                   .load_seconds = model.load_seconds,
                                                   .keep_alive = model.keep_alive,
                                                   .pinned = model.pinned});
    }
  }
  std::variant<ModelResidency::Answer, Refusal> ask(const ModelAsk& ask, double now) override {
    const auto answer = residency_.ask(ask, now);
    if (const auto* granted = std::get_if<ModelResidency::Answer>(&answer);
        granted != nullptr && *granted == ModelResidency::Answer::wait)
      check_wait(ask.request, now);
    return answer;
  }
  void began(RequestNumber request) override { residency_.began(request); }
  void ended(RequestNumber request, double now) override { residency_.ended(request, now); }
  void load_ended(ModelNumber model, std::uint64_t bytes, double seconds, double now) override {
    residency_.load_ended(model, bytes, seconds, now);
  }
  void load_failed(ModelNumber model, double seconds, double now) override {
    residency_.load_failed(model, "the file is damaged", seconds, now);
  }
  void unload_ended(ModelNumber model, double now) override { residency_.unload_ended(model, now); }
  Decisions decide(double now) override {
    Decisions decisions = residency_.decide(now);
    must(decisions.ask_at > now, "asked to come back in the past");
    // All has been decided: asking once more changes nothing.
    const Decisions again = residency_.decide(now);
    must(again.serve.empty() && again.refuse.empty() && again.load.empty() && again.unload.empty(),
         "decide() leaves something undecided");
    return decisions;
  }
  double loading_share(double now) const override { return residency_.loading_share(now); }

 private:
  void check_wait(RequestNumber request, double now) const {
    const ModelWait wait = residency_.wait_of(request, now);
    must(wait.seconds >= 0, "a negative wait");
    must(wait.progress >= 0 && wait.progress <= 1, "a progress that is none");
  }
  ModelResidency residency_;
};

// What is usual elsewhere: a request for a model that is not loaded has it loaded, in the order in which models began
// to be waited for; for it go the models that were used last the longest time ago, idle ones first, and new requests
// for one that has to go wait behind the load. Nothing is weighed.
class LruOnDemand final : public ModelPolicy {
 public:
  explicit LruOnDemand(const ModelsSimOptions& options) : options_(options), models_(options.models.size()) {
    for (std::size_t i = 0; i < models_.size(); ++i) models_[i].bytes = options.models[i].bytes;
  }
  std::variant<ModelResidency::Answer, Refusal> ask(const ModelAsk& ask, double now) override {
    Model& model = models_[ask.model];
    of_[ask.request] = ask.model;
    if (model.state == State::loaded) {
      ++model.num_running;
      model.last_used = now;
      running_.insert(ask.request);
      return ModelResidency::Answer::serve;
    }
    if (model.waiting.empty()) model.since = ++order_;
    model.waiting.push_back(ask.request);
    return ModelResidency::Answer::wait;
  }
  void ended(RequestNumber request, double now) override {
    Model& model = models_[of_.at(request)];
    of_.erase(request);
    if (running_.erase(request) == 0) {
      std::erase(model.waiting, request);
      return;
    }
    --model.num_running;
    model.last_used = now;
  }
  void load_ended(ModelNumber number, std::uint64_t bytes, double, double now) override {
    models_[number].bytes = bytes;
    models_[number].state = State::loaded;
    models_[number].last_used = now;
  }
  void load_failed(ModelNumber number, double, double) override { models_[number].state = State::out; }
  void unload_ended(ModelNumber number, double) override { models_[number].state = State::out; }

  Decisions decide(double now) override {
    Decisions out;
    for (Model& model : models_) {
      if (model.state != State::loaded) continue;
      for (const RequestNumber request : std::exchange(model.waiting, {})) {
        ++model.num_running;
        model.last_used = now;
        running_.insert(request);
        out.serve.push_back(request);
      }
    }
    Model* next = nullptr;
    std::uint64_t bytes = 0, count = 0, num_loading = 0;
    for (Model& model : models_) {
      if (model.state == State::out && !model.waiting.empty() && (next == nullptr || model.since < next->since))
        next = &model;
      if (model.state == State::out) continue;
      ++count;
      bytes += model.bytes;
      num_loading += model.state == State::loading;
    }
    if (next == nullptr || num_loading > 0) return out;
    const auto fits = [&] { return bytes + next->bytes <= options_.budget && count < options_.max_models; };
    if (fits()) {
      next->state = State::loading;
      out.load.push_back({number_of(*next), {}});
      return out;
    }
    std::vector<Model*> victims;
    for (Model& model : models_) {
      if (model.state == State::loaded && !options_.models[number_of(model)].pinned) victims.push_back(&model);
      if (model.state != State::closing && model.state != State::leaving) continue;
      bytes -= model.bytes;
      --count;
    }
    std::ranges::sort(victims, {},
                      [](const Model* model) { return std::pair(model->num_running > 0, model->last_used); });
    for (Model* victim : victims) {
      if (fits()) break;
      bytes -= victim->bytes;
      --count;
      victim->state = State::closing;
    }
    for (Model& model : models_) {
      if (model.state != State::closing || model.num_running > 0) continue;
      model.state = State::leaving;
      out.unload.push_back({.model = number_of(model), .why = UnloadReason::turn});
    }
    return out;
  }

 private:
  using State = ModelResidency::State;
  struct Model {
    std::uint64_t bytes = 0;
    State state = State::out;
    std::uint32_t num_running = 0;
    double last_used = 0;
    std::uint64_t since = 0;
    std::vector<RequestNumber> waiting{};
  };
  ModelNumber number_of(const Model& model) const { return static_cast<ModelNumber>(&model - models_.data()); }

  const ModelsSimOptions& options_;
  std::vector<Model> models_;
  std::map<RequestNumber, ModelNumber> of_;
  std::set<RequestNumber> running_;
  std::uint64_t order_ = 0;
};

class ModelsSim {
 public:
  explicit ModelsSim(const ModelsSimOptions& options)
      : options_(options), random_(options.seed), models_(options.models.size()) {
    if (options.lru)
      policy_ = std::make_unique<LruOnDemand>(options_);
    else
      policy_ = std::make_unique<Turns>(options_, served_);
    for (std::size_t t = 0; t < options.tenants.size(); ++t) {
      const SimTenant& tenant = options.tenants[t];
      double sum = 0;
      std::vector<double>& zipf = zipf_.emplace_back();
      for (std::size_t i = 0; i < models_.size(); ++i)
        zipf.push_back(sum += 1 / std::pow(static_cast<double>(i + 1), tenant.zipf.value_or(options.zipf)));
      for (std::uint32_t i = 0; i < tenant.num_clients; ++i)
        clients_.push_back({.tenant = t, .acts_at = exponential(options.think_seconds)});
    }
    report_.served.resize(options.tenants.size());
    waits_of_.resize(options.tenants.size());
  }

  ModelsSimReport run() {
    while (now_ < options_.seconds) {
      double next = options_.seconds;
      for (const Client& client : clients_) next = std::min(next, client.acts_at);
      for (const Live& model : models_) next = std::min(next, model.until);
      const std::map<std::size_t, double> speeds = speeds_of_tenants();
      for (const auto& [number, request] : requests_) {
        if (request.runs) next = std::min(next, now_ + request.left / speeds.at(request.tenant));
        next = std::min(next, request.cancelled_at);
      }
      next = std::max(std::min(next, ask_at_), now_);
      pass(next - now_, speeds);
      now_ = next;
      act();
      carry_out(policy_->decide(now_));
      check();
    }
    finish();
    return std::move(report_);
  }

 private:
  struct Client {
    std::size_t tenant = 0;
    double acts_at = 0;  // infinite: it waits for an answer
    std::optional<ModelNumber> model{};
  };
  struct Request {
    std::size_t client = 0, tenant = 0;
    ModelNumber model = 0;
    double asked_at = 0, left = 0, work = 0;
    double cancelled_at = kForever;
    bool runs = false;
    std::uint64_t sequence = 0;
  };
  // A model as it is, whatever the policy believes.
  struct Live {
    enum class State : std::uint8_t { out, loading, loaded, leaving } state = State::out;
    double until = kForever;  // the load or the unload ends
    double began_at = 0, cost = 0;
    double closing_since = 0;
    std::map<std::size_t, double> used{};   // by tenant
    std::set<ModelNumber> loaded_before{};  // since it is waited for by a tenant that has turns
  };

  double uniform() { return std::uniform_real_distribution<>(0, 1)(random_); }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  bool chance(double probability) { return probability > 0 && uniform() < probability; }

  // Work seconds in a second of each request of a tenant: the machine is divided by weights among the tenants that run,
  // and no request is faster than alone.
  std::map<std::size_t, double> speeds_of_tenants() const {
    std::map<std::size_t, double> wanted;
    for (const auto& [number, request] : requests_)
      if (request.runs) wanted[request.tenant] += 1;
    std::map<std::size_t, double> speeds;
    double left = kParallel;
    if (std::ranges::any_of(models_, [](const Live& model) { return model.state == Live::State::loading; }))
      left *= options_.speed_beside_load;
    auto open = wanted;
    while (!open.empty()) {
      double weights = 0;
      for (const auto& [tenant, count] : open) weights += options_.tenants[tenant].weight;
      bool any = false;
      for (auto at = open.begin(); at != open.end();) {
        if (at->second > left * options_.tenants[at->first].weight / weights) {
          ++at;
          continue;
        }
        speeds[at->first] = 1;
        left -= at->second;
        weights -= options_.tenants[at->first].weight;
        at = open.erase(at);
        any = true;
      }
      if (any) continue;
      for (const auto& [tenant, count] : open)
        speeds[tenant] = left * options_.tenants[tenant].weight / weights / count;
      break;
    }
    return speeds;
  }

  void pass(double seconds, const std::map<std::size_t, double>& speeds) {
    double all = 0;
    bool waits = false;
    std::map<std::size_t, double> done;
    for (auto& [number, request] : requests_) {
      waits |= !request.runs;
      if (!request.runs) continue;
      const double speed = speeds.at(request.tenant);
      request.left -= speed * seconds;
      done[request.tenant] += speed * seconds;
      all += speed * seconds;
    }
    for (const auto& [tenant, work] : done) {
      report_.served[tenant] += work;
      if (all > 0) served_->charge(id_of(tenant), seconds * work / all);
    }
    if (done.empty() && waits) report_.lost_share += seconds;
    if (std::ranges::any_of(models_, [](const Live& model) { return model.state == Live::State::loading; }))
      report_.loading_share += seconds;
  }

  // What happens at this time.
  void act() {
    for (std::size_t i = 0; i < models_.size(); ++i)
      if (models_[i].until <= now_) change_ended(static_cast<ModelNumber>(i));
    std::vector<RequestNumber> ended, cancelled;
    for (const auto& [number, request] : requests_) {
      if (request.runs && request.left <= 1e-9)
        ended.push_back(number);
      else if (request.cancelled_at <= now_)
        cancelled.push_back(number);
    }
    for (const RequestNumber number : ended) end(number, &ModelsSimReport::num_requests);
    for (const RequestNumber number : cancelled) end(number, &ModelsSimReport::num_cancelled);
    for (std::size_t i = 0; i < clients_.size(); ++i)
      if (clients_[i].acts_at <= now_) ask(i);
  }

  void change_ended(ModelNumber number) {
    Live& model = models_[number];
    model.until = kForever;
    if (model.state == Live::State::leaving) {
      model.state = Live::State::out;
      policy_->unload_ended(number, now_);
      return;
    }
    needed_since_ = now_;
    const SimModel& facts = options_.models[number];
    const double seconds = now_ - model.began_at;
    if (chance(facts.failure_probability)) {
      model.state = Live::State::out;
      ++report_.num_failed_loads;
      policy_->load_failed(number, seconds, now_);
      return;
    }
    model.state = Live::State::loaded;
    model.cost = seconds;
    policy_->load_ended(number, facts.bytes, seconds, now_);
  }

  ModelNumber choose(const Client& client) {
    const SimTenant& tenant = options_.tenants[client.tenant];
    if (client.model && chance(tenant.stay.value_or(options_.stay))) return *client.model;
    const std::vector<double>& zipf = zipf_[client.tenant];
    const auto rank = std::ranges::lower_bound(zipf, uniform() * zipf.back()) - zipf.begin();
    return static_cast<ModelNumber>((static_cast<std::size_t>(rank) + tenant.favourite) % models_.size());
  }

  void ask(std::size_t index) {
    Client& client = clients_[index];
    client.acts_at = kForever;
    client.model = choose(client);
    const SimTenant& tenant = options_.tenants[client.tenant];
    const double work = std::clamp(exponential(options_.work_seconds), 0.05, options_.longest_work);
    Request request{
        .client = index, .tenant = client.tenant, .model = *client.model, .asked_at = now_, .left = work, .work = work};
    if (chance(options_.cancel_probability)) request.cancelled_at = now_ + exponential(options_.work_seconds);
    const RequestNumber number = ++last_request_;
    const auto policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = {}, .weight = tenant.weight});
    const auto answer = policy_->ask({.request = number,
                                      .model = request.model,
                                      .tenant = {.id = id_of(client.tenant), .is_owner = true, .policy = policy},
                                      .may_load = tenant.may_load,
                                      .work_seconds = options_.work_seconds},
                                     now_);
    if (std::holds_alternative<Refusal>(answer)) {
      ++report_.num_refused;
      client.acts_at = now_ + 0.1 + exponential(options_.think_seconds);
      return;
    }
    models_[request.model].used[client.tenant] = now_;
    if (tenant.may_load == MayLoad::turns && num_entitled(request.model) == 0)
      models_[request.model].loaded_before.clear();
    if (!is_needed()) needed_since_ = now_;
    requests_.emplace(number, request);
    if (std::get<ModelResidency::Answer>(answer) == ModelResidency::Answer::serve) start(number);
  }

  // Waiting requests of tenants that have turns.
  std::size_t num_entitled(ModelNumber model) const {
    return static_cast<std::size_t>(std::ranges::count_if(requests_, [&](const auto& entry) {
      const Request& request = entry.second;
      return request.model == model && !request.runs && options_.tenants[request.tenant].may_load == MayLoad::turns;
    }));
  }
  bool is_needed() const {
    for (std::size_t i = 0; i < models_.size(); ++i)
      if (models_[i].state == Live::State::out && num_entitled(static_cast<ModelNumber>(i)) > 0) return true;
    return false;
  }

  void start(RequestNumber number) {
    Request& request = requests_.at(number);
    must(!request.runs, "a request is served twice");
    must(models_[request.model].state == Live::State::loaded, "a request is served by a model that is not loaded");
    request.runs = true;
    served_->begin(id_of(request.tenant), options_.tenants[request.tenant].weight, 0);
    policy_->began(number);
    waited(request);
  }
  void waited(const Request& request) {
    waits_.push_back(now_ - request.asked_at);
    waits_of_[request.tenant].push_back(now_ - request.asked_at);
  }

  void end(RequestNumber number, std::uint64_t ModelsSimReport::*count, bool tell = true) {
    const Request request = requests_.at(number);
    requests_.erase(number);
    ++(report_.*count);
    if (request.runs) models_[request.model].used[request.tenant] = now_;
    if (request.runs) served_->end(id_of(request.tenant), 0);
    if (tell) policy_->ended(number, now_);
    clients_[request.client].acts_at = now_ + exponential(options_.think_seconds);
  }

  void carry_out(const Decisions& decisions) {
    ask_at_ = decisions.ask_at;
    for (const RequestNumber number : decisions.serve) note(1, number), start(number);
    for (const auto& refused : decisions.refuse) {
      note(2, refused.request);
      must(!requests_.at(refused.request).runs, "a request that runs is refused");
      end(refused.request, &ModelsSimReport::num_refused, false);
    }
    for (const auto& unload : decisions.unload) {
      note(3, unload.model);
      begin_unload(unload);
    }
    for (const auto& load : decisions.load) {
      note(4, load.model);
      begin_load(load);
    }
  }

  void begin_unload(const Decisions::Unload& unload) {
    Live& model = models_[unload.model];
    const SimModel& facts = options_.models[unload.model];
    must(model.state == Live::State::loaded, "a model goes that is not loaded");
    must(!facts.pinned, "a pinned model goes");
    std::vector<RequestNumber> running;
    for (const auto& [number, request] : requests_)
      if (request.runs && request.model == unload.model) running.push_back(number);
    must(unload.has_running == !running.empty(), "has_running is wrong");
    if (!options_.lru) check_right_to(unload, running.empty());
    for (const RequestNumber number : running) end(number, &ModelsSimReport::num_interrupted);
    model.state = Live::State::leaving;
    model.until = now_ + kUnloadSeconds;
  }

  // Whether somebody waits who may put this model out.
  void check_right_to(const Decisions::Unload& unload, bool is_idle) const {
    const SimModel& facts = options_.models[unload.model];
    const Live& model = models_[unload.model];
    if (unload.why == UnloadReason::keep_alive) {
      must(is_idle, "a model that is used goes for its keep-alive");
      for (const auto& [tenant, at] : model.used) must(now_ >= at + facts.keep_alive, "the keep-alive is not over");
      return;
    }
    const bool is_entitled = std::ranges::any_of(requests_, [&](const auto& entry) {
      const Request& request = entry.second;
      if (request.runs || models_[request.model].state != Live::State::out) return false;
      const MayLoad may_load = options_.tenants[request.tenant].may_load;
      if (may_load != MayLoad::idle) return may_load == MayLoad::turns;
      return std::ranges::all_of(model.used, [&](const auto& use) {
        return use.first == request.tenant ||
               now_ >= use.second + std::min(facts.keep_alive, ModelResidency::kIdleSeconds);
      });
    });
    must(is_entitled, "a model goes for nobody who may put it out");
  }

  void begin_load(const Decisions::Load& load) {
    Live& model = models_[load.model];
    must(model.state == Live::State::out, "a model is loaded twice");
    if (!options_.lru) {
      for (std::size_t i = 0; i < models_.size(); ++i) {
        const auto other = static_cast<ModelNumber>(i);
        if (other == load.model || models_[i].state != Live::State::out || num_entitled(other) == 0) continue;
        must(models_[i].loaded_before.insert(load.model).second, "a model has two turns before another that waits");
      }
    }
    model.state = Live::State::loading;
    model.began_at = now_;
    model.until = now_ + options_.models[load.model].load_seconds * (0.5 + uniform());
    ++report_.num_loads;
    needed_since_ = kForever;
  }

  void check() {
    std::uint64_t bytes = 0;
    std::uint32_t count = 0, num_loading = 0;
    double longest_turn = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      longest_turn = std::max(longest_turn, models_[i].cost * ModelResidency::kMaxTurnLoads);
      if (models_[i].state == Live::State::out) continue;
      bytes += options_.models[i].bytes;
      ++count;
      num_loading += models_[i].state == Live::State::loading;
    }
    must(bytes <= options_.budget, "more memory than the budget");
    must(count <= options_.max_models, "more models than may be");
    must(num_loading <= options_.max_loading, "more loads than may be");
    if (!is_needed())
      needed_since_ = kForever;
    else if (num_loading == 0 && needed_since_ == kForever)
      needed_since_ = now_;
    if (!options_.lru && num_loading == 0 && needed_since_ < kForever)
      must(now_ - needed_since_ <= longest_turn + options_.drain_seconds + kUnloadSeconds + 1e-6,
           "longer than a turn and a drain to the next load");
  }

  void finish() {
    must(now_ >= options_.seconds, "it ended early");
    for (const auto& [number, request] : requests_)
      if (!request.runs) waited(request);
    report_.loading_share /= options_.seconds;
    report_.lost_share /= options_.seconds;
    if (!waits_.empty()) {
      std::ranges::sort(waits_);
      for (const double wait : waits_) report_.mean_wait += wait / static_cast<double>(waits_.size());
      report_.p99_wait = waits_[(waits_.size() - 1) * 99 / 100];
      report_.longest_wait = waits_.back();
    }
    for (const auto& waits : waits_of_) {
      double& mean = report_.mean_waits.emplace_back(0);
      for (const double wait : waits) mean += wait / static_cast<double>(waits.size());
    }
    double sum = 0, squares = 0;
    for (std::size_t t = 0; t < report_.served.size(); ++t) {
      report_.served_seconds += report_.served[t];
      const double share = report_.served[t] / options_.tenants[t].weight;
      sum += share;
      squares += share * share;
    }
    report_.jain = squares > 0 ? sum * sum / squares / static_cast<double>(report_.served.size()) : 1;
    report_.reported_share = policy_->loading_share(now_);
  }

  void note(std::uint64_t kind, std::uint64_t number) {
    std::uint64_t time = 0;
    static_assert(sizeof time == sizeof now_);
    std::memcpy(&time, &now_, sizeof time);
    for (const std::uint64_t value : {kind, number, time}) report_.trace = (report_.trace ^ value) * 0x100000001b3u;
  }
  static TenantId id_of(std::size_t tenant) { return TenantId{1000 + tenant}; }

  const ModelsSimOptions options_;
  std::mt19937_64 random_;
  const std::shared_ptr<ServedTime> served_ = std::make_shared<ServedTime>();
  std::unique_ptr<ModelPolicy> policy_;
  std::vector<Live> models_;
  std::vector<std::vector<double>> zipf_;  // by tenant, cumulative
  std::vector<Client> clients_;
  std::map<RequestNumber, Request> requests_;
  RequestNumber last_request_ = 0;
  double now_ = 0, ask_at_ = kForever;
  double needed_since_ = kForever;  // a model is waited for, and none is loading
  std::vector<double> waits_;
  std::vector<std::vector<double>> waits_of_;  // by tenant
  ModelsSimReport report_;
};

}  // namespace

ModelsSimReport run_models_sim(const ModelsSimOptions& options) { return ModelsSim(options).run(); }

}  // namespace troupe::scheduler
