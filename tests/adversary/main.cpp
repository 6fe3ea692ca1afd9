// adversary: attacks a real server from outside and checks its guarantees. options.cpp has the help.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "tests/adversary/rounds.h"
#include "tests/adversary/signals.h"
#include "tests/support/temp_folder.h"

namespace troupe::adversary {
namespace {

constexpr const char* kSignals = "signals";
constexpr const char* kCounts = "counts";
constexpr double kLongestSlice = 15, kShortestSlice = 1;
constexpr double kShareOfAttacks = 0.6;  // of the time; the rest goes into looking at the server, and into signals
constexpr double kSecondsForAllSignals = 30;
constexpr std::size_t kSignalsOfAShortRun = 3;

// The selection of --attack.
struct Chosen {
  std::vector<std::string> attacks{};  // names or plans
  bool counts = false;
  std::vector<std::string> signals{};  // cases
};

Chosen choose(const Options& options, std::string& error) {
  Chosen chosen;
  const bool all = options.attacks.empty();
  if (all) {
    for (const Attack& attack : attacks()) chosen.attacks.emplace_back(attack.name);
    // The cases that found most errors so far come in every run, besides drawn ones.
    for (const char* plan : {"pipeline:connections=12,kind=health", "flood:connections=60,kind=health",
                             "flood:connections=60,kind=status", "texts:kind=tokenize"})
      chosen.attacks.emplace_back(plan);
    chosen.counts = true;
    chosen.signals = signal_cases();
  }
  const std::vector<std::string> cases = signal_cases();
  for (const std::string& name : options.attacks) {
    const std::string prefix = std::string(kSignals) + ":";
    if (name == kCounts) {
      chosen.counts = true;
    } else if (name == kSignals) {
      chosen.signals = cases;
    } else if (name.starts_with(prefix)) {
      chosen.signals.push_back(name.substr(prefix.size()));
      if (std::find(cases.begin(), cases.end(), chosen.signals.back()) == cases.end()) error = "no such case: " + name;
    } else {
      chosen.attacks.push_back(name);
      parse_plan(name, error);
    }
  }
  return chosen;
}

std::string list_text() {
  std::string text;
  for (const Attack& attack : attacks()) {
    text += std::string(attack.name) + ": " + std::string(attack.description) + "\n";
    text += "    " + to_string({.attack = &attack, .parameters = attack.defaults}) + "\n";
    std::string kinds;
    for (const std::string& kind : attack.kinds) kinds += " " + kind;
    if (!kinds.empty()) text += "    kinds:" + kinds + "\n";
  }
  text += "signals: a server of its own for each phase, stopped by one signal or two\n    cases:";
  for (const std::string& name : signal_cases()) text += " signals:" + name;
  return text + "\ncounts: a request for each outcome, compared with the counters of Status\n";
}

// The attacks of one slice: exactly as given, or drawn: `first` and sometimes another one.
std::vector<Plan> draw(const std::vector<std::string>& names, const std::string& first, bool combine,
                       std::mt19937_64& random) {
  std::vector<Plan> plans;
  std::vector<std::string> chosen{first};
  if (combine && names.size() > 1 && random() % 2 == 0) chosen.push_back(names[random() % names.size()]);
  std::string ignored;
  for (const std::string& name : chosen) {
    const Plan plan = parse_plan(name, ignored);
    plans.push_back(name.find(':') == std::string::npos ? random_plan(*plan.attack, random) : plan);
  }
  return plans;
}

// Runs, in this order: each signal's case once; then passes over the attacks, in the first pass each alone and then
// with others; after each pass the check of the counters, and another case of a signal.
class Run {
 public:
  Run(const Options& options, Chosen chosen, Report& report)
      : options_(options), chosen_(std::move(chosen)), report_(report), random_(options.seed) {
    ::chmod(folder_.path().c_str(), 0711);  // other users pass through it to the socket
  }

  void all() {
    const auto until = Clock::now() + in_seconds(options_.seconds);
    for (const std::string& name : shortened(chosen_.signals)) signal(name, options_.seed);
    if (chosen_.attacks.empty() && !chosen_.counts) return;
    Rounds rounds(options_, folder_.path(), report_);
    if (!rounds.begin()) return;
    // The attacks keep a part of the time, however long the signals took.
    const auto attacked_until = std::max(until, Clock::now() + in_seconds(options_.seconds / 2));
    bool useful = true;
    for (bool company = false; useful && (!company || Clock::now() < attacked_until); company = true) {
      useful = pass(rounds, company, attacked_until);
      if (useful && chosen_.counts) rounds.count(options_.seed);
      if (company && !chosen_.signals.empty())
        signal(chosen_.signals[random_() % chosen_.signals.size()], options_.seed + num_attacks_);
      if (chosen_.attacks.empty()) break;
    }
    if (useful) rounds.end();
  }

 private:
  static Clock::duration in_seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  // A run too short for all cases takes some of them.
  std::vector<std::string> shortened(std::vector<std::string> cases) {
    if (!options_.attacks.empty() || options_.seconds >= kSecondsForAllSignals) return cases;
    std::shuffle(cases.begin(), cases.end(), random_);
    cases.resize(std::min(cases.size(), kSignalsOfAShortRun));
    return cases;
  }

  void signal(const std::string& name, std::uint64_t seed) {
    const SignalSetting setting{.program = options_.troupe,
                                .folder = folder_.path(),
                                .model = options_.model,
                                .arguments = options_.server_arguments,
                                .patience = options_.bounds.patience()};
    run_signal_case(name, setting, seed, report_);
  }

  // Each attack once, in a new order. False: no usable server is left.
  bool pass(Rounds& rounds, bool company, Clock::time_point until) {
    std::vector<std::string> names = chosen_.attacks;
    std::shuffle(names.begin(), names.end(), random_);
    const double attacking = options_.seconds * (names.size() > 1 ? kShareOfAttacks : 1);
    const auto slice =
        in_seconds(std::clamp(attacking / static_cast<double>(names.size()), kShortestSlice, kLongestSlice));
    for (const std::string& name : names) {
      if (company && Clock::now() >= until) break;
      const std::vector<Plan> plans = draw(names, name, company, random_);
      const bool unlisted = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.unlisted(); });
      if (unlisted && !rounds.has_users()) continue;
      if (!rounds.attack(plans, options_.seed + num_attacks_++, slice)) return false;
    }
    return true;
  }

  const Options& options_;
  Chosen chosen_;
  Report& report_;
  test::TempFolder folder_;
  std::mt19937_64 random_;
  std::uint64_t num_attacks_ = 0;
};

int run(const Options& options) {
  std::string error;
  Chosen chosen = choose(options, error);
  if (!error.empty()) {
    std::fprintf(stderr, "adversary: %s\n", error.c_str());
    return 2;
  }
  Report report;
  Run(options, std::move(chosen), report).all();
  report.conclude();
  if (!options.report.empty() && !report.write_json(options.report)) {
    std::fprintf(stderr, "adversary: cannot write %s\n", options.report.c_str());
    return 1;
  }
  return report.ok() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::adversary

int main(int argc, char** argv) {
  using namespace troupe::adversary;
  ::signal(SIGPIPE, SIG_IGN);
  std::string error;
  const Options options = parse_options(std::vector<std::string>(argv + 1, argv + argc), error);
  if (!error.empty()) {
    std::fprintf(stderr, "adversary: %s\n", error.c_str());
    return 2;
  }
  if (options.help || options.list) {
    std::fputs((options.help ? help_text() : list_text()).c_str(), stdout);
    return 0;
  }
  return run(options);
}
