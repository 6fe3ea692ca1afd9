#include <catch2/catch.hpp>

#include <atomic>
#include <numeric>

#include "actors/threads/thread_pool.h"
#include "actors/threads/topology.h"

namespace troupe::actors {
namespace {

// Two NUMA nodes of two cores with two hardware threads each, numbered as Linux does: 0-3, then siblings 4-7.
std::vector<LogicalCpu> machine() {
  std::vector<LogicalCpu> cpus;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const auto core = static_cast<std::uint32_t>(cpu % 4);
    cpus.push_back({.number = cpu, .node = core / 2, .core = core});
  }
  return cpus;
}

TEST_CASE("cpu plan: whole cores of one node come before its second hyper-threads") {
  const CpuPlan plan = plan_cpus(machine(), 3);
  CHECK(plan.compute == std::vector<int>{0, 1, 4});
  CHECK(plan.rest == std::vector<int>{5, 2, 3, 6, 7});
}

TEST_CASE("cpu plan: with a team that takes every CPU no thread is bound") {
  const CpuPlan plan = plan_cpus(machine(), 8);
  CHECK(plan.compute.empty());
  CHECK(plan.rest.empty());
  CHECK(plan_cpus({}, 2).compute.empty());
}

TEST_CASE("this machine's CPUs are found") {
  for (const LogicalCpu& cpu : usable_cpus()) CHECK(cpu.number >= 0);
  CHECK_FALSE(usable_cpus().empty());
}

TEST_CASE("thread pool: every posted job runs before the destructor returns, one thread keeps the order") {
  std::vector<int> order;
  {
    ThreadPool pool("test", 1, 1000);
    for (int i = 0; i < 100; ++i) REQUIRE(pool.post([&order, i] { order.push_back(i); }));
  }
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order == expected);
}

TEST_CASE("thread pool: a full queue refuses the job") {
  std::atomic<bool> go{false};
  std::atomic<bool> began{false};
  ThreadPool pool("test", 1, 2);
  REQUIRE(pool.post([&] {
    began = true;
    began.notify_one();
    go.wait(false);
  }));
  began.wait(false);
  CHECK(pool.post([] {}));
  CHECK(pool.post([] {}));
  CHECK_FALSE(pool.post([] {}));
  go = true;
  go.notify_one();
}

}  // namespace
}  // namespace troupe::actors
