#include "scheduler/job_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "scheduler/shares/fair_shares.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr TenantId kAnn{1}, kBob{2}, kCleo{3};

// A pool and its units in model time. A unit that computes all the time posts its next job a little after its last one
// has ended.
class Pool {
 public:
  struct Client {
    JobSource source;
    double seconds = 0.01;  // of a job
    std::vector<TenantId> tenants{};
    double post_at = 0;  // infinite: its job waits or runs
    std::uint32_t num_jobs = 0;
    double busy_seconds = 0;
    std::uint32_t most_overtaken = 0;  // by jobs of one other unit, while a job of its own waited
    std::map<std::uint32_t, std::uint32_t> overtaken{};
  };

  explicit Pool(std::vector<Client> all) : clients(std::move(all)) {
    for (const Client& client : clients) {
      FairShares& shares = shares_.try_emplace(client.source.unit, counters_, client.source.weight).first->second;
      for (const TenantId tenant : client.tenants) shares.begin(tenant);
    }
  }

  // Runs the next job, after those of the clients whose time has come are posted. Returns its unit.
  std::uint32_t turn() {
    for (;;) {
      post();
      JobQueue::Next next = queue.next(time);
      if (next.job) {
        next.job->run();
        return last;
      }
      double until = next.ask_at;
      for (const Client& client : clients) until = std::min(until, client.post_at);
      REQUIRE(until > time);
      idle_seconds += until - time;
      time = until;
    }
  }
  void run(double seconds) {
    const double end = time + seconds;
    while (time < end) turn();
  }
  Client& of(std::uint32_t unit) {
    return *std::ranges::find_if(clients, [&](const Client& client) { return client.source.unit == unit; });
  }
  double share(std::uint32_t unit) {
    double sum = 0;
    for (const Client& client : clients) sum += client.busy_seconds;
    return of(unit).busy_seconds / sum;
  }

  [[nodiscard]] double served(TenantId tenant) const { return counters_->served(tenant); }
  void serve(TenantId tenant, double seconds) { counters_->charge(tenant, seconds); }

  double time = 0, idle_seconds = 0, post_delay = 50e-6;
  std::uint32_t last = 0;
  std::vector<Client> clients;
  JobQueue queue{[this](std::span<const TenantId> tenants) {
    double least = std::numeric_limits<double>::infinity();
    for (const TenantId tenant : tenants) least = std::min(least, served(tenant));
    return least;
  }};

 private:
  void post() {
    for (Client& client : clients) {
      if (client.post_at > time) continue;
      const double now = std::exchange(client.post_at, std::numeric_limits<double>::infinity());
      client.overtaken.clear();
      queue.push(client.source, {.tenants = client.tenants, .run = [this, &client] { compute(client); }}, now);
    }
  }
  void compute(Client& client) {
    last = client.source.unit;
    for (Client& other : clients) {
      if (&other == &client || other.post_at <= time || other.post_at < std::numeric_limits<double>::infinity())
        continue;
      other.most_overtaken = std::max(other.most_overtaken, ++other.overtaken[last]);
    }
    time += client.seconds;
    queue.ended(client.seconds, time);
    client.busy_seconds += client.seconds;
    ++client.num_jobs;
    for (const TenantId tenant : client.tenants)
      shares_.at(client.source.unit).charge(tenant, client.seconds / static_cast<double>(client.tenants.size()));
    client.post_at = time + post_delay;
  }

  const std::shared_ptr<ServedTime> counters_ = std::make_shared<ServedTime>();
  std::map<std::uint32_t, FairShares> shares_;
};

// Posts jobs that write their names, and runs all of them.
struct Names {
  void post(std::uint32_t unit, const std::string& name, JobKind kind = JobKind::serving) {
    queue.push({.unit = unit}, {.kind = kind, .run = [this, name] { order += name; }}, 0);
  }
  std::string run() {
    while (queue.size() > 0) {
      JobQueue::Next next = queue.next(1);
      REQUIRE(next.job);
      next.job->run();
      queue.ended(0, 0);
    }
    return std::exchange(order, {});
  }
  std::string order;
  JobQueue queue{[](std::span<const TenantId>) { return 0.0; }};
};

}  // namespace

TEST_CASE("jobs: those of one unit keep their order, and units take turns") {
  Names names;
  for (const char* name : {"a", "b", "c"}) names.post(1, name);
  for (const char* name : {"x", "y"}) names.post(2, name);
  CHECK(names.run() == "axbyc");
}

TEST_CASE("jobs: bookkeeping goes before other units' jobs, not before its own unit's") {
  Names names;
  names.post(1, "a");
  names.post(1, "b");
  names.post(2, "x");
  names.post(2, "Q", JobKind::bookkeeping);
  names.post(3, "P", JobKind::bookkeeping);
  CHECK(names.run() == "PaxQb");
}

TEST_CASE("jobs: measuring waits while another unit has work, but for so many jobs only") {
  Names names;
  names.post(1, "M", JobKind::measuring);
  names.post(2, "a");
  CHECK(names.run() == "aM");
  names.post(1, "M", JobKind::measuring);
  for (std::uint32_t i = 0; i < JobQueue::kMaxPassed + 2; ++i) names.post(2, "a");
  CHECK(names.run() == std::string(JobQueue::kMaxPassed, 'a') + "Maa");
}

TEST_CASE("jobs: measuring is not put between two steps of a unit that posts the next one at once") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn}}});
  pool.turn();
  double measured_at = 0;
  pool.queue.push({.unit = 2},
                  {.kind = JobKind::measuring,
                   .run =
                       [&] {
                         measured_at = pool.time;
                         pool.queue.ended(0, pool.time);
                       }},
                  pool.time);
  for (int i = 0; i < 3; ++i) pool.turn();
  CHECK(measured_at == 0);
  CHECK(pool.of(1).num_jobs == 4);
  pool.of(1).post_at = pool.time + 1;  // no work for a second
  pool.of(1).tenants = {};
  pool.turn();
  CHECK(measured_at == Approx(pool.time).margin(JobQueue::kNextJobSeconds));
}

TEST_CASE("jobs: of units alike, a job waits for at most one job of each other unit") {
  for (const std::uint32_t num_units : {2u, 3u, 5u}) {
    std::vector<Pool::Client> clients;
    for (std::uint32_t unit = 0; unit < num_units; ++unit)
      clients.push_back({.source = {.unit = unit}, .tenants = {kAnn}});
    Pool pool(std::move(clients));
    pool.run(3);
    for (const Pool::Client& client : pool.clients) {
      CHECK(client.most_overtaken <= 1);
      CHECK(pool.share(client.source.unit) == Approx(1.0 / num_units).epsilon(0.02));
    }
    CHECK(pool.idle_seconds < 0.001);
  }
}

TEST_CASE("jobs: units of one tenant have equal time, however long their jobs are") {
  Pool pool({{.source = {.unit = 1}, .seconds = 0.002, .tenants = {kAnn}},
             {.source = {.unit = 2}, .seconds = 0.05, .tenants = {kAnn}}});
  pool.run(20);
  CHECK(pool.share(1) == Approx(0.5).epsilon(0.05));
  CHECK(pool.of(1).most_overtaken <= 1);
  CHECK(pool.of(2).most_overtaken < 4 * 25);  // what it had before, in time
}

TEST_CASE("jobs: units of one tenant have time by their weights") {
  Pool pool({{.source = {.unit = 1, .weight = 3}, .tenants = {kAnn}}, {.source = {.unit = 2}, .tenants = {kAnn}}});
  pool.run(20);
  CHECK(pool.share(1) == Approx(0.75).epsilon(0.05));
}

TEST_CASE("jobs: tenants of different units have time by what they were served") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn, kBob}}, {.source = {.unit = 2}, .tenants = {kCleo}}});
  pool.run(20);
  CHECK(pool.served(kAnn) == Approx(20.0 / 3).epsilon(0.02));
  CHECK(pool.served(kBob) == pool.served(kAnn));
  CHECK(pool.served(kCleo) == Approx(20.0 / 3).epsilon(0.02));
  CHECK(pool.idle_seconds < 0.01 * pool.time);
}

// A unit computes two tenants together while neither was served more by FairShares::allowance().
TEST_CASE("jobs: a tenant that is computed with another one in a second unit does not lose its turns in the first") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn}}, {.source = {.unit = 2}, .tenants = {kAnn, kBob}}});
  while (pool.time < 10) {
    const bool together = pool.served(kAnn) <= pool.served(kBob) + 2 * pool.of(2).seconds;
    pool.of(2).tenants = together ? std::vector{kAnn, kBob} : std::vector{kBob};
    pool.turn();
  }
  CHECK(pool.share(1) == Approx(0.5).epsilon(0.1));
  CHECK(pool.served(kBob) == Approx(5).epsilon(0.1));
}

TEST_CASE("jobs: a unit that had less time than another because of its tenants is not owed it") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn, kBob}}, {.source = {.unit = 2}, .tenants = {kCleo}}});
  pool.run(20);
  REQUIRE(pool.share(2) < 0.4);
  for (Pool::Client& client : pool.clients) client.tenants = {kAnn};
  const double before = pool.of(1).busy_seconds;
  pool.run(2);
  CHECK(pool.of(1).busy_seconds - before == Approx(1).epsilon(0.1));
}

TEST_CASE("jobs: a unit whose turn it is is waited for no longer than some ten steps of messages") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn, kBob}}, {.source = {.unit = 2}, .tenants = {kCleo}}});
  pool.run(2);
  pool.serve(kCleo, 10);  // it is the turn of unit 1 for long
  pool.of(1).post_at = std::numeric_limits<double>::infinity();
  while (pool.turn() != 2) {
  }
  const double before = pool.idle_seconds;
  pool.of(1).post_at = pool.time + 1;
  for (int i = 0; i < 5; ++i) CHECK(pool.turn() == 2);
  CHECK(pool.idle_seconds - before <= 5 * pool.post_delay + JobQueue::kNextJobSeconds);
}

TEST_CASE("jobs: what a unit left unused is not saved up") {
  Pool pool({{.source = {.unit = 1}, .tenants = {kAnn}}, {.source = {.unit = 2}, .tenants = {kAnn}}});
  pool.of(2).post_at = 10;
  pool.run(10);
  CHECK(pool.of(2).num_jobs == 0);
  pool.run(1);
  CHECK(pool.of(2).num_jobs == Approx(50).margin(5));
  CHECK(pool.of(1).most_overtaken <= 2 * JobQueue::kAllowedJobs + 1);
}

TEST_CASE("jobs: a single unit never waits, and its tenants are not looked up") {
  std::uint32_t num_lookups = 0;
  JobQueue queue([&](std::span<const TenantId>) { return ++num_lookups, 0.0; });
  double time = 0;
  for (int i = 0; i < 100; ++i) {
    queue.push({.unit = 1}, {.tenants = {kAnn}, .run = [] {}}, time);
    REQUIRE(queue.next(time).job);
    queue.ended(0.01, time += 0.01);
    const JobQueue::Next none = queue.next(time);
    CHECK_FALSE(none.job);
    CHECK(none.ask_at == std::numeric_limits<double>::infinity());
  }
  CHECK(num_lookups == 0);
}
