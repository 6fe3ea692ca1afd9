#include "actors/threads/compute_pool.h"

#include <limits>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {
namespace {

// The leader spins this long for its next job, if it has a CPU of its own: longer than the actors need between two
// steps of many sequences.
constexpr std::chrono::microseconds kAwake{200};

std::vector<int> first_of(const std::vector<int>& cpus) {
  return cpus.empty() ? std::vector<int>{} : std::vector<int>{cpus.front()};
}

}  // namespace

ComputePool::ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus)
    : team_(num_threads, cpus),
      leader_("compute", 1, std::numeric_limits<std::size_t>::max(), first_of(cpus),
              cpus.empty() ? std::chrono::microseconds(0) : kAwake) {}

void ComputePool::post(std::function<void()> job) {
  const bool taken = leader_.post(std::move(job));
  TROUPE_ASSERT(taken);
}

}  // namespace troupe::actors
