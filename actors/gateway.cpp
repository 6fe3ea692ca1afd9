#include "actors/gateway.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "actors/models/model_defaults.h"
#include "actors/on_request.h"
#include "actors/requests/request_check.h"
#include "actors/saboteur.h"
#include "actors/serving/encoding.h"
#include "actors/sessions/sessions.h"
#include "actors/status/memory_survey.h"
#include "actors/status/model_checker.h"
#include "actors/threads/thread_pool.h"
#include "actors/threads/topology.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"
#include "actors/unit/model_manager.h"
#include "actors/unit/server_context.h"
#include "config/assert.h"
#include "config/folders.h"
#include "config/options/option_groups.h"
#include "config/printable.h"
#include "engine/model/memory_budget.h"
#include "engine/sampling/sampler.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

// Keeps CAF's threads off the compute CPUs, where a message would wait for a whole step.
class BindThreads final : public caf::thread_hook {
 public:
  explicit BindThreads(std::vector<int> cpus) : cpus_(std::move(cpus)) {}
  void init(caf::actor_system&) override {}
  void thread_started() override { bind_this_thread(cpus_); }
  void thread_terminates() override {}

 private:
  std::vector<int> cpus_;
};

// `sharing`: idle workers sleep instead of polling, and a message never waits behind its sender.
struct SystemConfig : caf::actor_system_config {
  explicit SystemConfig(std::vector<int> cpus) {
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", std::size_t{2});
    set("scheduler.max-throughput", std::size_t{32});
    add_thread_hook<BindThreads>(std::move(cpus));
  }
};

// After which a text may be asked for again whose model is out of memory.
constexpr double kOutSeconds = 5;

// Below 2^53: JSON tools that keep numbers as doubles (jq, JavaScript) pass it on without rounding, so that an answer
// can be asked for again.
std::uint64_t draw_seed() {
  constexpr int kBits = 53;
  std::random_device device;
  return ((std::uint64_t{device()} << 32) | device()) >> (64 - kBits);
}

// The answer to a text request while no model is loaded.
End not_ready(const ModelState& model) {
  if (const auto error = model.error()) return not_served(model.name(), *error);
  if (model.readiness() == Readiness::on_request)
    return refused(
        {.outcome = Outcome::loading,
         .message = fmt::format("the model \"{}\" is not in memory, and its vocabulary neither; a request for "
                                "an answer or for vectors has it loaded",
                                Printable(model.name()).text()),
         .field = "model",
         .retry_after = kOutSeconds});
  return refusal(
      Outcome::loading, {},
      fmt::format("the model is still loading ({} %); try again later", static_cast<int>(model.fraction() * 100)));
}

// The callback for answers to this tenant: a guest is told no folder of this machine.
template <class Answer>
std::function<void(Answer)> told_to(const scheduler::Tenant& tenant, std::function<void(Answer)> done) {
  if (tenant.is_owner) return done;
  return [done = std::move(done)](Answer answer) {
    if (auto* end = std::get_if<End>(&answer)) end->message = without_folders(end->message);
    done(std::move(answer));
  };
}

// Likewise of sessions. What is left out is logged, a line each second at most: a guest may ask often.
std::function<void(SessionAnswer)> told_to(const scheduler::Tenant& tenant, std::function<void(SessionAnswer)> done) {
  if (tenant.is_owner) return done;
  return [done = std::move(done)](SessionAnswer answer) {
    const auto hide = [](std::string& message) {
      std::string told = without_folders(message);
      if (told == message) return;
      static std::atomic<TimePoint> last{};
      const TimePoint now = std::chrono::steady_clock::now();
      if (now - last.load() >= std::chrono::seconds(1)) {
        last = now;
        spdlog::warn("a question about sessions: {}", message);
      }
      message = std::move(told);
    };
    if (auto* why = std::get_if<scheduler::Refusal>(&answer)) hide(why->message);
    if (auto* infos = std::get_if<std::vector<SessionInfo>>(&answer))
      for (SessionInfo& info : *infos) hide(info.problem);
    done(std::move(answer));
  };
}

// answer = work(), or the failure if that threw. engine::Interrupted is passed on.
template <class Answer, class Convert>
void convert(Answer& answer, const Convert& work) {
  try {
    answer = work();
  } catch (const engine::Interrupted&) {
    throw;
  } catch (...) {
    const Failure why = failure_of(std::current_exception());
    answer = ended_as(why.out_of_memory ? Outcome::out_of_memory : Outcome::internal,
                      "this text could not be worked on: " + why.what);
  }
}

template <class Answer>
CancelFlag answered(const std::function<void(Answer)>& done, End end) {
  done(std::move(end));
  return std::make_shared<std::atomic<bool>>(false);
}

// Checks the options without loading the models. Returns what is known of these. Error: that of the first model, if all
// have one.
Result<std::vector<CatalogEntry>> check_options(const GatewayOptions& options) {
  if (options.models.empty() || options.models.size() > kMaxModels)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} models; a server has 1 to {}", options.models.size(), kMaxModels)};
  std::vector<CatalogEntry> catalog;
  for (const ModelSource& source : options.models) {
    CatalogEntry entry = describe(source);
    const std::vector<std::string> names = names_of(entry);
    if (const std::string twice = twice_in(names); !twice.empty())
      return Error{ErrorCode::invalid_argument, fmt::format("{} has the name \"{}\" twice; leave one alias out",
                                                            source.path, Printable(twice).text())};
    for (const CatalogEntry& other : catalog)
      for (const std::string& taken : names_of(other))
        if (std::ranges::find(names, taken) != names.end())
          return Error{
              ErrorCode::invalid_argument,
              fmt::format("{} and {} are both called \"{}\"; give one another name: -m NAME=PATH, or name and aliases "
                          "in its [[model]] table",
                          other.source.path, source.path, Printable(taken).text())};
    // Each load opens them anew; a vocabulary takes megabytes.
    if (source.on_request) entry.file = entry.draft_file = nullptr;
    catalog.push_back(std::move(entry));
  }
  if (std::ranges::all_of(catalog, [](const CatalogEntry& entry) { return entry.problem.has_value(); }))
    return *catalog.front().problem;
  if (Status checked = config::check_ranges<config::GatewayLimits>(options); !checked) return checked.error();
  return catalog;
}

class GatewayImpl final : public Gateway {
 public:
  GatewayImpl(GatewayOptions options, std::vector<CatalogEntry> models, std::optional<KillPlan> kills);
  ~GatewayImpl() override;

  RequestId submit(Request request, std::shared_ptr<StreamSink> sink) override;
  void cancel(RequestId id) override {
    if (const auto unit = unit_of(id)) unit->cancel(id, std::chrono::steady_clock::now());
  }
  void credit(RequestId id, std::uint64_t tokens) override {
    const auto unit = unit_of(id);
    if (!unit) return;
    if (const auto granted = streams_.grant(id, tokens, std::chrono::steady_clock::now())) unit->credit(id, *granted);
  }
  scheduler::RequestLoad room_of(const scheduler::Tenant& tenant) override;
  Readiness readiness() const override { return models_.readiness(); }
  double load_fraction() const override {
    const auto unit = models_.default_unit();
    return unit ? unit->state().fraction() : 0;
  }
  bool is_making_progress() const override { return models_.is_making_progress(std::chrono::steady_clock::now()); }
  std::vector<ModelHealth> health() const override { return models_.health(std::chrono::steady_clock::now()); }
  void status(std::function<void(StatusSnapshot)> done) override {
    survey_.when_fresh([this, done = std::move(done)]() mutable {
      models_.ask_status(context(), [this, first = first_model_, done = std::move(done)](StatusSnapshot snapshot) {
        snapshot.first_model = first;
        on_request_->counts().append_metrics(snapshot.metrics);
        done(std::move(snapshot));
      });
    });
  }
  std::shared_ptr<const ServedModel> model(const std::string& name) const override {
    const auto unit = models_.find(name);
    return unit ? unit->state().model() : nullptr;
  }
  std::vector<ModelDescription> models() const override {
    std::vector<ModelDescription> all;
    for (const auto& unit : models_.serving_units()) {
      const auto model = unit->state().model();
      if (!model) continue;
      all.push_back(model->describe(unit->name()));
      all.back().aliases = unit->state().aliases();
      all.back().defaults = *unit->defaults();
    }
    return all;
  }
  std::vector<std::string> model_names() const override { return models_.names(); }
  CancelFlag tokenize(TextRequest request, std::string text, engine::EncodeOptions options, OnTokenized done) override;
  CancelFlag detokenize(TextRequest request, std::vector<TokenId> ids, OnDetokenized done) override;
  CancelFlag apply_template(TextRequest request, ChatPrompt chat, OnRendered done) override;
  CancelFlag tokenize_chat(TextRequest request, ChatPrompt chat, OnTokenized done) override;
  void session(SessionQuestion question, std::function<void(SessionAnswer)> done) override;
  void load_models(std::vector<std::pair<ModelRequest, OnModelChange>> requests) override;
  void unload_model(const std::string& name, OnModelChange done) override {
    if (const auto unit = models_.find(name); unit && unit->is_on_request())
      return on_request_->put_out(unit, options_.drain_timeout, std::move(done));
    models_.unload(name, options_.drain_timeout, std::move(done));
  }
  void remove_model(const std::string& name, OnModelChange done) override {
    if (const auto unit = models_.find(name); unit && unit->is_on_request())
      return on_request_->remove(unit, options_.drain_timeout, std::move(done));
    models_.unload(name, options_.drain_timeout, std::move(done));
  }
  std::optional<LoadWait> wait_of(RequestId id) const override {
    const auto unit = unit_of(id);
    if (!unit || !unit->is_on_request() || unit->state().model()) return std::nullopt;
    return on_request_->wait_of(id);
  }
  void drain(std::function<void()> done) override {
    draining_ = true;
    models_.close();
    on_request_->drain();
    sessions_.refuse_questions();
    spdlog::info("draining: {} streams are open", streams_.live().size());
    for (const auto& unit : models_.units()) unit->drain(options_.drain_timeout);
    streams_.when_empty([this, done = std::move(done)]() mutable {
      texts_->when_empty([this, done = std::move(done)]() mutable { sessions_.when_idle(std::move(done)); });
    });
  }
  void on_loaded(std::function<void(Status)> done) override { models_.on_loaded(std::move(done)); }
  void check_models(const std::vector<std::string>& names, OnModelsChecked done) override;
  void crash(Role role) { caf::anon_send(models_.default_unit()->supervisor(), msg::Crash{role}); }

 private:
  // Null: the stream has ended.
  std::shared_ptr<ModelUnit> unit_of(RequestId id) const {
    const auto unit = streams_.unit(id);
    return unit ? models_.find(*unit) : nullptr;
  }
  ServerContext context() {
    return {.options = options_,
            .streams = streams_,
            .memory = survey_,
            .texts = *texts_,
            .compute = *compute_,
            .started = started_,
            .faults = faults_,
            .load_again = load_again_};
  }
  MemoryReport measure_memory();
  std::optional<scheduler::Refusal> begin_turn(Request& request, std::shared_ptr<StreamSink>& sink);
  // A unit and its model, which is loaded and has a vocabulary.
  struct Vocabulary {
    std::shared_ptr<ModelUnit> unit;
    std::shared_ptr<const ServedModel> model;
  };
  std::variant<Vocabulary, End> with_vocabulary(const TextRequest& request) const;
  // Renders a conversation on a text thread and answers with what `convert` makes of the prompt.
  template <class Answer, class Convert>
  CancelFlag post_chat(TextRequest request, ChatPrompt chat, std::function<void(Answer)> done, Convert convert);
  template <class Answer, class Convert>
  CancelFlag post_text(scheduler::Tenant tenant, std::uint64_t bytes, std::function<void(Answer)> done, Convert work,
                       const void* renders = nullptr);

  // Order matters: each member outlives those below it.
  GatewayOptions options_;
  const std::string first_model_;
  const TimePoint started_ = std::chrono::steady_clock::now();
  std::atomic<bool> draining_{false};
  CpuPlan cpus_;
  Sessions sessions_;
  StreamTable streams_;
  MemoryLedger memory_;
  MemorySurvey survey_;  // stopped first
  SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<TextThreads> texts_;  // jobs of these two send to actors, so they are destroyed before the system
  std::unique_ptr<ComputePool> compute_;
  FaultPoints faults_;
  std::function<void(UnitId)> load_again_;
  std::unique_ptr<ThreadPool> models_thread_;  // opens files of models, and gives their memory back
  ModelManager models_;
  std::unique_ptr<OnRequest> on_request_;
  std::unique_ptr<ModelChecker> checker_;  // its jobs are ended before those it watches
  caf::actor saboteur_;                    // null except in soak tests
};

scheduler::ResidencyOptions residency_options(const config::OnRequestLimits& limits) {
  scheduler::ResidencyOptions options;
  if (limits.models_max != 0) options.max_models = limits.models_max;
  options.max_waiting = limits.max_waiting_for_models;
  options.max_wait_seconds = std::chrono::duration<double>(limits.max_model_wait).count();
  return options;
}

GatewayOptions with_defaults(GatewayOptions options) {
  if (options.num_threads == 0) options.num_threads = engine::default_num_threads();
  return options;
}

GatewayImpl::GatewayImpl(GatewayOptions options, std::vector<CatalogEntry> models, std::optional<KillPlan> kills)
    : options_(with_defaults(std::move(options))),
      first_model_(models.front().name),
      cpus_(plan_cpus(usable_cpus(), options_.num_threads)),
      sessions_(options_, options_, cpus_.rest, [](const std::string& problem) { spdlog::warn("{}", problem); }),
      streams_(options_, {.num_threads = options_.num_threads, .on_usage = options_.on_usage}),
      memory_(engine::process_memory()),
      survey_([this] { return measure_memory(); }, cpus_.rest),
      config_(cpus_.rest),
      system_(std::make_unique<caf::actor_system>(config_)),
      texts_(std::make_unique<TextThreads>(TextThreadsOptions{.max_large = options_.tokenizer_threads,
                                                              .max_texts = options_.max_queued_texts,
                                                              .max_bytes = options_.max_queued_text_bytes},
                                           cpus_.rest)),
      compute_(std::make_unique<ComputePool>(options_.num_threads, cpus_.compute)),
      models_thread_(std::make_unique<ThreadPool>("models", 1, std::numeric_limits<std::size_t>::max(), cpus_.rest)),
      models_(*system_, options_.memory, [this](std::function<void()> work) {
        const bool taken = models_thread_->post(std::move(work));
        TROUPE_ASSERT(taken);
      }) {
  const auto break_step = std::make_shared<std::atomic<bool>>(false);  // set: the next step throws, once
  if (kills) {
    faults_.before_step = [break_step](const engine::StepBatch&) {
      if (break_step->exchange(false)) throw std::runtime_error("TROUPE_TEST_KILL");
    };
  }
  compute_->team().set_profiler(options_.profiler.get());
  const bool wants_sessions = !options_.sessions_directory.empty() || !options_.no_sessions_because.empty();
  if (const Status kept = sessions_.status(); !kept && wants_sessions)
    spdlog::warn("sessions are refused: {}", kept.error().message);
  constexpr std::size_t kMostProblems = 20;
  const std::vector<std::string> problems = sessions_.problems();
  for (std::size_t i = 0; i < std::min(problems.size(), kMostProblems); ++i)
    spdlog::warn("sessions: {}; troupe session repair tells what can be kept", problems[i]);
  if (problems.size() > kMostProblems) spdlog::warn("sessions: {} more like these", problems.size() - kMostProblems);
  if (!options_.no_canary_file_because.empty())
    spdlog::info("canaries are not recorded: {}", options_.no_canary_file_because);
  load_again_ = [this](UnitId id) {
    if (const auto unit = models_.find(id); unit && unit->is_on_request()) return on_request_->drop_damaged(unit);
    models_.load_again(context(), id, [](const ModelChange& change) {
      if (const auto* const end = std::get_if<End>(&change))
        return spdlog::critical("a damaged model stays out: {}", end->message);
      spdlog::warn("model {} is loaded again, and serves", Printable(std::get<ModelHealth>(change).name).text());
    });
  };
  models_.add(context(), std::move(models));
  on_request_ = std::make_unique<OnRequest>(models_, context(), *system_, residency_options(options_));
  checker_ = std::make_unique<ModelChecker>(
      options_, *compute_,
      [this] {
        std::vector<CheckedModel> all;
        for (const auto& unit : models_.units()) all.push_back(unit->checked());
        return all;
      },
      [](const std::string& model, const std::string& what) {
        spdlog::warn("model {}: {}", Printable(model).text(), what);
      },
      cpus_.rest);
  if (kills) saboteur_ = system_->spawn<Saboteur>(std::move(*kills), models_.default_unit()->supervisor(), break_step);
}

MemoryReport GatewayImpl::measure_memory() {
  KnownMemory known{.streams = streams_.counts().bytes};
  MemoryOfUnits units = models_.measure_memory(known);
  const engine::ProcessMemory process = engine::process_memory();
  return {.kinds = memory_.entries(known, process),
          .resident_bytes = process.resident,
          .peak_resident_bytes = process.peak_resident,
          .units = std::move(units)};
}

GatewayImpl::~GatewayImpl() {
  survey_.stop();
  draining_ = true;
  models_.close();
  sessions_.refuse_questions();
  compute_->stop();  // aborts a running load, step or pass
  checker_->stop();
  on_request_->stop();
  for (const auto& unit : models_.units()) {
    if (unit->state().loading() && !unit->state().awaits_request()) spdlog::info("loading is given up");
    unit->stop();
  }
  if (saboteur_) caf::anon_send_exit(saboteur_, caf::exit_reason::user_shutdown);
  saboteur_ = nullptr;
  system_->await_all_actors_done();
  End waiting;  // no retry_after: this server does not come back
  waiting.outcome = Outcome::draining;
  waiting.message = "the server stopped before this request was begun";
  streams_.end_all(ended_as(Outcome::cancelled, "the server stopped before this answer was complete"), waiting,
                   std::chrono::steady_clock::now());
  sessions_.finish();  // stores the turns that ended just now
  texts_.reset();
  on_request_->drop_units();
  compute_.reset();
  models_.drop_units();
  models_thread_.reset();
  system_.reset();
}

// A token has a byte at least. Texts to embed and their vectors wait as texts do; their own limit refuses by itself.
scheduler::RequestLoad GatewayImpl::room_of(const scheduler::Tenant& tenant) {
  const auto share = [&](std::uint64_t limit) { return scheduler::share_of(limit, tenant.is_owner); };
  scheduler::RequestLoad room = streams_.room_of(tenant, std::chrono::steady_clock::now());
  room.prompt_bytes = std::min(share(options_.max_queued_tokens), share(options_.max_queued_text_bytes));
  room.texts = share(options_.max_queued_texts);
  room.vector_bytes = share(options_.max_queued_text_bytes);
  return room;
}

void GatewayImpl::check_models(const std::vector<std::string>& names, OnModelsChecked done) {
  std::vector<ModelChecker::Asked> models;
  const auto ask = [&](const std::shared_ptr<ModelUnit>& unit) {
    models.push_back([name = unit->name(), weak = std::weak_ptr(unit)] {
      const auto unit = weak.lock();
      return unit ? unit->checked() : CheckedModel{.name = name};
    });
  };
  std::set<UnitId> asked;  // each once, by whichever of its names
  for (const std::string& name : names) {
    const auto unit = models_.find(name);
    if (!unit) return done(unknown_model(name, models_.all_names()));
    if (asked.insert(unit->id()).second) ask(unit);
  }
  if (names.empty())
    for (const auto& unit : models_.units_default_first()) ask(unit);
  const bool taken = checker_->check(std::move(models),
                                     [done](std::vector<ModelCheck> checks) { done(ModelChecks(std::move(checks))); });
  if (!taken)
    done(refusal(Outcome::queue_full, "check_models",
                 fmt::format("{} checks of models wait already; try again later", ModelChecker::kMaxQueuedChecks),
                 ModelChecker::kMaxQueuedChecks));
}

// For a request that does not say how long its answer may be.
void set_length(Request& request, std::optional<std::uint32_t> of_model) {
  const std::optional<std::uint32_t> of_tenant = request.tenant.policy ? request.tenant.policy->predict : std::nullopt;
  const std::uint32_t length = of_tenant.value_or(of_model.value_or(scheduler::kUnlimitedTokens));
  if (length != scheduler::kUnlimitedTokens)
    request.sampling.max_tokens = std::max(length, request.sampling.min_tokens);
}

// What the request leaves to its model.
void take_defaults(const ModelUnit& unit, Request& request) {
  if (request.embed) return;
  if (!request.has_max_tokens) set_length(request, unit.predict());
  const auto defaults = unit.defaults();
  take_numbers(*defaults, request);
  if (auto* const chat = std::get_if<ChatPrompt>(&request.prompt))
    take_conversation(*defaults, request.turn && !request.turn->is_new(), *chat);
}

RequestId GatewayImpl::submit(Request request, std::shared_ptr<StreamSink> sink) {
  if (!request.has_seed) {
    request.sampling.seed = draw_seed();
    request.has_seed = true;
  }
  if (request.embed && !request.embed->truncate) request.embed->truncate = options_.embed_truncate;
  if (!request.embed && (!request.stop_strings.empty() || request.tools))
    if (const auto* const chat = std::get_if<ChatPrompt>(&request.prompt)) request.stop_scope = stop_scope_of(*chat);
  const TimePoint now = std::chrono::steady_clock::now();
  const std::string name = request.model;
  // Here and not in the intake: a client that asks again and again would else always have a stream that has not ended,
  // and the drain would not end.
  auto why_not = draining_                 ? std::optional(scheduler::server_drains())
                 : request.session.empty() ? std::nullopt
                                           : begin_turn(request, sink);
  const scheduler::Tenant tenant = request.tenant;
  std::shared_ptr<ModelUnit> unit;
  std::optional<End> not_now;
  RequestId id = 0;
  {
    OnRequest::Arrival arrival(*on_request_);
    id = models_.route(
        name,
        [&](const std::shared_ptr<ModelUnit>& serving) {
          unit = serving;
          if (unit) request.model = unit->name();
          if (unit && !why_not) take_defaults(*unit, request);
          if (unit && !why_not) sink = arrival.watch(*unit, request, std::move(sink));
          return streams_.add(std::move(request), std::move(sink), now, unit ? unit->id() : 0);
        },
        tenant);
    if (unit && !why_not && !unit->state().unloading()) not_now = arrival.added(*unit, tenant, id);
  }
  if (not_now) {
    streams_.end(id, *not_now, now);
  } else if (why_not) {
    streams_.end(id, refused(*std::move(why_not)), now);
  } else if (!unit) {
    streams_.end(id, unknown_model(name, models_.all_names(tenant)), now);
  } else if (unit->state().unloading()) {
    // Asked behind add(): the unit is stopped once it has no stream, and an intake that is gone would end none.
    streams_.end(id, being_unloaded(unit->name()), now);
  } else if (auto wrong = check_shape(*streams_.request(id))) {
    streams_.end(id, refused(*std::move(wrong)), now);
  } else if (auto full = streams_.take_queue_room(id, now)) {  // here, because mailboxes are unbounded
    streams_.end(id, refused(*std::move(full)), now);
  } else {
    unit->submit(id);
  }
  if (unit && unit->is_on_request()) on_request_->decide();
  return id;
}

void GatewayImpl::load_models(std::vector<std::pair<ModelRequest, OnModelChange>> requests) {
  std::vector<ModelLoad> loads;
  for (auto& [request, done] : requests) {
    const Replace replace = replace_of(request.keys.replace);
    loads.push_back({source_of(std::move(request), options_.load, options_.predict, options_.keep_alive),
                     std::move(done), replace});
  }
  models_.load(context(), std::move(loads));
}

// Takes the session that the request names; then its end is stored on the way to `sink`.
std::optional<scheduler::Refusal> GatewayImpl::begin_turn(Request& request, std::shared_ptr<StreamSink>& sink) {
  if (request.num_choices != 1)
    return scheduler::Refusal{
        .outcome = Outcome::invalid_argument,
        .message = fmt::format("n is {}; a session is continued by one answer", request.num_choices),
        .field = "n",
        .limit = 1};
  auto begun = sessions_.begin(request.tenant, request.session, request.session_recompute);
  if (auto* refusal = std::get_if<scheduler::Refusal>(&begun)) return std::move(*refusal);
  request.turn = std::get<std::shared_ptr<SessionTurn>>(begun);
  if (!request.turn->is_new()) request.add_special = false;  // the text goes on behind what is there
  sink = sessions_.wrap(request.turn, std::move(sink));
  return std::nullopt;
}

void GatewayImpl::session(SessionQuestion question, std::function<void(SessionAnswer)> done) {
  if (draining_) return done(scheduler::server_drains());
  done = told_to(question.tenant, std::move(done));
  if (question.kind != SessionQuestion::Kind::inspect) return sessions_.ask(question, std::move(done));
  sessions_.ask(question, [this, done = std::move(done), tenant = question.tenant.id](SessionAnswer answer) {
    if (!std::holds_alternative<std::vector<SessionInfo>>(answer)) return done(std::move(answer));
    auto infos = std::make_shared<std::vector<SessionInfo>>(std::get<std::vector<SessionInfo>>(std::move(answer)));
    std::vector<std::uint64_t> hashes;
    for (const SessionAnchor& each : infos->front().anchors) hashes.push_back(each.anchor.hash);
    auto with_cached = [infos, done](const std::vector<bool>& cached) {
      SessionInfo& info = infos->front();
      info.cache_known = cached.size() == info.anchors.size();
      for (std::size_t i = 0; i < cached.size(); ++i) info.anchors[i].cached = cached[i];
      done(std::move(*infos));
    };
    const auto unit = models_.with_numerics(infos->front().numerics_id);
    auto asked = std::make_shared<CacheQuestion>(cache::scopes_for(tenant, {}), std::move(hashes), with_cached);
    unit ? unit->ask(std::move(asked)) : asked->answer_unknown();  // no cache has blocks of another model
  });
}

std::variant<GatewayImpl::Vocabulary, End> GatewayImpl::with_vocabulary(const TextRequest& request) const {
  const auto unit = models_.find(request.model, request.tenant);
  if (!unit) return unknown_model(request.model, models_.all_names(request.tenant));
  if (draining_) return refused(scheduler::server_drains());
  auto model = unit->state().model();
  if (!model) return not_ready(unit->state());
  if (model->tokenizer()) return Vocabulary{unit, std::move(model)};
  return refusal(Outcome::unsupported, {}, "this model has no vocabulary; use token ids");
}

// done: called once with the answer, after the text has stopped counting against the limits. renders: as of TextJob.
template <class Answer, class Convert>
CancelFlag GatewayImpl::post_text(scheduler::Tenant tenant, std::uint64_t bytes, std::function<void(Answer)> done,
                                  Convert work, const void* renders) {
  TextJob job;
  job.renders = renders;
  job.tenant = std::move(tenant);
  job.bytes = job.first_part = bytes;
  CancelFlag unwanted = job.unwanted;
  const auto answer = std::make_shared<Answer>();
  const auto finished = std::make_shared<std::function<void(Answer)>>(std::move(done));
  job.work = [answer, unwanted, work = std::move(work)] {
    convert(*answer, [&] { return work(unwanted.get()); });
    return std::uint64_t{0};
  };
  job.ended = [answer, finished](std::optional<End> end) {
    if (end) return (*finished)(*std::move(end));
    (*finished)(std::move(*answer));
  };
  if (auto refused = texts_->post(std::move(job))) (*finished)(*std::move(refused));
  return unwanted;
}

CancelFlag GatewayImpl::tokenize(TextRequest request, std::string text, engine::EncodeOptions options,
                                 OnTokenized done) {
  done = told_to(request.tenant, std::move(done));
  const auto found = with_vocabulary(request);
  if (const auto* no = std::get_if<End>(&found)) return answered(done, *no);
  if (auto wrong = check_text(text)) return answered(done, refused(*std::move(wrong)));
  const std::uint64_t bytes = text.size();
  return post_text(
      request.tenant, bytes, std::move(done),
      [model = std::get<Vocabulary>(found).model, text = std::move(text), options](const std::atomic<bool>* interrupt) {
        engine::EncodeOptions with_flag = options;
        with_flag.interrupt = interrupt;
        return model->tokenizer()->encode(text, with_flag);
      });
}

CancelFlag GatewayImpl::detokenize(TextRequest request, std::vector<TokenId> ids, OnDetokenized done) {
  done = told_to(request.tenant, std::move(done));
  const auto found = with_vocabulary(request);
  if (const auto* no = std::get_if<End>(&found)) return answered(done, *no);
  const std::uint32_t size = std::get<Vocabulary>(found).model->tokenizer()->size();
  if (const auto unknown = engine::find_unknown_id(ids, size)) {
    return answered(done,
                    refusal(Outcome::invalid_argument, "ids",
                            fmt::format("token id {} is not in the vocabulary of {} tokens", ids[*unknown], size)));
  }
  const std::uint64_t bytes = ids.size() * sizeof(TokenId);
  return post_text(request.tenant, bytes, std::move(done),
                   [model = std::get<Vocabulary>(found).model, ids = std::move(ids)](
                       const std::atomic<bool>* interrupt) { return model->tokenizer()->decode(ids, interrupt); });
}

template <class Answer, class Convert>
CancelFlag GatewayImpl::post_chat(TextRequest request, ChatPrompt chat, std::function<void(Answer)> done,
                                  Convert convert) {
  done = told_to(request.tenant, std::move(done));
  const auto found = with_vocabulary(request);
  if (const auto* no = std::get_if<End>(&found)) return answered(done, *no);
  const auto& [unit, model] = std::get<Vocabulary>(found);
  if (!model->chat_template()) return answered(done, refusal(Outcome::unsupported, "messages", model->chat_problem()));
  take_conversation(*unit->defaults(), false, chat);
  Request shape;
  shape.prompt = std::move(chat);
  if (auto wrong = check_shape(shape)) return answered(done, refused(*std::move(wrong)));
  const std::uint64_t bytes = input_bytes(shape);
  return post_text(
      request.tenant, bytes, std::move(done),
      [model = model, shape = std::move(shape), convert](const std::atomic<bool>* interrupt) -> Answer {
        const ChatPrompt& conversation = std::get<ChatPrompt>(shape.prompt);
        const auto prompt = render(conversation, *model->chat_template_for(conversation), *model->tokenizer(),
                                   interrupt, nullptr, model->tool_form());
        if (!prompt) return refusal(Outcome::invalid_argument, "messages", prompt.error().message);
        return convert(*prompt, *model, interrupt);
      },
      model.get());
}

CancelFlag GatewayImpl::apply_template(TextRequest request, ChatPrompt chat, OnRendered done) {
  chat.as_it_is = true;
  return post_chat(std::move(request), std::move(chat), std::move(done),
                   [](const engine::chat::RenderedPrompt& prompt, const ServedModel&, const std::atomic<bool>*) {
                     return prompt.text();
                   });
}

CancelFlag GatewayImpl::tokenize_chat(TextRequest request, ChatPrompt chat, OnTokenized done) {
  return post_chat(std::move(request), std::move(chat), std::move(done),
                   [](const engine::chat::RenderedPrompt& prompt, const ServedModel& model,
                      const std::atomic<bool>* interrupt) -> Tokenized {
                     if (const auto too_long = model.cannot_fit(prompt))
                       return refusal(Outcome::invalid_argument, "messages", too_long->message);
                     return model.tokenizer()->encode(prompt.segments, {.add_special = true, .interrupt = interrupt});
                   });
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options) {
  // Before the models' files are open: where descriptors are few, there is then one to read the machine's files with.
  if (options.memory == 0) options.memory = engine::default_memory_budget();
  auto catalog = check_options(options);
  if (!catalog) return catalog.error();
  std::optional<KillPlan> kills;
  if (const char* text = std::getenv("TROUPE_TEST_KILL")) {
    auto plan = parse_kill_plan(text);
    if (!plan) return plan.error();
    kills = std::move(*plan);
  }
  // A half-started actor system cannot be destroyed: CAF 0.17 then joins threads that it has not started, or waits for
  // them for ever. So it is built on a thread that catches nothing: an exception ends the process by std::terminate
  // where it is thrown, before any destructor runs.
  std::unique_ptr<Gateway> gateway;
  std::thread([&] {
    gateway = std::make_unique<GatewayImpl>(std::move(options), *std::move(catalog), std::move(kills));
  }).join();
  return gateway;
}

Result<std::unique_ptr<Gateway>> Gateway::start_loaded(GatewayOptions options) {
  auto started = start(std::move(options));
  if (!started) return started.error();
  std::promise<Status> loaded;
  (*started)->on_loaded([&](Status status) { loaded.set_value(std::move(status)); });
  if (const Status status = loaded.get_future().get(); !status) return status.error();
  return started;
}

void crash_for_test(Gateway& gateway, Role role) {
  auto* impl = dynamic_cast<GatewayImpl*>(&gateway);
  TROUPE_ASSERT(impl != nullptr);
  impl->crash(role);
}

}  // namespace troupe::actors
