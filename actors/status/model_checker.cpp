#include "actors/status/model_checker.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "actors/requests/failure.h"
#include "actors/threads/thread_pool.h"

namespace troupe::actors {
namespace {

constexpr int kCheckerNiceness = 12;                       // as of loads
constexpr std::chrono::milliseconds kLongestRest{30'000};  // models come and go
constexpr std::uint32_t kCheckerUnit = 0xffffffff;         // its jobs wait in a line of their own
using FloatSeconds = std::chrono::duration<double>;

}  // namespace

ModelChecker::ModelChecker(const config::IntegrityOptions& options, Compute& compute, Models models, Warn warn,
                           std::vector<int> cpus)
    : options_(options),
      compute_(compute),
      models_(std::move(models)),
      warn_(std::move(warn)),
      cpus_(std::move(cpus)),
      pace_(options.scrub_rate),
      thread_([this] { run(); }) {}

void ModelChecker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  questions_.clear();
}

bool ModelChecker::is_stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool ModelChecker::is_interrupted() {
  const std::lock_guard lock(mutex_);
  return stopping_ || !questions_.empty();
}

bool ModelChecker::check(std::vector<Asked> models, std::function<void(std::vector<ModelCheck>)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || questions_.size() >= kMaxQueuedChecks) return false;
    questions_.push_back({std::move(models), std::move(done)});
  }
  changed_.notify_all();
  return true;
}

void ModelChecker::run_pass(Compute& compute, const std::function<void()>& pass) {
  compute.measure({.unit = kCheckerUnit, .weight = 1}, [&] {
    engine::Team& team = compute.team();
    engine::Profiler* const profiler = team.profiler();
    team.set_profiler(nullptr);
    try {
      pass();
    } catch (...) {
      team.set_profiler(profiler);
      throw;
    }
    team.set_profiler(profiler);
  });
}

void ModelChecker::run() {
  pthread_setname_np(pthread_self(), "checker");
  bind_this_thread(cpus_);
  add_to_niceness(kCheckerNiceness);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!questions_.empty()) {
      const Question question = std::move(questions_.front());
      questions_.pop_front();
      lock.unlock();
      std::vector<ModelCheck> checks;
      for (const Asked& model : question.models)
        if (!is_stopping()) checks.push_back(check_now(model()));
      if (!is_stopping()) question.done(std::move(checks));
      lock.lock();
      continue;
    }
    lock.unlock();
    const Clock::time_point next = work();
    lock.lock();
    changed_.wait_until(lock, next, [this] { return stopping_ || !questions_.empty(); });
  }
}

ModelCheck ModelChecker::check_now(const CheckedModel& model) {
  ModelCheck check{.name = model.name};
  if (!model.integrity || !model.integrity->is_watching()) {
    check.problem = model.problem.empty() ? "it is not loaded" : model.problem;
    return check;
  }
  ModelIntegrity& integrity = *model.integrity;
  const Clock::time_point began = Clock::now();
  try {
    const auto wrong =
        integrity.run_canary(compute_.team(), [&](const std::function<void()>& pass) { run_pass(compute_, pass); });
    check.canary_ok = !wrong;
    const auto is_given_up = [&] { return is_stopping() || !model.is_wanted(); };
    check.bytes = integrity.check_all(is_given_up);
    const auto& damage = integrity.damage();
    const bool is_whole = !is_given_up();
    check.weights_ok = !damage && is_whole;
    check.problem = damage ? *damage : wrong.value_or(std::string());
    if (check.problem.empty() && !is_whole) {
      check.problem = "it was unloaded meanwhile";
      return check;
    }
    check.file_change = integrity.look_at_files();
  } catch (...) {
    check.problem = "it could not be checked: " + failure_of(std::current_exception()).what;
    return check;
  }
  check.seconds = FloatSeconds(Clock::now() - began).count();
  if (!check.problem.empty()) model.take_out(check.problem);
  return check;
}

// Does what is due. Returns when something is due next.
ModelChecker::Clock::time_point ModelChecker::work() {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = now + kLongestRest;
  if (options_.canary_interval.count() > 0) next = std::min(next, now + options_.canary_interval);
  const std::uint64_t most = pace_.allowed(now);
  std::uint64_t left = most;
  bool is_more = false;  // a model whose pass goes on
  for (const CheckedModel& model : models_()) {
    if (is_stopping()) return now;
    if (!model.integrity || !model.integrity->is_watching()) continue;
    run_due_canary(model, now);
    if (options_.scrub_rate == 0 || model.integrity->next_pass > now) continue;
    is_more = true;
    if (left > 0) left -= std::min(left, check_some(model, left));
  }
  if (left < most) pace_.read(most - left, now);
  return is_more && pace_.due() > now ? std::min(next, pace_.due()) : next;
}

void ModelChecker::run_due_canary(const CheckedModel& model, Clock::time_point now) {
  ModelIntegrity& integrity = *model.integrity;
  if (options_.canary_interval.count() == 0 || integrity.next_canary > now) return;
  const bool is_first = integrity.next_canary == Clock::time_point{};  // it has just run, for the load
  integrity.next_canary = now + options_.canary_interval;
  if (is_first) return;
  try {
    if (const auto wrong =
            integrity.run_canary(compute_.team(), [&](const std::function<void()>& pass) { run_pass(compute_, pass); }))
      return model.take_out(*wrong);
    const bool was_changed = integrity.counts().file_changed;
    if (const std::string change = integrity.look_at_files(); !change.empty() && !was_changed)
      warn_(model.name, change + "; what is served are the weights as they were loaded");
  } catch (const engine::Stopped&) {  // the server ends
  } catch (...) {
    warn_(model.name, "its canary did not run: " + failure_of(std::current_exception()).what);
  }
}

// Goes on with the pass over its weights, by at most so many bytes, a piece at least. Returns how many.
std::uint64_t ModelChecker::check_some(const CheckedModel& model, std::uint64_t most) {
  ModelIntegrity& integrity = *model.integrity;
  std::uint64_t seen = 0;
  while ((seen == 0 || !is_interrupted()) && (seen == 0 || seen + engine::WeightScan::kPieceBytes <= most)) {
    const std::size_t bytes = integrity.check_piece();
    if (integrity.damage()) {
      model.take_out(*integrity.damage());
      break;
    }
    if (bytes == 0) {
      integrity.next_pass = Clock::now() + kWeightPassEvery;
      break;
    }
    seen += bytes;
  }
  return seen;
}

}  // namespace troupe::actors
