// A team of pinned threads that run one parallel region at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace troupe::engine {

// `num_threads` includes the calling thread, which works too. The regions are entered by one
// thread at a time (the compute thread). Between regions the threads spin for some microseconds and
// then sleep on a futex: an idle team uses no CPU. Every thread has FTZ and DAZ set, also the caller
// while inside a region.
class Team {
 public:
  // cpus: where thread i (from 1 on) is pinned, cpus[i % size]; empty: not pinned.
  explicit Team(std::uint32_t num_threads, std::vector<int> cpus = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::uint32_t num_threads() const { return num_threads_; }

  // Calls fn(chunk, thread) once for each chunk in [0, num_chunks), on any thread, in any order, and
  // returns when all are done. Chunks are handed out dynamically: a late thread costs one chunk.
  // fn must not depend on which thread runs it (but for scratch space by `thread`). What it throws reaches the caller
  // once all chunks are done; of several exceptions one.
  template <class Fn>
  void parallel_for(std::size_t num_chunks, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run(
        num_chunks, [](void* f, std::size_t chunk, std::uint32_t thread) { (*static_cast<F*>(f))(chunk, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, std::size_t chunk, std::uint32_t thread);
  void run(std::size_t num_chunks, Call call, void* fn);

  struct Shared;
  std::uint32_t num_threads_;
  std::unique_ptr<Shared> shared_;
};

// The default size of a team: all CPUs that affinity and cgroup quota allow up to 4, one fewer above.
[[nodiscard]] std::uint32_t default_num_threads();
// The CPUs this process may run on, ascending.
[[nodiscard]] std::vector<int> allowed_cpus();

}  // namespace troupe::engine
