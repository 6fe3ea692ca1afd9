// The threads that encode and decode texts, and what waits for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/embedding.h"
#include "actors/request.h"
#include "actors/threads/thread_pool.h"
#include "scheduler/shared_limit.h"
#include "scheduler/text_queue.h"

namespace troupe::actors {

struct TextThreadsOptions {
  std::uint32_t max_large = 2;  // texts above scheduler::kMaxSmallTextBytes that are worked on at once; >= 1
  std::uint32_t max_texts = 64;
  std::uint64_t max_bytes = 64u << 20;
};

// Work on a text: all at once, or in parts.
struct TextJob {
  scheduler::Tenant tenant;
  std::uint64_t bytes = 0;           // that it holds
  std::uint64_t first_part = bytes;  // bytes that the first call of `work` works on
  // Set by anybody: the job ends soon, wherever it is. Never null.
  CancelFlag unwanted = std::make_shared<std::atomic<bool>>(false);
  // On a text thread: does all of it, or the next part of it and returns the bytes of the part after that; 0: none is
  // left. Hands `unwanted` to whatever takes long; that may throw engine::Interrupted, and nothing else.
  std::function<std::uint64_t()> work;
  // Exactly once, after the last call of `work`, on any thread; by then its place is free. The End says why it was not
  // worked on to the end; nothing: it was. Must not throw.
  std::function<void(std::optional<End>)> ended;
};

// max_large + 1 threads: one is always free for small texts. In which order: scheduler::TextQueue. How many texts may
// be here, and bytes of them: scheduler::SharedLimit (max_queued_texts, max_queued_text_bytes).
//
// Thread-safe.
class TextThreads {
 public:
  // cpus: as for ThreadPool.
  explicit TextThreads(const TextThreadsOptions& options, std::vector<int> cpus = {});
  // As drop_all(); every job has ended when it returns.
  ~TextThreads();
  TextThreads(const TextThreads&) = delete;
  TextThreads& operator=(const TextThreads&) = delete;

  // Takes a job, or says which limit is met; then `ended` is not called. Unwanted jobs that wait give way before
  // anybody is refused.
  [[nodiscard]] std::optional<End> post(TextJob job);
  // Ends what waits as Outcome::draining and what runs as Outcome::cancelled, the latter as soon as it looks at its
  // flag; what comes later is refused.
  void drop_all();
  // Calls `done` once no job is here and all have been told; at once if that is so now.
  void when_empty(std::function<void()> done);

 private:
  using JobPtr = std::shared_ptr<TextJob>;

  std::optional<scheduler::Refusal> enter(const JobPtr& job);
  void add_thread();
  void work();
  void drop_unwanted();
  void finish(const std::vector<JobPtr>& jobs, const std::optional<End>& how);

  const std::uint32_t num_threads_;
  std::mutex mutex_;
  scheduler::SharedLimit texts_, bytes_;
  scheduler::TextQueue<JobPtr> queue_;
  std::vector<JobPtr> running_;
  std::uint32_t num_active_ = 0;  // threads at work(), or about to be
  std::uint64_t num_untold_ = 0;  // jobs whose `ended` has not returned
  bool closed_ = false;
  std::vector<std::function<void()>> when_empty_;
  ThreadPool pool_;  // last: its threads use all of the above
};

}  // namespace troupe::actors
