#include "actors/threads/compute_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace troupe::actors {
namespace {

// Waits for `event`, for a minute at most: what never comes fails the test instead of holding it.
bool happens(const std::future<void>& event) {
  return event.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
}

TEST_CASE("compute pool: jobs run one at a time and in order, and can use the team") {
  std::vector<std::uint32_t> order;
  {
    ComputePool pool(2, {});
    CHECK(pool.team().num_threads() == 2);
    for (std::uint32_t i = 0; i < 50; ++i) {
      pool.post({}, {.run = [&order, &pool, i] {
                  std::atomic<std::uint32_t> sum{0};
                  pool.team().parallel_for(
                      10, [&](std::size_t chunk, std::uint32_t) { sum += static_cast<std::uint32_t>(chunk); });
                  order.push_back(i + sum - 45);
                }});
    }
  }
  for (std::uint32_t i = 0; i < 50; ++i) CHECK(order[i] == i);
}

TEST_CASE("compute pool: jobs run while a model is loaded, and the load has a team of its own") {
  bool job_ran = false, own_team = false;
  {
    std::promise<void> loading, stepped;
    ComputePool pool(2, {});
    pool.post_load([&](engine::Team& team) {
      own_team = &team != &pool.team() && team.num_threads() == 2;
      loading.set_value();
      job_ran = happens(stepped.get_future());
    });
    REQUIRE(happens(loading.get_future()));
    pool.post({}, {.run = [&] {
                std::atomic<int> sum{0};
                pool.team().parallel_for(8, [&](std::size_t chunk, std::uint32_t) { sum += static_cast<int>(chunk); });
                if (sum == 28) stepped.set_value();
              }});
  }
  CHECK(own_team);
  CHECK(job_ran);
}

TEST_CASE("compute pool: loads run one after the other, all before the destructor returns") {
  std::vector<int> order;
  {
    ComputePool pool(1, {});
    for (int i = 0; i < 5; ++i) pool.post_load([&order, i](engine::Team&) { order.push_back(i); });
  }
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("compute pool: a load can run a job on the thread that leads the team, and gets what it throws") {
  std::thread::id loader, leader, of_job;
  bool caught = false;
  {
    ComputePool pool(1, {});
    pool.post({}, {.run = [&] { leader = std::this_thread::get_id(); }});
    pool.post_load([&](engine::Team&) {
      loader = std::this_thread::get_id();
      pool.measure({}, [&] { of_job = std::this_thread::get_id(); });
      try {
        pool.measure({}, [] { throw std::runtime_error("no"); });
      } catch (const std::runtime_error&) {
        caught = true;
      }
    });
  }
  CHECK(of_job == leader);
  CHECK(loader != leader);
  CHECK(caught);
}

TEST_CASE("compute pool: stop() ends the running load and every later one") {
  std::promise<void> loading, first, second;
  ComputePool pool(2, {});
  const auto load_until_stopped = [](engine::Team& team, std::promise<void>& ended) {
    try {
      for (;;) team.parallel_for(4, [](std::size_t, std::uint32_t) {});
    } catch (const engine::Stopped&) {
      ended.set_value();
    }
  };
  pool.post_load([&](engine::Team& team) {
    loading.set_value();
    load_until_stopped(team, first);
  });
  pool.post_load([&](engine::Team& team) { load_until_stopped(team, second); });
  REQUIRE(happens(loading.get_future()));
  pool.stop();
  CHECK(happens(first.get_future()));
  CHECK(happens(second.get_future()));
  CHECK(pool.team().is_stopped());
}

}  // namespace
}  // namespace troupe::actors
