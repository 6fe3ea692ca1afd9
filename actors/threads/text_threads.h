// The threads that encode and decode texts and render conversations, and the queue of those that wait for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/requests/request.h"
#include "actors/threads/thread_pool.h"
#include "scheduler/shares/shared_limit.h"
#include "scheduler/shares/text_queue.h"

namespace troupe::actors {

struct TextThreadsOptions {
  std::uint32_t max_large = 2;  // texts above scheduler::kMaxSmallTextBytes that are worked on at once; >= 1
  std::uint32_t max_texts = 64;
  std::uint64_t max_bytes = 64u << 20;
};

// Work on one or more texts of a request: all at once, or in parts.
struct TextJob {
  scheduler::Tenant tenant;
  std::uint64_t bytes = 0;           // of its text, counted against max_bytes
  std::uint64_t first_part = bytes;  // bytes that the first call of `work` processes
  // The model whose chat template it runs: how long that takes is not known by the bytes. Null: it runs none.
  const void* renders = nullptr;
  // Whether the first part of it compiles a form of an answer, of which the same is true.
  bool compiles = false;
  // Whether it counts against max_texts and max_bytes; not where other limits bound it already.
  bool is_counted = true;
  // Set from any thread: the job ends soon, queued or running. Never null.
  CancelFlag unwanted = std::make_shared<std::atomic<bool>>(false);
  // Called on a text thread: does all of the work, or the next part of it. Returns the bytes of the part after that; 0:
  // the work is complete. Passes `unwanted` to long operations; may throw engine::Interrupted, and nothing else.
  std::function<std::uint64_t()> work;
  // Called exactly once, after the last call of `work`, on any thread; by then the job has stopped counting against the
  // limits. The End says why the work is incomplete; nullopt: it is complete. Must not throw.
  std::function<void(std::optional<End>)> ended;
};

// max_large + 1 threads: one is always free for small texts. scheduler::TextQueue decides the order, and
// scheduler::SharedLimit bounds the texts and their bytes (max_queued_texts, max_queued_text_bytes).
//
// Thread-safe.
class TextThreads {
 public:
  // cpus: as for ThreadPool.
  explicit TextThreads(const TextThreadsOptions& options, std::vector<int> cpus = {});
  // Calls drop_all(); every job has ended when it returns.
  ~TextThreads();
  TextThreads(const TextThreads&) = delete;
  TextThreads& operator=(const TextThreads&) = delete;

  // Takes a job, or returns the refusal; then `ended` is not called. Before it refuses a job, it drops queued jobs with
  // `unwanted` set.
  [[nodiscard]] std::optional<End> post(TextJob job);
  // Ends queued jobs as Outcome::draining and running ones as Outcome::cancelled, the latter as soon as they check
  // their flag; later jobs are refused.
  void drop_all();
  // Ends as `how` the jobs that render for this model, queued ones at once and running ones as soon as they check their
  // flag. Those that are posted later are not refused.
  void drop_renderings(const void* model, const End& how);
  // Calls `done` once `ended` of every job has returned; at once if that is so now.
  void when_empty(std::function<void()> done);

 private:
  struct Job : TextJob {
    explicit Job(TextJob job) : TextJob(std::move(job)) {}
    std::optional<End> dropped{};  // how it ends if it was interrupted; nullopt: as cancelled
  };
  using JobPtr = std::shared_ptr<Job>;
  using Queue = scheduler::TextQueue<JobPtr>;

  std::optional<scheduler::Refusal> enter(const JobPtr& job);
  void push(const JobPtr& job, std::uint64_t bytes);
  void work();
  void drop_unwanted();
  void finish(const std::vector<JobPtr>& jobs, const std::optional<End>& how);

  const std::uint32_t num_threads_;
  std::mutex mutex_;
  scheduler::SharedLimit texts_, bytes_;
  Queue queue_;
  std::vector<JobPtr> running_;
  std::uint32_t num_active_ = 0;     // threads in work(), or about to be
  std::uint64_t num_not_ended_ = 0;  // jobs whose `ended` has not returned
  bool closed_ = false;
  std::vector<std::function<void()>> when_empty_;
  ThreadPool pool_;  // last: its threads use all of the above
};

}  // namespace troupe::actors
