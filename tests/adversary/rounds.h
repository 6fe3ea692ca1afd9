// One attack after another against one server, with all checks after each.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/adversary/attack.h"
#include "tests/adversary/child.h"
#include "tests/adversary/counts.h"
#include "tests/adversary/neighbour.h"
#include "tests/adversary/options.h"
#include "tests/adversary/report.h"

namespace troupe::adversary {

class Rounds {
 public:
  // folder: for sockets and logs, of this program alone.
  Rounds(const Options& options, std::string folder, Report& report);

  // Starts the server and measures it without an attack. False: it cannot be used, and the report says why.
  bool begin();
  // These attacks at the same time, for so long; then a look at everything. False: the server had to be replaced, and
  // the new one is of no use.
  bool attack(const std::vector<Plan>& plans, std::uint64_t seed, Clock::duration time);
  // Compares a client's count of answers with the server's counters.
  void count(std::uint64_t seed);
  // Stops the server and checks that it leaves nothing behind.
  void end();

  // Whether attackers, neighbour and owner are different users.
  bool has_users() const { return has_users_; }

 private:
  struct Observed;

  bool start_server();
  std::vector<std::string> server_arguments() const;
  bool read_limits();
  // Reports what does not hold, but for late answers: those are returned.
  std::vector<Finding> attack_once(const std::vector<Plan>& plans, Clock::duration time);
  Observed observe(std::vector<Child> attackers, Clock::time_point until);
  std::uint64_t allowed_growth(const std::vector<Plan>& plans) const;
  void judge_memory(const Observed& observed, std::uint64_t before, std::uint64_t growth);
  void judge_answers(const Measured& measured);
  std::vector<Finding> late_answers(const Observed& observed, bool of_control) const;
  void judge_after(std::uint64_t idle_bound);
  void judge_log();
  void describe(const Observed& observed, std::uint64_t before, std::uint64_t growth);
  void broken(std::string invariant, std::string measured, std::string bound, std::string detail = "");

  const Options& options_;
  std::string folder_;
  Report& report_;
  bool has_users_;
  ServerLimits limits_;
  std::uint64_t documented_total_ = 0;  // of --print-limits
  std::uint64_t kv_bytes_ = 0;
  std::uint64_t rss_at_start_ = 0;
  std::unique_ptr<ServerProcess> server_;
  Expected expected_;
  Measured calm_;            // the neighbour without an attack
  std::string attack_name_;  // of the attack that is looked at
  std::uint64_t seed_ = 0;
  std::size_t num_servers_ = 0;
};

}  // namespace troupe::adversary
