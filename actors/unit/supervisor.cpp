#include "actors/unit/supervisor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <string_view>

#include "actors/requests/request_check.h"
#include "actors/serving/model_cache.h"
#include "actors/unit/batcher.h"
#include "actors/unit/cache_keeper.h"
#include "actors/unit/draft_worker.h"
#include "actors/unit/embed_worker.h"
#include "actors/unit/intake.h"
#include "actors/unit/loader.h"
#include "actors/unit/messages.h"
#include "actors/unit/target_worker.h"
#include "actors/unit/telemetry.h"
#include "config/printable.h"

namespace troupe::actors {

constexpr std::array<Supervisor::Part, kNumRoles> Supervisor::kParts = {{
    {Role::telemetry, &Supervisor::is_always_wanted, &Supervisor::make_telemetry},
    {Role::intake, &Supervisor::is_always_wanted, &Supervisor::make_intake},
    {Role::loader, &Supervisor::wants_loader, &Supervisor::make_loader},
    {Role::keeper, &Supervisor::wants_language_model, &Supervisor::make_keeper},
    {Role::worker, &Supervisor::wants_language_model, &Supervisor::make_worker},
    {Role::drafter, &Supervisor::wants_draft_model, &Supervisor::make_drafter},
    // After the keeper and the worker, which it knows.
    {Role::batcher, &Supervisor::wants_language_model, &Supervisor::make_batcher},
    {Role::embedder, &Supervisor::wants_model, &Supervisor::make_embedder},
}};

Supervisor::Supervisor(caf::actor_config& cfg, const ServerContext& server, UnitParts& unit,
                       std::shared_ptr<const void> owner, std::function<void(engine::Team&)> load, bool load_waits)
    : ActorBase(cfg, "supervisor"),
      owner_(std::move(owner)),
      server_(server),
      unit_(unit),
      load_(std::move(load)),
      load_waits_(load_waits) {
  set_down_handler([this](const caf::down_msg& down) { child_died(down); });
  // No other actor restarts this one, and without it no request would end.
  set_exception_handler([](std::exception_ptr&) -> caf::error { std::terminate(); });
}

caf::behavior Supervisor::make_behavior() {
  start_missing();
  return {
      [this](const msg::BeginLoad&) {
        load_waits_ = false;
        start_missing();
      },
      [this](const msg::ModelLoaded&) {
        model_ready_ = unit_.model.model() != nullptr;
        if (model_ready_) unit_.counters.model_loaded(now());
        start_missing();
        if (!model_ready_) wire_intake();  // it ends the requests that wait
      },
      [this](const msg::Restart&) {
        restart_pending_ = false;
        if (!gave_up_) start_missing();
      },
      [this](const msg::Drain& drain) { delayed_send(this, drain.timeout, msg::DrainTimeout{}); },
      [this](const msg::DrainTimeout&) {
        end_all(ended_as(scheduler::Outcome::cancelled, "the server shut down before this answer was complete"));
        server_.texts.drop_all();
      },
      [this](const msg::Unload& unload) { delayed_send(this, unload.timeout, msg::UnloadTimeout{}); },
      [this](const msg::UnloadTimeout&) {
        end_all(ended_as(scheduler::Outcome::model_unloaded, "the model was unloaded before this answer was complete"));
      },
      [this](const msg::TakeOut& out) { end_service(*out.how); },
      [this](const msg::Crash& m) {
        if (m.role != Role::tokenizer) return pass_on(m.role, caf::make_message(m));
        for (const caf::actor& tokenizer : tokenizers_) return send(tokenizer, m);
      },
  };
}

void Supervisor::on_exit() {
  for (std::size_t i = 0; i < kNumRoles; ++i) {
    if (children_[i]) send_exit(children_[i], caf::exit_reason::user_shutdown);
    set_child(static_cast<Role>(i), nullptr);
  }
  for (const caf::actor& tokenizer : tokenizers_) send_exit(tokenizer, caf::exit_reason::user_shutdown);
  tokenizers_.clear();
  unit_.questions.answer_all_status();
  unit_.questions.answer_all_cache();
  owner_ = nullptr;
  load_ = nullptr;
}

void Supervisor::set_child(Role role, caf::actor actor) {
  child(role) = actor;
  unit_.mailboxes.set(role, std::move(actor));
}

void Supervisor::start_child(Role role) {
  const Part& part = kParts[static_cast<std::size_t>(role)];
  TROUPE_ASSERT(part.role == role);
  set_child(role, (this->*part.make)());
  monitor(child(role));
}

void Supervisor::child_died(const caf::down_msg& down) {
  const auto is_dead = [&](const caf::actor& child) { return child && child.address() == down.source; };
  const auto dead = std::find_if(children_.begin(), children_.end(), is_dead);
  const bool was_tokenizer = std::erase_if(tokenizers_, is_dead) > 0;
  if (dead == children_.end() && !was_tokenizer) return;  // replaced already
  const Role role = was_tokenizer ? Role::tokenizer : static_cast<Role>(dead - children_.begin());
  if (!was_tokenizer) set_child(role, nullptr);  // drops the references, which frees the actor
  if (role == Role::telemetry) unit_.questions.answer_all_status();
  if (role == Role::keeper) unit_.questions.answer_all_cache();
  if (role == Role::loader && down.reason == caf::exit_reason::normal) return;  // it has done its work
  unit_.counters.restarted();
  const std::uint64_t progress = unit_.counters.num_ended();
  if (progress != std::exchange(progress_seen_, progress) || !unit_.work->since()) num_deaths_ = 0;
  if (!restart_pending_) ++num_deaths_;  // those that die together count as one
  spdlog::error("the {} died ({} of at most {} without a step between them)", info(role).title, num_deaths_,
                kMaxRestarts);
  if (gave_up_ || num_deaths_ > kMaxRestarts) return stop_service();

  if (role == Role::drafter) pass_on(Role::batcher, caf::make_message(msg::DrafterDied{}));
  if ((role == Role::keeper || role == Role::worker) && child(Role::batcher)) {
    send_exit(child(Role::batcher), caf::exit_reason::kill);
    set_child(Role::batcher, nullptr);
  }
  restart_soon();
}

void Supervisor::restart_soon() {
  const bool quiet = now() > last_death_ + kQuietTime;
  last_death_ = now();
  if (restart_pending_) return;
  restart_pending_ = true;
  restart_delay_ =
      quiet ? kShortestRestartDelay : std::clamp(2 * restart_delay_, kShortestRestartDelay, kLongestRestartDelay);
  delayed_send(this, restart_delay_, msg::Restart{});
}

void Supervisor::start_missing() {
  bool has_new = start_tokenizers();
  for (const Part& part : kParts) {
    if (child(part.role) || !(this->*part.is_wanted)()) continue;
    if (part.role == Role::keeper || part.role == Role::worker) TROUPE_ASSERT(!child(Role::batcher));
    start_child(part.role);
    has_new = true;
  }
  if (has_new) wire_intake();
}

// Starts the missing tokenizers; returns whether any was missing.
bool Supervisor::start_tokenizers() {
  const auto model = model_ready_ ? unit_.model.model() : nullptr;
  if (!model || !model->tokenizer() || tokenizers_.size() >= server_.options.tokenizer_threads) return false;
  while (tokenizers_.size() < server_.options.tokenizer_threads) {
    tokenizers_.push_back(spawn_child<TextEncoder>(model, server_.faults));
    monitor(tokenizers_.back());
  }
  return true;
}

caf::actor Supervisor::make_telemetry() { return spawn_child<Telemetry>(unit_.questions); }

caf::actor Supervisor::make_intake() {
  return spawn_child<Intake>(unit_.id, unit_.model, server_.streams, server_.texts, server_.faults);
}

caf::actor Supervisor::make_loader() { return spawn_child<Loader>(server_.compute, load_, caf::actor{this}); }

caf::actor Supervisor::make_keeper() {
  // The next batcher begins this epoch.
  cache::LeaseBookOptions options = lease_book_options(*unit_.model.model()->language_model());
  options.epoch = epoch_ + 1;
  options.await_quiesce = std::exchange(keeper_started_, true);
  if (options.await_quiesce) unit_.counters.keeper_restarted();
  return spawn_child<CacheKeeper>(options, unit_.counters, &unit_.questions);
}

caf::actor Supervisor::make_worker() {
  return spawn_child<TargetWorker>(unit_.model.model()->language_model(), server_.compute, unit_.source,
                                   server_.faults);
}

caf::actor Supervisor::make_drafter() {
  const std::shared_ptr<const ServedModel> served = unit_.model.model();
  return spawn_child<DraftWorker>(served->draft_model(), served->language_model(), server_.compute, unit_.source);
}

caf::actor Supervisor::make_embedder() {
  return spawn_child<EmbedWorker>(unit_.model.model(), server_.options.max_step_tokens, unit_.memory_policy,
                                  server_.streams, unit_.counters, unit_.shares, server_.compute, unit_.source,
                                  server_.faults);
}

caf::actor Supervisor::make_batcher() {
  const auto served = unit_.model.model();
  const auto model = served->language_model();
  const cache::LeaseBookOptions book = lease_book_options(*model);
  BatchOptions options;
  options.epoch = ++epoch_;
  options.capacity = capacity_of(*model);
  options.planner = {.max_step_tokens = server_.options.max_step_tokens,
                     .max_sequences = server_.options.max_sequences,
                     .max_stall_seconds = std::chrono::duration<double>(server_.options.max_stall).count(),
                     .snapshot_rule = book.snapshot_rule,
                     .verify_all_drafts = server_.options.verify_all_drafts};
  if (const std::uint32_t states = model->num_states(); states > 0) options.planner.max_open = states;
  for (const cache::Group& group : book.groups)
    options.planner.max_initial_blocks = std::min(options.planner.max_initial_blocks, group.num_blocks);
  options.tokenizer = model->tokenizer();
  options.reasoning = served->reasoning();
  options.tool_format = served->tool_format();
  options.faults = server_.faults;
  options.on_step = server_.options.on_step;
  options.speculation = server_.options.speculation;
  options.has_draft_model = served->draft_model() != nullptr;
  options.experience = unit_.shares->experience();
  options.earlier_answers = unit_.earlier_answers;
  // A read may end after the unit's last request.
  options.on_session_read = [owner = owner_, &mailboxes = unit_.mailboxes](RequestId request) {
    mailboxes.send(Role::batcher, msg::SessionRead{request});
  };
  options.on_session_written = [shares = unit_.shares](TenantId tenant, double seconds) {
    shares->charge(tenant, seconds);
  };
  return spawn_child<Batcher>(std::move(options), server_.streams, unit_.shares, unit_.counters, unit_.mailboxes,
                              child(Role::keeper), child(Role::worker));
}

void Supervisor::wire_intake() {
  auto wiring = std::make_shared<Wiring>();
  if (model_ready_) {
    wiring->model = unit_.model.model();
    wiring->tokenizers = tokenizers_;
    wiring->batcher = child(Role::batcher);
    wiring->embedder = child(Role::embedder);
  }
  send(child(Role::intake), msg::Wire{std::move(wiring)});
}

// Drops the message if the child is being restarted: the new one reads what it needs from the stream table.
void Supervisor::pass_on(Role role, const caf::message& message) {
  if (child(role)) send(child(role), message);
}

void Supervisor::end_all(const End& how) {
  server_.streams.end_all(how, how, now(), unit_.id);
  for (const Role role : {Role::intake, Role::batcher, Role::embedder}) {
    pass_on(role, caf::make_message(msg::ForgetAll{}));
  }
}

void Supervisor::stop_service() {
  constexpr std::string_view kRemedy = "unload the model and load it again (troupe model), or restart the server";
  spdlog::critical("the actors of model {} died too often, and it is served no more; {}",
                   Printable(unit_.model.name()).text(), kRemedy);
  unit_.model.failed({ErrorCode::unsupported, fmt::format("its workers died too often; {}", kRemedy)});
  end_service(
      ended_as(scheduler::Outcome::worker_lost, fmt::format("the model's workers died too often; {}", kRemedy)));
}

// Ends all streams; ModelState says why there will be no others.
void Supervisor::end_service(const End& how) {
  gave_up_ = true;
  end_all(how);
  if (child(Role::intake)) return;  // it refuses new requests
  start_child(Role::intake);
  wire_intake();
}

}  // namespace troupe::actors
