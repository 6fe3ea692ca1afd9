#include "actors/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>

#include "actors/actor_base.h"
#include "actors/embedder.h"
#include "actors/messages.h"
#include "actors/request_check.h"
#include "actors/saboteur.h"
#include "actors/server_context.h"
#include "actors/supervisor.h"
#include "actors/testing.h"
#include "actors/threads/topology.h"
#include "config/assert.h"
#include "engine/model/hidden_states.h"
#include "engine/sampling/check_ids.h"

namespace troupe::actors {
namespace {

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

// ", 40 window blocks of 4096 bytes, 64 snapshots of 20480 bytes, 16 states": those that the model has.
std::string other_pools(const engine::LoadedModel& model) {
  std::string text;
  if (const auto& windows = model.window_arena())
    text += fmt::format(", {} window blocks of {} bytes", windows->num_blocks(), windows->bytes_per_block());
  if (const auto& snapshots = model.snapshots())
    text += fmt::format(", {} snapshots of {} bytes", snapshots->num_snapshots(), snapshots->bytes_per_snapshot());
  if (const std::uint32_t states = model.num_states(); states > 0) text += fmt::format(", {} states", states);
  return text;
}

// Below 2^53: JSON tools that keep numbers as doubles (jq, JavaScript) pass it on without rounding, so that an answer
// can be asked for again.
std::uint64_t draw_seed() {
  constexpr int kBits = 53;
  std::random_device device;
  return ((std::uint64_t{device()} << 32) | device()) >> (64 - kBits);
}

// The answer to a text request while no model is loaded.
End not_ready(const ModelState& model) {
  if (const auto error = model.error()) return ended_as(scheduler::Outcome::model_unloaded, error->message);
  return refusal(scheduler::Outcome::loading, {},
                 "the model is still loading (" + std::to_string(static_cast<int>(model.fraction() * 100)) +
                     " %); try again later");
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
    answer = ended_as(why.out_of_memory ? scheduler::Outcome::out_of_memory : scheduler::Outcome::internal,
                      "this text could not be worked on: " + why.what);
  }
}

Status check_kernels(const std::string& option) {
  const char* variable = std::getenv("TROUPE_KERNELS");
  const std::string name = option.empty() && variable ? variable : option;
  if (name.empty()) return Ok{};
  const kernels::KernelTable* table = kernels::find_table(name);
  if (table && kernels::is_supported(*table)) return Ok{};
  std::string runs;
  for (const kernels::KernelTable* each : kernels::supported_tables()) {
    runs += (runs.empty() ? "" : ", ") + std::string(each->name);
  }
  if (table) {
    return Error{ErrorCode::unsupported, "this CPU cannot run the kernel variant \"" + name + "\"; it runs: " + runs};
  }
  return Error{ErrorCode::invalid_argument, "there is no kernel variant \"" + name + "\"; this CPU runs: " + runs};
}

template <class Answer>
CancelFlag answered(const std::function<void(Answer)>& done, End end) {
  done(std::move(end));
  return std::make_shared<std::atomic<bool>>(false);
}

// Checks the options without loading the model. Returns whether the model is an encoder.
Result<bool> check_options(const GatewayOptions& options) {
  const auto file = engine::open_gguf(options.model_path);
  if (!file) return file.error();
  if (options.max_step_tokens == 0 || options.max_sequences == 0 || options.max_queued_requests == 0) {
    return Error{ErrorCode::invalid_argument, "max_step_tokens, max_sequences and max_queued_requests must be above 0"};
  }
  if (const Status kernels = check_kernels(options.load.kernels); !kernels) return kernels.error();
  return engine::is_encoder(**file);
}

End generates_nothing() {
  return refused({.outcome = scheduler::Outcome::unsupported,
                  .message = "this server's model is an encoder: it makes vectors of texts (Embed) and continues none",
                  .field = "generate",
                  .limit = std::nullopt});
}

class GatewayImpl final : public Gateway {
 public:
  GatewayImpl(GatewayOptions options, bool is_encoder, std::optional<KillPlan> kills);
  ~GatewayImpl() override;

  RequestId submit(Request request, std::shared_ptr<StreamSink> sink) override;
  void cancel(RequestId id) override { caf::anon_send(supervisor_, msg::Cancel{id, std::chrono::steady_clock::now()}); }
  void credit(RequestId id, std::uint64_t tokens) override;
  Readiness readiness() const override { return model_.readiness(); }
  double load_fraction() const override { return model_.fraction(); }
  bool is_making_progress() const override;
  void status(std::function<void(StatusSnapshot)> done) override;
  std::shared_ptr<const engine::LoadedModel> model() const override { return model_.model(); }
  std::shared_ptr<const engine::Encoder> encoder() const override { return embedder_->encoder(); }
  std::shared_ptr<const engine::TextVectors> vectors() const override { return embedder_->vectors(); }
  std::vector<ModelDescription> models() const override;
  CancelFlag embed(EmbedRequest request, OnEmbedded done) override;
  CancelFlag tokenize(scheduler::Tenant tenant, std::string text, engine::EncodeOptions options,
                      OnTokenized done) override;
  CancelFlag detokenize(scheduler::Tenant tenant, std::vector<TokenId> ids, OnDetokenized done) override;
  void drain(std::function<void()> done) override;
  void on_loaded(std::function<void(Status)> done) override { model_.on_loaded(std::move(done)); }
  void crash(Role role) { caf::anon_send(supervisor_, msg::Crash{role}); }

 private:
  ServerContext context();
  void load(const caf::actor& supervisor, engine::Team& team);
  void load_model(const engine::LoadOptions& load);
  void load_encoder(const engine::LoadOptions& load);
  void not_loaded(const Error& error);
  std::variant<std::shared_ptr<const engine::Tokenizer>, End> vocabulary() const;
  template <class Answer, class Convert>
  CancelFlag post_text(scheduler::Tenant tenant, std::uint64_t bytes, std::function<void(Answer)> done, Convert work);

  // Order matters: each member outlives those below it.
  GatewayOptions options_;
  const bool is_encoder_;
  CpuPlan cpus_;
  ModelState model_;
  StreamTable streams_;
  Counters counters_;
  MemoryLedger memory_;
  SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<TextThreads> texts_;  // jobs of these two send to actors, so they are destroyed before the system
  std::unique_ptr<ComputePool> compute_;
  std::unique_ptr<Embedder> embedder_;  // posts jobs to those two until they are destroyed
  FaultPoints faults_;
  caf::actor supervisor_;
  caf::actor saboteur_;  // null except in soak tests
};

GatewayOptions with_defaults(GatewayOptions options) {
  if (options.num_threads == 0) options.num_threads = engine::default_num_threads();
  if (options.tokenizer_threads == 0) options.tokenizer_threads = 1;
  options.load.max_sequences = options.max_sequences;
  return options;
}

// The next step throws once after the flag is set.
FaultPoints faults_of(const std::shared_ptr<std::atomic<bool>>& break_step) {
  return {.before_step =
              [break_step](const engine::StepBatch&) {
                if (break_step->exchange(false)) throw std::runtime_error("TROUPE_TEST_KILL");
              },
          .before_encode = {},
          .before_row = {}};
}

GatewayImpl::GatewayImpl(GatewayOptions options, bool is_encoder, std::optional<KillPlan> kills)
    : options_(with_defaults(std::move(options))),
      is_encoder_(is_encoder),
      cpus_(plan_cpus(allowed_places(), options_.num_threads)),
      model_(options_.model_alias.empty() ? std::filesystem::path(options_.model_path).stem().string()
                                          : options_.model_alias),
      streams_({.max_requests_per_tenant = options_.max_requests_per_tenant,
                .max_queued_requests = options_.max_queued_requests,
                .max_queued_tokens = options_.max_queued_tokens,
                .max_parked_requests = options_.max_parked_requests}),
      counters_(std::chrono::steady_clock::now()),
      memory_(engine::process_memory()),
      config_(cpus_.rest),
      system_(std::make_unique<caf::actor_system>(config_)),
      texts_(std::make_unique<TextThreads>(TextThreadsOptions{.max_large = options_.tokenizer_threads,
                                                              .max_texts = options_.max_queued_texts,
                                                              .max_bytes = options_.max_queued_text_bytes},
                                           cpus_.rest)),
      compute_(std::make_unique<ComputePool>(options_.num_threads, cpus_.compute)),
      embedder_(std::make_unique<Embedder>(options_, streams_, *texts_, *compute_)) {
  const auto break_step = std::make_shared<std::atomic<bool>>(false);
  if (kills) faults_ = faults_of(break_step);
  supervisor_ = system_->spawn<Supervisor>(context());
  if (kills) saboteur_ = system_->spawn<Saboteur>(std::move(*kills), supervisor_, break_step);
  compute_->team().set_profiler(options_.profiler.get());
  // Captured by value: the destructor clears both members before it waits for this job.
  compute_->post([this, supervisor = supervisor_, &team = compute_->team()] { load(supervisor, team); });
}

ServerContext GatewayImpl::context() {
  return {.options = options_,
          .streams = streams_,
          .counters = counters_,
          .memory = memory_,
          .model = model_,
          .texts = *texts_,
          .compute = *compute_,
          .faults = faults_,
          .embedder = embedder_.get()};
}

GatewayImpl::~GatewayImpl() {
  model_.set_draining();
  compute_->team().stop();  // aborts a running load, step or Embed pass
  if (model_.loading()) spdlog::info("loading is given up");
  embedder_->drain(std::chrono::steady_clock::now());
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  supervisor_ = nullptr;
  if (saboteur_) caf::anon_send_exit(saboteur_, caf::exit_reason::user_shutdown);
  saboteur_ = nullptr;
  system_->await_all_actors_done();
  End stopped;
  stopped.message = "the server stopped before this answer was complete";
  stopped.outcome = scheduler::Outcome::cancelled;
  End refused_end = stopped;
  refused_end.outcome = scheduler::Outcome::draining;
  refused_end.message = "the server stopped before this request was begun";
  streams_.end_all(stopped, refused_end, std::chrono::steady_clock::now());
  texts_.reset();
  compute_.reset();
  system_.reset();
}

// On the compute thread, which has no other work yet and whose team packs the weights.
void GatewayImpl::load(const caf::actor& supervisor, engine::Team& team) {
  engine::LoadOptions load = options_.load;
  load.team = &team;
  load.progress = [this](double fraction) { model_.set_fraction(fraction); };
  try {
    is_encoder_ ? load_encoder(load) : load_model(load);
  } catch (const engine::Stopped&) {
    return;
  } catch (...) {
    const Failure why = failure_of(std::current_exception());
    not_loaded({why.out_of_memory ? ErrorCode::out_of_memory : ErrorCode::io, options_.model_path + ": " + why.what});
  }
  caf::anon_send(supervisor, msg::ModelLoaded{});
}

void GatewayImpl::not_loaded(const Error& error) {
  spdlog::error("the model could not be loaded: {}", error.message);
  model_.failed(error);
}

void GatewayImpl::load_model(const engine::LoadOptions& load) {
  const TimePoint start = std::chrono::steady_clock::now();
  auto loaded = engine::LoadedModel::load(options_.model_path, load);
  if (!loaded) return not_loaded(loaded.error());
  const std::shared_ptr<engine::LoadedModel>& model = *loaded;
  const std::string name = options_.model_alias.empty() ? model->info().name : options_.model_alias;
  spdlog::info("loaded model \"{}\" in {:.2f} s: {} threads, kernels {}, {} cache blocks of {} bytes{}, numerics {}",
               name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
               options_.num_threads, model->kernels().name, model->arena()->num_blocks(),
               model->arena()->bytes_per_block(), other_pools(*model), model->numerics_id());
  embedder_->loaded(std::make_shared<const engine::HiddenStates>(model));
  model_.loaded(model, name);
}

void GatewayImpl::load_encoder(const engine::LoadOptions& load) {
  const TimePoint start = std::chrono::steady_clock::now();
  const auto encoder = engine::Encoder::load(options_.model_path, load);
  if (!encoder) return not_loaded(encoder.error());
  const std::string name = options_.model_alias.empty() ? (*encoder)->info().name : options_.model_alias;
  spdlog::info("loaded encoder \"{}\" in {:.2f} s: {} threads, kernels {}, numerics {}", name,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), options_.num_threads,
               (*encoder)->kernels().name, (*encoder)->numerics_id());
  embedder_->loaded(*encoder);
  model_.loaded_encoder(name);
}

CancelFlag GatewayImpl::embed(EmbedRequest request, OnEmbedded done) {
  const auto error = model_.error();
  if (!error) return embedder_->embed(std::move(request), std::move(done));
  return answered(done, ended_as(scheduler::Outcome::model_unloaded, error->message));
}

RequestId GatewayImpl::submit(Request request, std::shared_ptr<StreamSink> sink) {
  if (!request.has_seed) {
    request.sampling.seed = draw_seed();
    request.has_seed = true;
  }
  const TimePoint now = std::chrono::steady_clock::now();
  const RequestId id = streams_.add(std::move(request), std::move(sink), now);
  if (is_encoder_) {
    streams_.end(id, generates_nothing(), now);
    return id;
  }
  // The limit is checked here, because mailboxes are unbounded.
  if (auto full = streams_.take_place(id)) {
    streams_.end(id, refused(*std::move(full)), now);
    return id;
  }
  caf::anon_send(supervisor_, msg::Submit{id});
  return id;
}

void GatewayImpl::credit(RequestId id, std::uint64_t tokens) {
  if (const auto granted = streams_.grant(id, tokens, std::chrono::steady_clock::now()))
    caf::anon_send(supervisor_, msg::Credit{id, *granted});
}

void GatewayImpl::status(std::function<void(StatusSnapshot)> done) {
  const auto with_embedder = [this, done = std::move(done)](StatusSnapshot snapshot) {
    embedder_->fill(snapshot);
    const TimePoint::duration still = embedder_->without_progress(std::chrono::steady_clock::now());
    snapshot.last_step_age_seconds =
        std::max(snapshot.last_step_age_seconds, std::chrono::duration<double>(still).count());
    snapshot.stalled = snapshot.stalled || still > options_.progress_timeout;
    done(std::move(snapshot));
  };
  caf::anon_send(supervisor_, msg::Snapshot{std::make_shared<StatusQuery>(context(), with_embedder), {}});
}

// Generation and Embed are checked separately: progress of one does not hide that the other is stalled.
bool GatewayImpl::is_making_progress() const {
  const TimePoint now = std::chrono::steady_clock::now();
  return model_.readiness() != Readiness::failed &&
         counters_.without_progress(streams_.work_since(), now) <= options_.progress_timeout &&
         embedder_->without_progress(now) <= options_.progress_timeout;
}

std::vector<ModelDescription> GatewayImpl::models() const {
  ModelDescription description;
  description.name = model_.name();
  if (const auto encoder = embedder_->encoder()) {
    description.info = encoder->info();
    description.numerics_id = encoder->numerics_id();
    description.max_context = encoder->info().context;
    if (const auto& vocabulary = encoder->tokenizer()) {
      description.bos = vocabulary->bos();
      description.eos = vocabulary->eos();
    }
    return {description};
  }
  const auto model = model_.model();
  if (!model) return {};
  description.info = model->info();
  description.numerics_id = model->numerics_id();
  description.kv_bytes_per_token = model->cache_spec().bytes_per_token();
  if (const auto& vocabulary = model->tokenizer()) {
    description.bos = vocabulary->bos();
    description.eos = vocabulary->eos();
  }
  description.end_ids = model->end_ids();
  description.max_context = model->info().context;
  return {description};
}

std::variant<std::shared_ptr<const engine::Tokenizer>, End> GatewayImpl::vocabulary() const {
  if (model_.draining())
    return refusal(scheduler::Outcome::draining, {}, "this server is shutting down and takes no new requests");
  const auto model = model_.model();
  const auto encoder = embedder_->encoder();
  if (!model && !encoder) return not_ready(model_);
  const auto& tokenizer = model ? model->tokenizer() : encoder->tokenizer();
  if (!tokenizer) return refusal(scheduler::Outcome::unsupported, {}, "this model has no vocabulary; use token ids");
  return tokenizer;
}

// done: called once with the answer, after the text has stopped counting against the limits.
template <class Answer, class Convert>
CancelFlag GatewayImpl::post_text(scheduler::Tenant tenant, std::uint64_t bytes, std::function<void(Answer)> done,
                                  Convert work) {
  TextJob job;
  job.tenant = tenant;
  job.bytes = job.first_part = bytes;
  const CancelFlag unwanted = job.unwanted;
  const auto answer = std::make_shared<Answer>();
  const auto tell = std::make_shared<std::function<void(Answer)>>(std::move(done));
  job.work = [answer, unwanted, work = std::move(work)] {
    convert(*answer, [&] { return work(unwanted.get()); });
    return std::uint64_t{0};
  };
  job.ended = [answer, tell](std::optional<End> end) {
    if (end) return (*tell)(*std::move(end));
    (*tell)(std::move(*answer));
  };
  if (auto refused = texts_->post(std::move(job))) (*tell)(*std::move(refused));
  return unwanted;
}

CancelFlag GatewayImpl::tokenize(scheduler::Tenant tenant, std::string text, engine::EncodeOptions options,
                                 OnTokenized done) {
  auto vocabulary_or = vocabulary();
  if (auto* no = std::get_if<End>(&vocabulary_or)) return answered(done, std::move(*no));
  if (text.size() > kMaxPromptBytes) {
    return answered(done, refusal(scheduler::Outcome::invalid_argument, "text",
                                  "the text has " + std::to_string(text.size()) + " bytes; at most " +
                                      std::to_string(kMaxPromptBytes) + " are taken",
                                  kMaxPromptBytes));
  }
  const std::uint64_t bytes = text.size();
  return post_text(
      tenant, bytes, std::move(done),
      [vocabulary = std::get<0>(vocabulary_or), text = std::move(text), options](const std::atomic<bool>* interrupt) {
        engine::EncodeOptions with_flag = options;
        with_flag.interrupt = interrupt;
        return vocabulary->encode(text, with_flag);
      });
}

CancelFlag GatewayImpl::detokenize(scheduler::Tenant tenant, std::vector<TokenId> ids, OnDetokenized done) {
  auto vocabulary_or = vocabulary();
  if (auto* no = std::get_if<End>(&vocabulary_or)) return answered(done, std::move(*no));
  const std::uint32_t size = std::get<0>(vocabulary_or)->size();
  if (const auto unknown = engine::find_unknown_id(ids, size)) {
    return answered(done, refusal(scheduler::Outcome::invalid_argument, "ids",
                                  "token " + std::to_string(ids[*unknown]) + " is not in the vocabulary (0 to " +
                                      std::to_string(size - 1) + ")"));
  }
  const std::uint64_t bytes = ids.size() * sizeof(TokenId);
  return post_text(tenant, bytes, std::move(done),
                   [vocabulary = std::get<0>(vocabulary_or), ids = std::move(ids)](const std::atomic<bool>* interrupt) {
                     return vocabulary->decode(ids, interrupt);
                   });
}

void GatewayImpl::drain(std::function<void()> done) {
  model_.set_draining();
  spdlog::info("draining: {} streams are open", streams_.live().size());
  embedder_->drain(std::chrono::steady_clock::now() + options_.drain_timeout);
  caf::anon_send(supervisor_, msg::Drain{options_.drain_timeout});
  streams_.when_empty([this, done = std::move(done)]() mutable {
    embedder_->when_empty([this, done = std::move(done)]() mutable { texts_->when_empty(std::move(done)); });
  });
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options) {
  const Result<bool> is_encoder = check_options(options);
  if (!is_encoder) return is_encoder.error();
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
    gateway = std::make_unique<GatewayImpl>(std::move(options), *is_encoder, std::move(kills));
  }).join();
  return gateway;
}

void crash_for_test(Gateway& gateway, Role role) {
  auto* impl = dynamic_cast<GatewayImpl*>(&gateway);
  TROUPE_ASSERT(impl != nullptr);
  impl->crash(role);
}

}  // namespace troupe::actors
