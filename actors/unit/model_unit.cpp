#include "actors/unit/model_unit.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

#include "actors/batching/measure_steps.h"
#include "actors/requests/request_check.h"
#include "actors/serving/model_cache.h"
#include "actors/unit/supervisor.h"
#include "config/printable.h"

namespace troupe::actors {
namespace {

constexpr std::uint32_t kMaxDraftContexts = 8;  // whole contexts that a draft model's cache has room for

// Ends a load whose model is unloaded.
struct GivenUp {};
Error given_up() { return {ErrorCode::unsupported, "it was unloaded before it was loaded"}; }

// ", 96 cache blocks of 8192 bytes, 40 window blocks of 4096 bytes, 64 snapshots of 20480 bytes, 16 states": those that
// the model has.
std::string pools_of(const ServedModel& served) {
  std::string text;
  const auto& model = served.language_model();
  if (!model) return text;
  for (GroupId group = 0; group < model->arenas().size(); ++group)
    text += fmt::format(", {} {} blocks of {} bytes", model->arena(group)->num_blocks(),
                        group == 0 ? "cache" : "window", model->arena(group)->bytes_per_block());
  if (const auto& snapshots = model->snapshots())
    text += fmt::format(", {} snapshots of {} bytes", snapshots->num_snapshots(), snapshots->bytes_per_snapshot());
  if (const std::uint32_t states = model->num_states(); states > 0) text += fmt::format(", {} states", states);
  return text;
}

// Why a model is not served that was loaded from its files, and computes something else than before.
std::string not_sound(const std::string& what, const std::string& canary_file) {
  return fmt::format(
      "{}; loading it from its files did not help: this machine's memory or a CPU may be faulty. Test them "
      "(memtest86+; "
      "the kernel's log of machine checks, `journalctl -k -g 'mce|edac'`) before it is trusted{}",
      what,
      canary_file.empty() ? std::string()
                          : fmt::format("; if they are sound, the record is wrong: move {} away", canary_file));
}

void log_chat_template(const ServedModel& served) {
  if (!served.language_model()) return;
  if (const auto& chosen = served.chat_template())
    spdlog::info("chat template \"{}\", {} bytes", Printable(chosen->name()).text(), chosen->source().size());
  else
    spdlog::info("messages are refused: {}", served.chat_problem());
  if (const auto& for_tools = served.tool_template())
    spdlog::info("chat template \"{}\", {} bytes, for conversations with tools", for_tools->name(),
                 for_tools->source().size());
  else if (!served.tool_problem().empty())
    spdlog::warn("conversations with tools get the model's other template: {}", served.tool_problem());
  if (!served.chat_template()) return;
  const engine::chat::ToolForm& form = served.tool_form();
  spdlog::info(
      "tool format \"{}\"{}", form.format->name,
      form.reads_tools ? "" : "; the chat template knows no tools, so a conversation's first message has them");
  if (!form.warning.empty()) spdlog::warn("{}", form.warning);
}

Result<ServedModel> load_served(const std::shared_ptr<const engine::ModelFile>& file,
                                const engine::LoadOptions& options, const engine::chat::Limits& limits,
                                const std::atomic<bool>& given_up) {
  if (engine::is_encoder(*file)) {
    auto encoder = engine::Encoder::load(file, options);
    if (!encoder) return encoder.error();
    return ServedModel(*std::move(encoder));
  }
  auto model = engine::LoadedModel::load(file, options);
  if (!model) return model.error();
  return ServedModel(*std::move(model), &given_up, limits);
}

// The draft model, which takes its part of options.memory first: a few whole contexts of K and V.
Result<std::shared_ptr<engine::LoadedModel>> load_draft(const std::shared_ptr<const engine::ModelFile>& file,
                                                        engine::LoadOptions& options) {
  engine::LoadOptions small = options;
  small.memory = options.memory / 2;
  small.num_blocks = 0;
  small.num_snapshots = 0;
  small.max_sequences = std::min(options.max_sequences, kMaxDraftContexts);
  auto draft = engine::LoadedModel::load(file, small);
  if (!draft) return Error{draft.error().code, "the draft model: " + draft.error().message};
  const std::uint64_t states = (*draft)->num_states() * (*draft)->cache_spec().state.bytes();
  const std::uint64_t taken =
      (*draft)->model().weight_bytes() + (*draft)->vocabulary_bytes() + kv_bytes(**draft) + states;
  options.memory -= std::min(options.memory - 1, taken);
  return draft;
}

}  // namespace

std::shared_ptr<ModelUnit> ModelUnit::start(caf::actor_system& system, const ServerContext& server, UnitId id,
                                            CatalogEntry entry, std::shared_ptr<MemoryBudget::Part> memory,
                                            Destroy destroy, Load load) {
  std::shared_ptr<ModelUnit> unit(new ModelUnit(Private{}, server, id, std::move(entry), std::move(memory)),
                                  std::move(destroy));
  unit->load_begun_ = load == Load::now;
  unit->begin(system);
  return unit;
}

ModelUnit::ModelUnit(Private, const ServerContext& server, UnitId id, CatalogEntry entry,
                     std::shared_ptr<MemoryBudget::Part> memory)
    : entry_(std::move(entry)),
      defaults_(std::make_shared<const config::ModelDefaults>(std::move(entry_.defaults))),
      memory_(std::move(memory)),
      server_(server),
      parts_(id, entry_.name, entry_.source.aliases, entry_.source.load.memory_policy, server.streams.work_clock(id),
             server.compute.accounts(), entry_.source.weight) {
  parts_.shares->shares().on_charge(
      [&streams = server_.streams](TenantId tenant, double seconds) { streams.tenants().charged(tenant, seconds); });
}

void ModelUnit::begin(caf::actor_system& system) {
  parts_.on_request = is_on_request();
  parts_.model.set_awaits_request(is_on_request() && !load_begun_);
  if (entry_.problem) fail(*entry_.problem);
  std::function<void(engine::Team&)> load;
  if (!entry_.source.path.empty()) load = [self = shared_from_this()](engine::Team& team) { self->load(team); };
  supervisor_ = system.spawn<Supervisor>(server_, parts_, shared_from_this(), std::move(load), !load_begun_);
  share_ownership(supervisor_, shared_from_this());
}

CatalogEntry ModelUnit::entry_for_later() const {
  ModelSource source = source_after_damage();
  if (!is_out_) source.after_damage.reset();
  return {.source = std::move(source),
          .name = entry_.name,
          .file = nullptr,
          .draft_file = nullptr,
          .demand = demand(),
          .defaults = *defaults(),
          .notes = entry_.notes,
          .problem = std::nullopt};
}

ModelUnit::~ModelUnit() { server_.streams.forget_unit(id()); }

void ModelUnit::fail(const Error& error) {
  spdlog::error("model {} could not be loaded: {}", Printable(entry_.name).text(), error.message);
  end_load(error);
}

void ModelUnit::end_load(const Error& error) {
  parts_.integrity.let_go();
  memory_->settle(0);
  parts_.model.failed(error);
}

void ModelUnit::cancel(RequestId request, TimePoint now) const {
  const auto body = server_.streams.request(request);
  if (!body || !server_.streams.end(request, ended_as(scheduler::Outcome::cancelled, {}), now)) return;
  parts_.mailboxes.send(Role::intake, msg::Forget{request});
  parts_.mailboxes.send(worker_role(body->kind()), msg::Forget{request, now});
}

void ModelUnit::drain(std::chrono::milliseconds timeout) {
  parts_.model.set_draining();
  drop_renderings(refused(scheduler::server_drains()));
  caf::anon_send(supervisor_, msg::Drain{timeout});
}

void ModelUnit::unload(std::chrono::milliseconds timeout, std::function<void()> drained) {
  given_up_ = true;
  parts_.model.set_unloading();
  drop_renderings(being_unloaded(name()));
  caf::anon_send(supervisor_, msg::Unload{timeout});
  if (!load_begun_.exchange(true)) {  // no loader would tell it
    end_load(given_up());
    caf::anon_send(supervisor_, msg::ModelLoaded{});
  }
  when_drained(std::move(drained));
}

// Closes the gate, and calls `drained` once no one is in it and the unit has no stream.
void ModelUnit::when_drained(std::function<void()> drained) {
  auto then = [&streams = server_.streams, id = id(), drained = std::move(drained)] {
    streams.when_empty(id, drained);
  };
  std::shared_ptr<Gate> gate;
  {
    const std::lock_guard lock(gate_mutex_);
    if (gate_) closed_gate_ = gate_;
    gate = gate_ ? std::exchange(gate_, nullptr) : closed_gate_.lock();
    if (gate) gate->then.push_back(then);
  }
  if (!gate) then();
}

void ModelUnit::retire(std::function<void()> drained) {
  parts_.model.set_retiring();
  when_drained(std::move(drained));
}

// A template may take its time, whatever the answers that run need of theirs.
void ModelUnit::drop_renderings(const End& how) {
  if (const auto model = parts_.model.model()) server_.texts.drop_renderings(model.get(), how);
}

void ModelUnit::ask(std::shared_ptr<StatusQuery> query) {
  const std::uint64_t number = parts_.questions.status.add(std::move(query));
  if (const caf::actor telemetry = parts_.mailboxes.get(Role::telemetry))
    caf::anon_send(telemetry, msg::Snapshot{number, parts_.mailboxes.get(Role::batcher)});
  else
    parts_.questions.answer_status(number);
}

void ModelUnit::ask(std::shared_ptr<CacheQuestion> question) {
  const std::uint64_t number = parts_.questions.cache.add(std::move(question));
  if (const caf::actor keeper = parts_.mailboxes.get(Role::keeper))
    caf::anon_send(keeper, msg::FindCached{number});
  else if (const auto own = parts_.questions.cache.take(number))
    (*own)->answer_unknown();
}

void ModelUnit::add_to(KnownMemory& known) const {
  known.step_buffers += parts_.counters.step_buffer_bytes();
  if (const auto model = parts_.model.model()) model->add_to(known);
}

CheckedModel ModelUnit::checked() {
  const auto error = parts_.model.error();
  const bool serves = parts_.model.model() && !error && !parts_.model.unloading();
  return {.name = name(),
          .owner = shared_from_this(),
          .integrity = serves && parts_.integrity.is_watching() ? &parts_.integrity : nullptr,
          .problem = error ? error->message : std::string(),
          .is_wanted = [this] { return !parts_.model.unloading() && !parts_.model.retiring() && !given_up_; },
          .take_out = [this](const std::string& what) { take_out(what); }};
}

void ModelUnit::take_out(const std::string& what) {
  if (is_out_.exchange(true)) return;
  // One that is loaded on request goes and comes anyway: what decides is whether it loads soundly.
  const bool is_last = entry_.source.after_damage.has_value() && !is_on_request();
  const std::string why = is_last              ? not_sound(what, {})
                          : server_.load_again ? what + "; it is loaded again from its file"
                                               : what + "; unload the model and load it again";
  spdlog::critical("model {} is taken out: {}. Answers since the checks before may be wrong", Printable(name()).text(),
                   why);
  parts_.model.failed({ErrorCode::io, why});
  const auto how =
      std::make_shared<const End>(ended_as(scheduler::Outcome::model_unloaded,
                                           "the server found that this model's weights, or what it computes with them, "
                                           "are damaged: this answer is not to be used; ask again"));
  caf::anon_send(supervisor_, msg::TakeOut{how});
  if (!is_last && server_.load_again) server_.load_again(id());
}

ModelSource ModelUnit::source_after_damage() const {
  ModelSource source = entry_.source;
  source.name = entry_.name;
  source.after_damage = parts_.integrity.counts();
  return source;
}

bool ModelUnit::is_making_progress(TimePoint now) const {
  // Of one that was taken out nothing is expected, and others may be sound.
  if (is_out_) return true;
  if (parts_.model.readiness() == Readiness::failed) return parts_.failed_to_load();
  return !health(now).stalled;
}

void ModelUnit::stop() {
  given_up_ = true;
  parts_.model.set_draining();
  if (const std::string gained = parts_.counters.drafts_gained(); !gained.empty())
    spdlog::info("model {}: {}", Printable(entry_.name).text(), gained);
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
}

// On the loader's thread, beside steps of other units; one load of the server runs at a time.
void ModelUnit::load(engine::Team& team) {
  if (!parts_.model.loading()) return;
  if (parts_.model.unloading()) return fail(given_up());
  const TimePoint start = std::chrono::steady_clock::now();
  try {
    if (is_on_request())
      if (const Status opened = open_again(); !opened) return fail(opened.error());
    auto served = load_sound(team);
    entry_.file = entry_.draft_file = nullptr;
    if (!served) return fail(served.error());
    spdlog::info("loaded {} \"{}\" in {:.2f} s: {} threads, kernels {}{}, numerics {}",
                 served->language_model() ? "model" : "encoder", Printable(entry_.name).text(),
                 seconds_between(start, std::chrono::steady_clock::now()), server_.options.num_threads,
                 served->kernels().name, pools_of(*served), served->numerics_id());
    log_chat_template(*served);
    for (const std::string& note : entry_.notes) spdlog::warn("{}: {}", entry_.source.path, note);
    measure(*served, seconds_between(start, std::chrono::steady_clock::now()));
    set_loaded(*std::move(served));
  } catch (const engine::Stopped&) {
    throw;
  } catch (const engine::Interrupted&) {
    fail(given_up());
  } catch (const GivenUp&) {
    fail(given_up());
  } catch (...) {
    const Failure why = failure_of(std::current_exception());
    fail({why.out_of_memory ? ErrorCode::out_of_memory : ErrorCode::io, entry_.source.path + ": " + why.what});
  }
}

// Of a model that is loaded on request, whose files were closed until now and may be others than those that were looked
// at.
Status ModelUnit::open_again() {
  CatalogEntry now = describe(entry_.source);
  if (now.problem) return *now.problem;
  now.demand.model = entry_.name;
  if (Status fits = memory_->change_demand(now.demand); !fits) {
    const std::lock_guard lock(defaults_mutex_);
    next_demand_ = std::move(now.demand);
    return fits;
  }
  entry_.file = std::move(now.file);
  entry_.draft_file = std::move(now.draft_file);
  entry_.notes = std::move(now.notes);
  const std::lock_guard lock(defaults_mutex_);
  defaults_ = std::make_shared<const config::ModelDefaults>(std::move(now.defaults));
  return Ok{};
}

// Once more from its files alone, if it does not compute what it did in earlier loads.
Result<ServedModel> ModelUnit::load_sound(engine::Team& team) {
  if (entry_.source.after_damage) parts_.integrity.go_on_from(*entry_.source.after_damage);
  for (bool is_last = entry_.source.after_damage.has_value();; is_last = true) {
    auto served = load_files(team, !is_last);
    if (!served) return served;
    const std::optional<std::string> wrong = watch(*served);
    if (!wrong) return served;
    if (is_last) return Error{ErrorCode::io, not_sound(*wrong, server_.options.canary_file)};
    spdlog::error("model {}: {}; it is loaded once more, from its file and not from the weights cache",
                  Printable(entry_.name).text(), *wrong);
  }
}

std::optional<std::string> ModelUnit::watch(const ServedModel& served) {
  std::vector<OpenedFile> files;
  for (const auto& file : {entry_.file, entry_.draft_file})
    if (file) files.push_back({file->path(), file->stamp()});
  const auto run = [this](const std::function<void()>& pass) {
    if (parts_.model.unloading()) throw GivenUp();
    ModelChecker::run_pass(server_.compute, pass);
  };
  const auto note = [this](bool is_warning, const std::string& text) {
    spdlog::log(is_warning ? spdlog::level::warn : spdlog::level::info, "model {}: {}", Printable(entry_.name).text(),
                text);
  };
  return parts_.integrity.watch(served, std::move(files), server_.compute.team(), run, server_.options.canary_file,
                                note);
}

// In the memory that is reserved for it. The draft model comes first: it is small, and takes its part of the memory.
Result<ServedModel> ModelUnit::load_files(engine::Team& team, bool trust_cache) {
  engine::LoadOptions options = entry_.source.load;
  options.weights_cache.distrusted = !trust_cache;
  const auto memory = memory_->reserve();
  if (!memory) return memory.error();
  options.memory = *memory;
  options.max_sequences = server_.options.max_sequences;
  options.team = &team;
  options.progress = [this](double fraction) {
    parts_.model.set_fraction(fraction);
    if (parts_.model.unloading()) throw GivenUp();
  };
  std::shared_ptr<engine::LoadedModel> draft;
  if (entry_.draft_file) {
    auto loaded = load_draft(entry_.draft_file, options);
    if (!loaded) return loaded.error();
    draft = *std::move(loaded);
  }
  const engine::chat::Limits limits{.max_value_bytes = server_.options.max_rendering_bytes};
  auto served = load_served(entry_.file, options, limits, given_up_);
  if (!served) return served;
  if (draft) {
    const std::string drafting =
        fmt::format("draft model \"{}\": {} parameters, {} blocks of {} bytes", draft->info().name,
                    draft->info().num_parameters, draft->arena()->num_blocks(), draft->arena()->bytes_per_block());
    const auto how = served->set_draft_model(std::move(draft));
    if (!how) return Error{how.error().code, "the draft model: " + how.error().message};
    const bool by_text = *how == engine::Drafting::by_text;
    spdlog::info("{}{}", drafting, by_text ? "; its vocabulary is another one, so it drafts by text" : "");
  }
  if (!entry_.source.chat_template.name.empty())
    if (const Status chosen = served->choose_chat_template(entry_.source.chat_template, &given_up_); !chosen)
      return chosen.error();
  if (server_.options.check_model)
    if (const Status served_well = server_.options.check_model(*served); !served_well) return served_well.error();
  return served;
}

// What its steps take, so that the first prompt is cut and the first deadline checked by more than nothing. Each step
// is a job of its own, between those of other units. Not a part of the profile: these steps serve no request.
void ModelUnit::measure(const ServedModel& served, double load_seconds) {
  const GatewayOptions& options = server_.options;
  if (!served.language_model() || options.max_measuring.count() == 0) return;
  const double limit = std::max(std::chrono::duration<double>(options.max_measuring).count(), load_seconds / 20);
  scheduler::CostModel costs;
  engine::Team& team = server_.compute.team();
  const auto run_step = [&](const std::function<void()>& step) {
    server_.compute.measure(parts_.source, [&] {
      team.set_profiler(nullptr);
      step();
      team.set_profiler(options.profiler.get());
    });
  };
  measure_steps(*served.language_model(), team,
                {.max_seconds = limit, .max_step_tokens = options.max_step_tokens, .run_step = run_step}, costs);
  const auto lock = parts_.shares->lock();
  parts_.shares->experience()->costs = costs;
}

void ModelUnit::set_loaded(ServedModel model) {
  memory_->settle(model.budget_bytes());
  parts_.model.loaded(std::make_shared<const ServedModel>(std::move(model)));
}

}  // namespace troupe::actors
