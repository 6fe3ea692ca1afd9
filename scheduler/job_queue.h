// The jobs of all models that wait for the compute pool, and which of them is next. The pool runs one at a time.
//
// Each unit (a model that is served) has a line of jobs, which stay in their order. Whose turn it is:
//
//   1. Bookkeeping goes first: it is cheap, and what it gives back may be waited for.
//   2. Of the units whose next job serves requests: those with the tenant that was served the least, over all models
//      (FairShares::served()), or one that was served little more.
//   3. Of these the units that have had the least time of the pool, divided by their weight, or little more.
//   4. Of these the one whose last turn is longest ago: a job waits for at most one job of each other unit.
//   5. Measuring, which serves no request, if no unit serves any; but at most kMaxPassed serving jobs go before it. Of
//      several units that measure, the next waits for as many again.
//
// "Little more" is kAllowedJobs jobs of the unit whose jobs take longest. It is more than FairShares::allowance(),
// within which a unit computes its tenants' rows together: else these could keep another unit's from computing, while
// their counters grow alike. It is also the most that a unit without jobs saves up.
//
// A unit posts its next job only once it has the result of its last one, some ten microseconds after that has ended. It
// counts as waiting for kNextJobSeconds: where it is its turn by 2. or 3., and no other unit's, the pool waits for it.
// Without that, units would have turns one by one whatever they were served.
//
// Plain logic: time is an argument, in seconds of any clock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/ids.h"

namespace troupe::scheduler {

enum class JobKind : std::uint8_t {
  bookkeeping,  // closes sequences, waits for the last step of a dead actor
  serving,      // a step, a pass, a draft
  measuring,    // a step that serves no request
};

struct Job {
  JobKind kind = JobKind::serving;
  std::vector<TenantId> tenants{};  // whose requests it serves; none: it goes by its unit alone
  std::function<void()> run;
};

// What a unit is to the queue.
struct JobSource {
  std::uint32_t unit = 0;
  double weight = 1;  // above 0 (asserted)
};

// Not thread-safe. All calls are O(units + tenants of their next jobs).
class JobQueue {
 public:
  static constexpr double kAllowedJobs = 3;
  static constexpr double kNextJobSeconds = 200e-6;
  static constexpr std::uint32_t kMaxPassed = 16;

  // least_served: the counter of the tenant that was served least; called by next() if several units have work.
  explicit JobQueue(std::function<double(std::span<const TenantId>)> least_served)
      : least_served_(std::move(least_served)) {}

  void push(const JobSource& source, Job job, double now);
  // Takes out the job whose turn it is. None: there is none, or it is another unit's turn, which is waited for until
  // ask_at; ask again then, or after a push().
  struct Next {
    std::optional<Job> job;
    double ask_at = std::numeric_limits<double>::infinity();
  };
  [[nodiscard]] Next next(double now);
  // The job that next() has returned took `seconds`. Call it before next() is asked again.
  void ended(double seconds, double now);

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Unit {
    double weight = 1;
    std::deque<Job> waiting{};
    std::vector<TenantId> tenants{};  // of its last job that served requests
    double served = 0;                // seconds / weight
    double usual_seconds = 0;         // of such a job, a decayed mean
    double expected_until = -std::numeric_limits<double>::infinity();
    std::uint64_t last_turn = 0;
    double key = 0;  // of next(): its tenant that was served the least

    [[nodiscard]] bool has(JobKind kind) const { return !waiting.empty() && waiting.front().kind == kind; }
    [[nodiscard]] bool is_expected(double now) const { return waiting.empty() && now < expected_until; }
  };

  [[nodiscard]] bool is_idle(const Unit& unit, double now) const;
  [[nodiscard]] double allowed() const;
  Next take(Unit& unit);
  Unit* choose();

  const std::function<double(std::span<const TenantId>)> least_served_;
  std::map<std::uint32_t, Unit> units_;
  std::size_t size_ = 0;
  Unit* running_ = nullptr;
  JobKind running_kind_ = JobKind::serving;
  double clock_ = 0;  // Unit::served at the last turn
  std::uint64_t num_turns_ = 0;
  std::uint32_t passed_ = 0;       // serving jobs that went while a measuring job was next in its line
  std::vector<Unit*> contenders_;  // of next()
};

}  // namespace troupe::scheduler
