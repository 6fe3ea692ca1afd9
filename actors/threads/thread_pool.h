// Plain threads that run jobs in the order they were posted. No actor runs on them; a job sends its own result.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::actors {

// Thread-safe. The destructor runs all posted jobs, then joins. An idle pool uses no CPU.
class ThreadPool {
 public:
  // name: of the threads, at most 15 bytes. cpus: all threads are bound to these; empty: not bound. niceness: added
  // to the process's own.
  ThreadPool(std::string name, std::uint32_t num_threads, std::size_t max_queued, std::vector<int> cpus = {},
             int niceness = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False if max_queued jobs wait already; jobs being run do not count. Jobs must not throw.
  [[nodiscard]] bool post(std::function<void()> job);

 private:
  void work();

  std::string name_;
  std::size_t max_queued_;
  std::vector<int> cpus_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  const int niceness_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Binds the calling thread to these CPUs. An empty list changes nothing, and a refusal by the kernel is ignored:
// binding affects speed only.
void bind_this_thread(const std::vector<int>& cpus);

// Adds to the niceness of the calling thread (setpriority(2)), and of the threads that it starts from now on.
void add_to_niceness(int more);

}  // namespace troupe::actors
