#include "actors/model_unit.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "actors/request_check.h"
#include "actors/supervisor.h"
#include "config/assert.h"
#include "engine/model/memory_budget.h"

namespace troupe::actors {
namespace {

// ", 40 window blocks of 4096 bytes, 64 snapshots of 20480 bytes, 16 states": those that the model has.
std::string other_pools(const engine::LoadedModel& model) {
  std::string text;
  for (GroupId group = 1; group < model.arenas().size(); ++group)
    text += fmt::format(", {} window blocks of {} bytes", model.arena(group)->num_blocks(),
                        model.arena(group)->bytes_per_block());
  if (const auto& snapshots = model.snapshots())
    text += fmt::format(", {} snapshots of {} bytes", snapshots->num_snapshots(), snapshots->bytes_per_snapshot());
  if (const std::uint32_t states = model.num_states(); states > 0) text += fmt::format(", {} states", states);
  return text;
}

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::uint64_t MemoryBudget::left() {
  const std::lock_guard lock(mutex_);
  if (bytes_ == 0) bytes_ = engine::default_memory_budget();
  return bytes_ - std::min(bytes_, taken_);
}

void MemoryBudget::take(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_ += bytes;
}

void MemoryBudget::give_back(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  TROUPE_ASSERT(bytes <= taken_);
  taken_ -= bytes;
}

ModelUnit::ModelUnit(caf::actor_system& system, const ServerContext& server, MemoryBudget& budget, UnitId id,
                     ModelSource source)
    : source_(std::move(source)),
      budget_(budget),
      state_(source_.alias.empty() ? std::filesystem::path(source_.path).stem().string() : source_.alias),
      counters_(std::chrono::steady_clock::now()),
      context_{server,    id,         state_,
               counters_, mailboxes_, source_.path.empty() ? std::function<void()>() : [this] { load(); }} {
  supervisor_ = system.spawn<Supervisor>(context_);
}

ModelUnit::~ModelUnit() { budget_.give_back(taken_bytes_); }

void ModelUnit::cancel(RequestId request, TimePoint now) const {
  const auto body = context_.streams.request(request);
  if (!body || !context_.streams.end(request, ended_as(scheduler::Outcome::cancelled, {}), now)) return;
  mailboxes_.send(Role::intake, msg::Forget{request});
  mailboxes_.send(worker_role(body->kind()), msg::Forget{request, now});
}

void ModelUnit::drain(std::chrono::milliseconds timeout) {
  state_.set_draining();
  caf::anon_send(supervisor_, msg::Drain{timeout});
}

void ModelUnit::ask(std::shared_ptr<StatusQuery> query) const {
  mailboxes_.send(Role::telemetry, msg::Snapshot{std::move(query), mailboxes_.get(Role::batcher)});
}

void ModelUnit::add_to(KnownMemory& known) const {
  known.step_buffers += counters_.step_buffer_bytes();
  if (const auto model = state_.model()) model->add_to(known);
}

bool ModelUnit::is_making_progress(TimePoint now) const {
  return state_.readiness() != Readiness::failed &&
         counters_.without_progress(context_.streams.work_since(), now) <= context_.options.progress_timeout;
}

void ModelUnit::stop() {
  state_.set_draining();
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  supervisor_ = nullptr;
}

// On the compute thread, whose team packs the weights.
void ModelUnit::load() {
  if (!state_.loading()) return;
  const TimePoint start = std::chrono::steady_clock::now();
  engine::LoadOptions options = source_.load;
  options.team = &context_.compute.team();
  options.memory = budget_.left();
  options.progress = [this](double fraction) { state_.set_fraction(fraction); };
  Status loaded = Ok{};
  try {
    const auto file = engine::open_gguf(source_.path);
    if (!file) {
      loaded = file.error();
    } else {
      loaded = engine::is_encoder(**file) ? load_encoder(options, start) : load_model(options, start);
    }
  } catch (const engine::Stopped&) {
    throw;
  } catch (...) {
    const Failure why = failure_of(std::current_exception());
    loaded = Error{why.out_of_memory ? ErrorCode::out_of_memory : ErrorCode::io, source_.path + ": " + why.what};
  }
  if (loaded) return;
  spdlog::error("the model could not be loaded: {}", loaded.error().message);
  state_.failed(loaded.error());
}

Status ModelUnit::load_model(const engine::LoadOptions& options, TimePoint start) {
  auto loaded = engine::LoadedModel::load(source_.path, options);
  if (!loaded) return loaded.error();
  const engine::LoadedModel& model = **loaded;
  const std::string name = source_.alias.empty() ? model.info().name : source_.alias;
  spdlog::info("loaded model \"{}\" in {:.2f} s: {} threads, kernels {}, {} cache blocks of {} bytes{}, numerics {}",
               name, seconds_since(start), context_.options.num_threads, model.kernels().name,
               model.arena(0)->num_blocks(), model.arena(0)->bytes_per_block(), other_pools(model),
               model.numerics_id());
  set_loaded(ServedModel(*std::move(loaded)), name);
  return Ok{};
}

Status ModelUnit::load_encoder(const engine::LoadOptions& options, TimePoint start) {
  auto encoder = engine::Encoder::load(source_.path, options);
  if (!encoder) return encoder.error();
  const std::string name = source_.alias.empty() ? (*encoder)->info().name : source_.alias;
  spdlog::info("loaded encoder \"{}\" in {:.2f} s: {} threads, kernels {}, numerics {}", name, seconds_since(start),
               context_.options.num_threads, (*encoder)->kernels().name, (*encoder)->numerics_id());
  set_loaded(ServedModel(*std::move(encoder)), name);
  return Ok{};
}

void ModelUnit::set_loaded(ServedModel model, const std::string& name) {
  taken_bytes_ = model.budget_bytes();
  budget_.take(taken_bytes_);
  state_.loaded(std::make_shared<const ServedModel>(std::move(model)), name);
}

}  // namespace troupe::actors
