#include "actors/unit/embed_worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>

#include "actors/requests/request_check.h"
#include "engine/memory/workspace.h"

namespace troupe::actors {
namespace {

// Some milliseconds of a small encoder.
constexpr std::size_t kTokensPerTurn = 1024;
// Of a tenant of weight 1. A turn costs a tenant less the more weight it has.
constexpr double kTurnCost = 1e6;

}  // namespace

// Between two passes only the actor uses it, during a pass only the compute thread.
struct EmbedWorker::Turn {
  std::shared_ptr<const ServedModel> model;
  engine::Team& team;
  engine::Workspace workspace;
  FaultPoints faults;
  std::vector<std::span<const TokenId>> texts{};
  std::uint32_t num_tokens = 0;
  std::vector<float> rows{};
  std::unique_ptr<engine::TextVectors::Reading> reading{};

  void begin(const Job& job) {
    end();
    const EmbedIds& inputs = *job.task->inputs;
    for (std::size_t i = job.num_read; i < inputs.size(); ++i) {
      if (!texts.empty() && num_tokens + inputs[i].size() > kTokensPerTurn) break;
      texts.emplace_back(inputs[i]);
      num_tokens += static_cast<std::uint32_t>(inputs[i].size());
    }
  }
  // Runs one pass; returns whether all texts of the turn are read. Their vectors are in the job's answer then.
  bool advance(Job& job, std::size_t max_tokens) {
    if (faults.before_pass) faults.before_pass(job.task->request);
    const engine::TextVectors& vectors = model->vectors();
    Embeddings& answer = *job.answer;
    if (!reading) {
      const EmbedInputs& asked = *job.task->body->embed;
      answer.dim = vectors.info().dim;
      answer.pooling = asked.pooling.value_or(vectors.pooling());
      answer.values.reserve(job.task->inputs->size() * answer.dim);  // touched as it fills
      rows.resize(texts.size() * answer.dim);
      reading = vectors.read(texts, {answer.pooling, asked.normalise}, rows.data());
    }
    if (!reading->advance(team, workspace, max_tokens)) return false;
    if (!std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); })) {
      throw std::runtime_error("the model gave numbers that are not finite");
    }
    answer.values.insert(answer.values.end(), rows.begin(), rows.end());
    return true;
  }
  void end() {
    reading.reset();
    texts.clear();
    num_tokens = 0;
  }
};

EmbedWorker::EmbedWorker(caf::actor_config& cfg, std::shared_ptr<const ServedModel> model,
                         std::uint32_t max_step_tokens, const std::shared_ptr<engine::MemoryPolicy>& memory,
                         StreamTable& streams, Counters& counters, std::shared_ptr<ComputeShares> shares,
                         Compute& compute, scheduler::JobSource source, FaultPoints faults)
    : ActorBase(cfg, "embed worker"),
      max_step_tokens_(max_step_tokens),
      streams_(streams),
      counters_(counters),
      shares_(std::move(shares)),
      compute_(compute),
      source_(source),
      turn_(std::make_shared<Turn>(Turn{.model = std::move(model),
                                        .team = compute.team(),
                                        .workspace = engine::Workspace(memory),
                                        .faults = std::move(faults)})) {}

caf::behavior EmbedWorker::make_behavior() {
  return {
      [this](const msg::Enqueue& message) { add(message.task); },
      [this](const msg::Forget& message) { forget(message.request); },
      [this](const msg::ForgetAll&) { forget_all(); },
      [this](const msg::PassEnded& pass) { pass_ended(pass); },
      [this](const msg::PassFailed& pass) { pass_failed(pass.why); },
      [this](const msg::TurnCame&) {
        waiting_for_turn_ = false;
        next();
      },
      msg::throw_for_test,
  };
}

void EmbedWorker::add(AssignmentPtr task) {
  // Its end may have arrived before it.
  if (!streams_.granted(task->request, task->generation)) return;
  forget(task->request);
  const scheduler::Tenant& tenant = task->body->tenant;
  if (task->num_faults >= kMaxFaults) {
    streams_.end(task->request, task->generation, given_up({.what = "its worker died"}, "to compute it"), now());
    return;
  }
  shares_->begin(tenant.id, tenant.weight());
  // The job may outlive this worker, and in tests the unit.
  std::shared_ptr<const void> counted(nullptr, [shares = shares_, id = tenant.id](const void*) { shares->end(id); });
  queue(std::make_shared<Job>(
      Job{.task = std::move(task), .counted = counted, .answer = std::make_shared<Embeddings>()}));
  next();
}

void EmbedWorker::queue(std::shared_ptr<Job> job) {
  const scheduler::Tenant& tenant = job->task->body->tenant;
  waiting_.push(tenant.id, std::move(job), static_cast<std::uint64_t>(kTurnCost / tenant.weight()));
}

void EmbedWorker::forget(RequestId request) {
  (void)waiting_.remove_if([&](const auto& job) { return job->task->request == request; });
  if (current_ && current_->task->request == request) current_ = nullptr;
}

void EmbedWorker::forget_all() {
  (void)waiting_.remove_if([](const auto&) { return true; });
  current_ = nullptr;
}

// Posts the next pass, of the current turn or of a new one.
void EmbedWorker::next() {
  while (!computed_ && !waiting_for_turn_) {
    if (!current_) {
      turn_->end();
      auto job = waiting_.pop();
      if (!job) return count_memory();
      const Assignment& task = *(*job)->task;
      const bool is_first = (*job)->num_read == 0;
      if (is_first && !streams_.started(task.request, task.generation, 0, now())) continue;
      current_ = *std::move(job);
      turn_->begin(*current_);
    }
    waiting_for_turn_ = shares_->must_wait(current_->task->body->tenant.id);
    if (waiting_for_turn_) return;
    computed_ = current_;
    counters_.step_began(now());
    auto run = [turn = turn_, job = current_, max_tokens = std::size_t{max_step_tokens_}, shares = shares_,
                &streams = streams_, self = caf::actor{this}]() mutable {
      const TimePoint began = std::chrono::steady_clock::now();
      // Also what failed, or is not wanted any more, is charged, and before its end is known. The worker has the job
      // until then: its end, which may wait for an event of the batcher, is never that of the thread that computes.
      const auto charge = [&](std::uint32_t num_tokens) {
        const TimePoint ended = std::chrono::steady_clock::now();
        const Charge pass{.request = job->task->request,
                          .tenant = job->task->body->tenant.id,
                          .seconds = seconds_between(began, ended),
                          .num_tokens = num_tokens};
        shares->charge(pass.tenant, pass.seconds);
        streams.charge({&pass, 1}, pass.seconds, ended);
      };
      try {
        const bool complete = turn->advance(*job, max_tokens);
        charge(complete ? turn->num_tokens : 0);
        job = nullptr;
        caf::anon_send(self, msg::PassEnded{complete});
      } catch (const engine::Stopped&) {
        // The server ends.
      } catch (...) {
        charge(0);
        job = nullptr;
        caf::anon_send(self, msg::PassFailed{failure_of(std::current_exception())});
      }
    };
    compute_.post(source_, {.tenants = {current_->task->body->tenant.id}, .run = run});
  }
}

void EmbedWorker::pass_ended(const msg::PassEnded& pass) {
  computed_ = nullptr;
  count_memory();
  counters_.pass_ended(now());
  if (pass.complete && current_) {
    const std::shared_ptr<Job> job = std::exchange(current_, nullptr);
    job->num_read += turn_->texts.size();
    job->tokens_read += turn_->num_tokens;
    const Assignment& task = *job->task;
    if (job->num_read == task.inputs->size()) {
      End end;
      end.outcome = scheduler::Outcome::eos;
      end.embeddings = job->answer;
      streams_.end(task.request, task.generation, end, now());
    } else if (streams_.computed(task.request, task.generation, job->tokens_read,
                                 job->answer->values.size() * sizeof(float))) {
      queue(job);
    }
  }
  next();
}

void EmbedWorker::pass_failed(const Failure& why) {
  computed_ = nullptr;
  if (const std::shared_ptr<Job> job = std::exchange(current_, nullptr)) {
    const Assignment& task = *job->task;
    const std::uint32_t num_faults = streams_.record_fault(task.request);
    spdlog::error("request {}: its vectors could not be computed ({} of at most {} times): {}", task.request,
                  num_faults, kMaxFaults, why.what);
    if (num_faults >= kMaxFaults) {
      streams_.end(task.request, task.generation, given_up(why, "to compute it"), now());
    } else {
      queue(job);
    }
  }
  next();
}

void EmbedWorker::count_memory() {
  const std::uint64_t reading = turn_->reading ? turn_->reading->bytes() : 0;
  counters_.embedding(turn_->workspace.total_bytes() + reading + turn_->rows.capacity() * sizeof(float));
}

}  // namespace troupe::actors
