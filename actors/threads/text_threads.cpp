#include "actors/threads/text_threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/requests/request_check.h"
#include "config/assert.h"
#include "engine/compute/interrupt.h"

namespace troupe::actors {
namespace {

// Below the threads that compute: the texts of one tenant would take the time of another's answers.
constexpr int kNiceness = 5;

using scheduler::Outcome;

}  // namespace

TextThreads::TextThreads(const TextThreadsOptions& options, std::vector<int> cpus)
    : num_threads_(options.max_large + 1),
      texts_({.name = "max_queued_texts", .what = "queued texts", .limit = options.max_texts}),
      bytes_({.name = "max_queued_text_bytes",
              .what = "bytes of queued texts",
              .limit = options.max_bytes,
              .takes_any_alone = true}),
      queue_(options.max_large),
      pool_("texts", num_threads_, num_threads_, std::move(cpus), kNiceness) {}

TextThreads::~TextThreads() { drop_all(); }

std::optional<End> TextThreads::post(TextJob job) {
  const auto shared = std::make_shared<Job>(std::move(job));
  auto refusal = enter(shared);
  if (refusal) {
    drop_unwanted();
    refusal = enter(shared);
  }
  if (refusal) return refused(*std::move(refusal));
  return std::nullopt;
}

std::optional<scheduler::Refusal> TextThreads::enter(const JobPtr& job) {
  const std::lock_guard lock(mutex_);
  if (closed_) return scheduler::server_drains();
  if (job->is_counted) {
    if (auto refusal = texts_.try_take(job->tenant)) return refusal;
    if (auto refusal = bytes_.try_take(job->tenant, job->bytes)) {
      texts_.give_back(job->tenant.id);
      return refusal;
    }
  }
  ++num_not_ended_;
  push(job, job->first_part);
  if (num_active_ == num_threads_) return std::nullopt;
  ++num_active_;
  const bool taken = pool_.post([this] { work(); });
  TROUPE_ASSERT(taken);  // the pool's queue is as long as its number of threads
  return std::nullopt;
}

void TextThreads::push(const JobPtr& job, std::uint64_t bytes) {
  const bool is_known = job->renders == nullptr && !job->compiles;
  queue_.push(job->tenant.id, bytes, job, is_known ? Queue::Work::text : Queue::Work::rendering);
}

// Runs on a thread of the pool until the queue is empty.
void TextThreads::work() {
  std::unique_lock lock(mutex_);
  while (const auto next = queue_.pop()) {
    const JobPtr& job = next->item;
    running_.push_back(job);
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t left = 0;
    std::optional<End> how;
    try {
      if (*job->unwanted) throw engine::Interrupted();
      left = job->work();
    } catch (const engine::Interrupted&) {
      how = ended_as(Outcome::cancelled, {});
    }
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin);
    lock.lock();
    std::erase(running_, job);
    queue_.done(*next, static_cast<std::uint64_t>(took.count()));
    if (how && job->dropped) how = job->dropped;
    if (left > 0 && !closed_) {
      job->compiles = false;  // its first part did
      push(job, left);
      continue;
    }
    if (closed_ && (how || left > 0))
      how = ended_as(Outcome::cancelled, "the server stopped before this text was done");
    lock.unlock();
    finish({job}, how);
    if (next->is_large) drop_unwanted();  // unwanted jobs hold memory while they wait
    lock.lock();
  }
  --num_active_;
}

// Gives the limits back before it calls `ended`, so that a client may send its next text at once.
void TextThreads::finish(const std::vector<JobPtr>& jobs, const std::optional<End>& how) {
  {
    const std::lock_guard lock(mutex_);
    for (const JobPtr& job : jobs) {
      if (!job->is_counted) continue;
      texts_.give_back(job->tenant.id);
      bytes_.give_back(job->tenant.id, job->bytes);
    }
  }
  for (const JobPtr& job : jobs) {
    job->ended(how);
    static_cast<TextJob&>(*job) = TextJob();  // frees the text and the result
  }
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard lock(mutex_);
    num_not_ended_ -= jobs.size();
    if (num_not_ended_ == 0) done = std::exchange(when_empty_, {});
  }
  for (const auto& call : done) call();
}

void TextThreads::drop_unwanted() {
  std::vector<JobPtr> unwanted;
  {
    const std::lock_guard lock(mutex_);
    unwanted = queue_.remove_if([](const JobPtr& job) { return job->unwanted->load(); });
  }
  if (!unwanted.empty()) finish(unwanted, ended_as(Outcome::cancelled, {}));
}

void TextThreads::drop_all() {
  std::vector<JobPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const JobPtr& job : running_) *job->unwanted = true;
    waiting = queue_.remove_if([](const JobPtr&) { return true; });
  }
  if (waiting.empty()) return;
  finish(waiting, ended_as(Outcome::draining, "the server stopped before this text was worked on; try again later"));
}

void TextThreads::drop_renderings(const void* model, const End& how) {
  const auto renders = [&](const JobPtr& job) { return job->renders != nullptr && job->renders == model; };
  std::vector<JobPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    for (const JobPtr& job : running_) {
      if (!renders(job)) continue;
      job->dropped = how;
      *job->unwanted = true;
    }
    waiting = queue_.remove_if(renders);
  }
  if (!waiting.empty()) finish(waiting, how);
}

void TextThreads::when_empty(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (num_not_ended_ > 0) {
      when_empty_.push_back(std::move(done));
      return;
    }
  }
  done();
}

}  // namespace troupe::actors
