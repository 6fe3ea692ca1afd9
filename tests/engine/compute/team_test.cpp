// The compute team, and its default size on this machine.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <thread>

#include <catch2/catch.hpp>

#include "engine/compute/team.h"
#include "engine/machine/machine.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::Team;

TEST_CASE("a team runs every chunk exactly once") {
  for (const std::uint32_t num_threads : {1u, 2u, 3u, 8u}) {
    Team team(num_threads);
    CHECK(team.num_threads() == num_threads);
    for (const std::size_t num_chunks : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(num_chunks);
      std::atomic<std::uint32_t> highest{0};
      team.parallel_for(num_chunks, [&](std::size_t chunk, std::uint32_t thread) {
        ++runs[chunk];
        std::uint32_t seen = highest;
        while (seen < thread && !highest.compare_exchange_weak(seen, thread)) {
        }
      });
      CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
      CHECK(highest < num_threads);
    }
  }
}

TEST_CASE("a thread runs its own chunks in ascending order, and another takes over those of a late one") {
  constexpr std::size_t kChunks = 100;
  Team team(2);
  std::atomic<std::size_t> done{0}, begun{0};
  std::vector<std::size_t> order;  // of the caller
  team.parallel_for(kChunks, [&](std::size_t chunk, std::uint32_t thread) {
    if (thread == 0) {
      order.push_back(chunk);
      ++begun;
    }
    // The caller is late in its third chunk, until the other thread, which waited for that, has run all that are left.
    while (thread == 0 && begun == 3 && done < kChunks - 1) std::this_thread::yield();
    while (thread == 1 && begun < 3) std::this_thread::yield();
    ++done;
  });
  CHECK(done == kChunks);
  CHECK(order == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("a team that was told to stop begins no more chunks, and its regions throw from then on") {
  for (const std::uint32_t num_threads : {1u, 4u}) {
    Team team(num_threads);
    std::atomic<int> runs{0};
    const auto stop_in_the_third = [&](std::size_t, std::uint32_t) {
      if (++runs == 3) team.stop();
    };
    CHECK_FALSE(team.is_stopped());
    CHECK_THROWS_AS(team.parallel_for(10'000, stop_in_the_third), engine::Stopped);
    CHECK(runs >= 3);
    CHECK(runs < 10'000);  // except those that other threads had begun
    CHECK(team.is_stopped());
    runs = 100;
    CHECK_THROWS_AS(team.parallel_for(1, stop_in_the_third), engine::Stopped);
    CHECK_THROWS_AS(team.parallel_for(50, stop_in_the_third), engine::Stopped);
    CHECK(runs == 100);
  }
}

TEST_CASE("regions run one after another: all writes of one are visible in the next") {
  Team team(4);
  std::vector<std::size_t> values(64, 0);
  for (std::size_t round = 1; round <= 5000; ++round) {
    team.parallel_for(values.size(), [&](std::size_t i, std::uint32_t) {
      // Each chunk reads its neighbour's value of the round before.
      if (values[i] != round - 1) std::abort();
      values[i] = round;
    });
  }
  CHECK(values == std::vector<std::size_t>(64, 5000));
}

TEST_CASE("a thread number is used by one thread at a time") {
  Team team(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  for (int round = 0; round < 200; ++round) {
    team.parallel_for(16, [&](std::size_t, std::uint32_t thread) {
      if (++inside[thread] != 1) shared = true;
      --inside[thread];
    });
  }
  CHECK_FALSE(shared);
}

TEST_CASE("a region may be entered by different threads one after another") {
  Team team(2);
  std::atomic<int> sum{0};
  for (int i = 0; i < 10; ++i) {
    std::thread([&] { team.parallel_for(8, [&](std::size_t, std::uint32_t) { ++sum; }); }).join();
  }
  CHECK(sum == 80);
}

TEST_CASE("an exception of a chunk reaches the caller once all chunks are done, and the team works on") {
  for (const std::uint32_t num_threads : {2u, 4u}) {
    Team team(num_threads);
    for (int round = 0; round < 100; ++round) {
      std::atomic<int> done{0};
      CHECK_THROWS_AS(team.parallel_for(64,
                                        [&](std::size_t chunk, std::uint32_t thread) {
                                          // The caller finds no chunk left long before the others are done.
                                          for (int i = 0; thread != 0 && i < 100; ++i) std::this_thread::yield();
                                          ++done;
                                          if (chunk % 16 == 3) throw std::bad_alloc();
                                        }),
                      std::bad_alloc);
      CHECK(done == 64);
      done = 0;
      team.parallel_for(64, [&](std::size_t, std::uint32_t) { ++done; });
      CHECK(done == 64);
    }
  }
}

TEST_CASE("every thread of a region flushes denormal numbers") {
  Team team(3);
  std::atomic<int> kept{0};
  team.parallel_for(64, [&](std::size_t, std::uint32_t) {
    volatile float tiny = 1e-38f;
    volatile float smaller = tiny * 0.01f;
    if (smaller != 0.0f) ++kept;
  });
  CHECK(kept == 0);
}

TEST_CASE("pinning to a CPU that does not exist still leaves a working team") {
  Team team(3, {0, 100000});
  std::atomic<int> sum{0};
  team.parallel_for(100, [&](std::size_t, std::uint32_t) { ++sum; });
  CHECK(sum == 100);
}

TEST_CASE("there is at least one CPU, and a team by default uses no more than allowed") {
  const std::vector<int> cpus = engine::allowed_cpus();
  REQUIRE_FALSE(cpus.empty());
  CHECK(std::is_sorted(cpus.begin(), cpus.end()));
  CHECK(engine::default_num_threads() >= 1);
  CHECK(engine::default_num_threads() <= cpus.size());
}

// A small tree of files that looks like /proc and /sys.
using FakeRoot = TempFolder;

TEST_CASE("cgroup version 2: the smallest limit on the way up counts") {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/user/job\n");
  root.write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 1000000 kB\n");
  CHECK_FALSE(engine::cgroup_cpus(root.path()));
  CHECK(engine::available_memory(root.path()) == 1000000ull * 1024);
  root.write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
  root.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  root.write("sys/fs/cgroup/user/memory.max", "300000000\n");
  CHECK(engine::cgroup_cpus(root.path()) == 2.5);
  CHECK(engine::cgroup_memory_left(root.path()) == 300000000u);
  CHECK(engine::available_memory(root.path()) == 300000000u);
}

TEST_CASE("cgroup version 1: quota over period, and -1 means none") {
  FakeRoot root;
  root.write("proc/self/cgroup", "5:memory:/a/b\n3:cpu,cpuacct:/a/b\n1:name=systemd:/\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(engine::cgroup_cpus(root.path()));
  // Only the group itself is visible, as the root of the mount: that is how a container sees it.
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "123456789\n");
  CHECK(engine::cgroup_cpus(root.path()) == 1.5);
  CHECK(engine::cgroup_memory_left(root.path()) == 123456789u);
}

TEST_CASE("what is left of a limit counts, at every level, without page cache") {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/pod/job\n");
  root.write("proc/meminfo", "MemAvailable: 90000000 kB\n");
  const auto group = [&](const std::string& path, const std::string& max, const std::string& current,
                         const std::string& stat) {
    const std::string folder = "sys/fs/cgroup" + path + "/";
    root.write(folder + "memory.max", max + "\n");
    root.write(folder + "memory.current", current + "\n");
    root.write(folder + "memory.stat", stat);
  };
  const auto left = [&] { return engine::cgroup_memory_left(root.path()); };
  group("", "8000", "7500", "anon 7500\nfile 0\ninactive_file 0\nactive_file 0\n");
  CHECK(left() == 500u);
  CHECK(engine::available_memory(root.path()) == 500u);
  group("", "8000", "7500", "anon 1000\nfile 6500\ninactive_file 4000\nactive_file 2000\n");
  CHECK(left() == 6500u);
  group("/pod", "3000", "2800", "anon 2800\n");
  CHECK(left() == 200u);
  group("/pod/job", "max", "2700", "anon 2700\n");
  CHECK(left() == 200u);
  root.write("sys/fs/cgroup/pod/job/memory.high", "2750\n");
  CHECK(left() == 50u);
  group("/pod", "3000", "3100", "anon 3100\n");  // a limit that was lowered
  CHECK(left() == 0u);
}

TEST_CASE("cgroup version 1: what is left of a limit counts too") {
  FakeRoot root;
  root.write("proc/self/cgroup", "5:memory:/a/b\n1:name=systemd:/\n0::/\n");
  root.write("proc/meminfo", "MemAvailable: 90000000 kB\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "50000\n");
  CHECK(engine::available_memory(root.path()) == 90000000ull * 1024);
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9000\n");
  root.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "8000\n");
  root.write("sys/fs/cgroup/memory/a/memory.stat",
             "inactive_file 1\nactive_file 2\ntotal_inactive_file 1000\ntotal_active_file 500\n");
  CHECK(engine::cgroup_memory_left(root.path()) == 2500u);
  root.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000\n");
  root.write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "1900\n");
  CHECK(engine::cgroup_memory_left(root.path()) == 100u);
}

}  // namespace
}  // namespace troupe::test
