#include "cli/doctor/machine_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "cli/terminal/text.h"
#include "engine/compute/team.h"
#include "engine/machine/probe_file.h"
#include "engine/memory/process_memory.h"
#include "engine/model/kernel_choice.h"
#include "kernels/cpu/cpu_features.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr std::uint64_t kLittleMemory = kGiB;
constexpr double kBusyShare = 0.25;       // of the CPUs, in the load of a minute
constexpr double kStolenPercent = 5;      // of their time since boot
constexpr double kSlowReadPerCore = 4e9;  // bytes per second; one core of a server with free channels reads 8 to 20e9
constexpr std::uint64_t kFewDescriptors = 4096;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The word in brackets: "never" of "always madvise [never]".
std::string chosen(const std::string& line) {
  const auto open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? ""
             : line.substr(open + 1, close - open - 1);
}

// Folders "NAME0", "NAME1", ... in `folder`.
std::vector<fs::path> numbered(const fs::path& folder, std::string_view name) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename();
    if (file.size() > name.size() && file.starts_with(name) &&
        std::all_of(file.begin() + static_cast<std::ptrdiff_t>(name.size()), file.end(),
                    [](char c) { return c >= '0' && c <= '9'; }))
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<FrequencyRule> frequency_rules(const fs::path& root) {
  std::vector<FrequencyRule> rules;
  for (const fs::path& cpu : numbered(root / "sys/devices/system/cpu", "cpu")) {
    const fs::path folder = cpu / "cpufreq";
    FrequencyRule rule{.driver = first_line(folder / "scaling_driver"),
                       .governor = first_line(folder / "scaling_governor"),
                       .preference = first_line(folder / "energy_performance_preference")};
    if (!rule.governor.empty() && std::ranges::find(rules, rule) == rules.end()) rules.push_back(std::move(rule));
  }
  return rules;
}

// Whether a CPU under this rule computes at less than its full speed while it is busy.
bool saves_power(const FrequencyRule& rule) {
  if (rule.governor == "performance" || rule.governor == "schedutil" || rule.governor == "ondemand") return false;
  // Drivers in which the CPU decides call that powersave, too.
  if (!rule.preference.empty()) return rule.preference == "power" || rule.preference == "balance_power";
  return rule.governor == "powersave" || rule.governor == "conservative";
}

std::string giga(double per_second) { return fmt::format("{:.1f} G", per_second / 1e9); }

Finding judge_cpu(const MachineFacts& facts) {
  Finding finding{.topic = "CPU",
                  .found = fmt::format("{}, CPUs {}: {} threads, kernels {}", facts.identity.cpu, facts.identity.cpus,
                                       facts.num_threads, facts.kernels)};
  if (facts.cgroup_cpus) finding.found += fmt::format("; a quota of {:.2f} CPUs", *facts.cgroup_cpus);
  if (facts.kernels == "scalar" || facts.kernels == "reference") {
    finding.grade = Grade::advice;
    finding.found += ", which are several times slower than those for AVX2";
    finding.remedy =
        "AVX2 is in every server CPU since 2013: in a virtual machine, have its CPU type pass it on (QEMU: -cpu host)";
  } else if (facts.cgroup_cpus && *facts.cgroup_cpus < 1) {
    finding.grade = Grade::advice;
    finding.remedy =
        "a quota below one CPU stops every step for a part of each period: raise CPUQuota= of the unit, or "
        "the container's cpus";
  }
  return finding;
}

Finding judge_memory(const MachineFacts& facts) {
  Finding finding{
      .topic = "memory",
      .found = fmt::format("{} of {} available{}", human_bytes(facts.available_memory), human_bytes(facts.total_memory),
                           facts.is_limited ? ", by a limit of its control group" : "")};
  const std::uint64_t swapped = facts.total_swap - std::min(facts.total_swap, facts.free_swap);
  if (facts.available_memory < kLittleMemory) {
    finding.grade = Grade::advice;
    finding.remedy = facts.is_limited ? "raise MemoryMax= of the unit, or the container's memory"
                                      : "end programs that use much, or serve a smaller model";
  } else if (facts.overcommit == 2) {
    finding.grade = Grade::advice;
    finding.found += "; the kernel lends none (vm.overcommit_memory = 2)";
    finding.remedy =
        "what a server reserves counts as used there: `sudo sysctl vm.overcommit_memory=0`, or a larger "
        "vm.overcommit_ratio";
  } else if (swapped > kGiB && swapped > facts.total_memory / 10) {
    finding.grade = Grade::advice;
    finding.found += fmt::format("; {} are swapped out", human_bytes(swapped));
    finding.remedy =
        "a model that is swapped out answers at the speed of the disk: free memory, or `serve --memory` "
        "with less";
  }
  return finding;
}

std::optional<Finding> judge_huge_pages(const MachineFacts& facts) {
  if (facts.huge_pages.empty())
    return Finding{"huge pages", Grade::advice, "this kernel has no transparent ones",
                   "reading weights wants pages of 2 MiB: a kernel with CONFIG_TRANSPARENT_HUGEPAGE"};
  if (facts.huge_pages == "never")
    return Finding{"huge pages", Grade::advice, "are switched off",
                   "`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled` (of each boot: the kernel's "
                   "parameter transparent_hugepage=madvise)"};
  return Finding{"huge pages", Grade::fine, facts.huge_pages};
}

std::optional<Finding> judge_frequency(const MachineFacts& facts) {
  if (facts.rules.empty()) return std::nullopt;  // a virtual machine: the host decides
  for (const FrequencyRule& rule : facts.rules)
    if (saves_power(rule))
      return Finding{"frequency", Grade::advice,
                     fmt::format("CPUs save power ({}, {}{})", rule.driver, rule.governor,
                                 rule.preference.empty() ? "" : fmt::format(", {}", rule.preference)),
                     rule.preference.empty() ? "`sudo cpupower frequency-set -g performance`"
                                             : "`echo balance_performance | sudo tee "
                                               "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference`"};
  return Finding{"frequency", Grade::fine, fmt::format("{}, {}", facts.rules[0].driver, facts.rules[0].governor)};
}

Finding judge_load(const MachineFacts& facts, bool is_serving) {
  Finding finding{.topic = "load", .found = fmt::format("{:.2f} in the last minute", facts.load_average)};
  if (facts.stolen_percent >= kStolenPercent) {
    finding.grade = Grade::advice;
    finding.found +=
        fmt::format("; the hypervisor gave {:.0f} % of the CPUs' time to other machines", facts.stolen_percent);
    finding.remedy = "ask for CPUs of its own for this machine";
  } else if (!is_serving && facts.load_average > kBusyShare * std::max(1u, facts.num_cpus)) {
    finding.grade = Grade::advice;
    finding.found += ", and no server that you may see computes";
    finding.remedy =
        "other programs compute here, and a step waits for its slowest thread: end them, lower their weight "
        "(CPUWeight=, nice), or give the server CPUs of its own (AllowedCPUs=)";
  }
  return finding;
}

std::optional<Finding> judge_bandwidth(const MachineFacts& facts, bool is_serving) {
  constexpr std::string_view kTopic = "bandwidth";
  const std::string measure = "`troupe probe` measures it, in ten seconds that want the machine for themselves";
  if (!facts.probe)
    return Finding{kTopic, Grade::advice, is_serving ? "not known, and not measured while a server runs" : "not known",
                   measure};
  const auto read = facts.probe->read_bytes_per_second(kGiB, facts.num_threads);
  if (!read) return Finding{kTopic, Grade::advice, "not known", measure};
  Finding finding{.topic = kTopic,
                  .found = fmt::format("{}B/s read by {} threads, of which a token reads the weights ({})", giga(*read),
                                       facts.num_threads, facts.probe->measured_at)};
  if (facts.probe->disturbed()) {
    finding.grade = Grade::advice;
    finding.found += ", measured while other programs or machines had the CPUs";
    finding.remedy = "`troupe probe --refresh` in a quiet minute";
  } else if (*read < kSlowReadPerCore * std::min(facts.num_threads, 4u)) {
    finding.grade = Grade::advice;
    finding.remedy = "this is little: are all memory channels filled, and do other programs or machines use them?";
  }
  return finding;
}

}  // namespace

MachineFacts machine_facts(const fs::path& root) {
  MachineFacts facts{.identity = engine::machine_identity(root)};
  const std::vector<int> cpus = engine::allowed_cpus();
  facts.num_cpus = static_cast<std::uint32_t>(cpus.size());
  facts.cgroup_cpus = engine::cgroup_cpus(root);
  facts.num_threads = engine::default_num_threads();
  if (const auto kernels = engine::choose_kernels(std::string{})) facts.kernels = (*kernels)->name;
  facts.amx_refusal = kernels::amx_refusal();
  facts.num_nodes = static_cast<std::uint32_t>(numbered(root / "sys/devices/system/node", "node").size());
  facts.rules = frequency_rules(root);
  facts.huge_pages = chosen(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));

  auto sizes = engine::read_sizes(root / "proc/meminfo");
  facts.total_memory = sizes["MemTotal"];
  facts.available_memory = engine::available_memory(root);
  facts.is_limited = facts.available_memory < sizes["MemAvailable"];
  facts.total_swap = sizes["SwapTotal"];
  facts.free_swap = sizes["SwapFree"];
  std::istringstream(first_line(root / "proc/sys/vm/overcommit_memory")) >> facts.overcommit;
  std::istringstream(first_line(root / "proc/loadavg")) >> facts.load_average;
  facts.stolen_percent = engine::cpu_ticks(cpus, root).stolen_percent_since({});
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) facts.file_descriptors = descriptors.rlim_max;
  facts.probe = engine::kept_probe();
  return facts;
}

std::vector<Finding> judge_machine(const MachineFacts& facts, bool is_serving) {
  std::vector<Finding> all{judge_cpu(facts)};
  const auto add = [&](std::optional<Finding> finding) {
    if (finding) all.push_back(std::move(*finding));
  };
  if (!facts.amx_refusal.empty()) add(Finding{"AMX", Grade::advice, facts.amx_refusal});
  add(judge_frequency(facts));
  add(judge_memory(facts));
  add(judge_huge_pages(facts));
  if (facts.num_nodes > 1)
    add(Finding{"NUMA", Grade::advice,
                fmt::format("{} nodes, over which one pool of threads computes", facts.num_nodes),
                "a model that fits one node is often faster there alone: `numactl -N 0 -m 0 troupe serve ...`, or "
                "AllowedCPUs= and NUMAPolicy= of the unit"});
  add(judge_bandwidth(facts, is_serving));
  add(judge_load(facts, is_serving));
  if (facts.file_descriptors < kFewDescriptors)
    add(Finding{"descriptors", Grade::advice, fmt::format("a process may have {}", facts.file_descriptors),
                "each connection needs one: `ulimit -Hn`, LimitNOFILE= of the unit"});
  return all;
}

}  // namespace troupe::cli
