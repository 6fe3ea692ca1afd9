#include "engine/machine/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "engine/compute/team.h"
#include "engine/memory/process_memory.h"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  return std::getline(in, line) ? std::optional(line) : std::nullopt;
}

// A whole number at the beginning of a file; nothing for "max", negative numbers and absent files.
std::optional<std::uint64_t> number_in(const fs::path& path) {
  const auto line = first_line(path);
  if (!line) return std::nullopt;
  std::istringstream in(*line);
  std::int64_t value = 0;
  return (in >> value) && value > 0 ? std::optional(static_cast<std::uint64_t>(value)) : std::nullopt;
}

// The lines "name number" of a file.
std::map<std::string, std::uint64_t> read_counts(const fs::path& path) {
  std::map<std::string, std::uint64_t> counts;
  std::ifstream in(path);
  std::string name;
  for (std::uint64_t count = 0; in >> name >> count;) counts[name] = count;
  return counts;
}

// Whether "cpu,cpuacct" names `controller`.
bool lists(const std::string& controllers, const std::string& controller) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');)
    if (name == controller) return true;
  return false;
}

// Calls `visit` with the folder of this process's group for `controller` and each folder above it. Inside a container
// the named path may not exist: then only the visible folders are visited.
void visit_groups(const fs::path& root, const std::string& controller,
                  const std::function<void(const fs::path&)>& visit) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "hierarchy:controllers:path"; version 2 is "0::path".
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !lists(controllers, controller)) continue;
    const fs::path mount = unified ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    fs::path group = line.substr(second + 1);
    while (true) {
      visit(mount / group.relative_path());
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
}

template <class T>
void keep_smaller(std::optional<T>& smallest, std::optional<T> value) {
  if (value && (!smallest || *value < *smallest)) smallest = value;
}

}  // namespace

std::optional<double> cgroup_cpus(const fs::path& root) {
  std::optional<double> smallest;
  visit_groups(root, "cpu", [&](const fs::path& group) {
    if (const auto line = first_line(group / "cpu.max")) {  // version 2: "quota period" or "max period"
      std::istringstream in(*line);
      double quota = 0, period = 0;
      if ((in >> quota >> period) && quota > 0 && period > 0) keep_smaller(smallest, std::optional(quota / period));
    }
    const auto quota = number_in(group / "cpu.cfs_quota_us");  // version 1: -1 means none
    const auto period = number_in(group / "cpu.cfs_period_us");
    if (quota && period)
      keep_smaller(smallest, std::optional(static_cast<double>(*quota) / static_cast<double>(*period)));
  });
  return smallest;
}

std::optional<std::uint64_t> cgroup_memory_left(const fs::path& root) {
  std::optional<std::uint64_t> smallest;
  visit_groups(root, "memory", [&](const fs::path& group) {
    const auto keep_left = [&](const char* limit_file, const char* usage_file, const std::string& cache_prefix) {
      const auto limit = number_in(group / limit_file);
      if (!limit) return;
      auto stat = read_counts(group / "memory.stat");
      const std::uint64_t cache = stat[cache_prefix + "inactive_file"] + stat[cache_prefix + "active_file"];
      const std::uint64_t all = number_in(group / usage_file).value_or(0);
      const std::uint64_t used = all - std::min(all, cache);
      keep_smaller(smallest, std::optional(*limit - std::min(*limit, used)));
    };
    keep_left("memory.max", "memory.current", "");
    keep_left("memory.high", "memory.current", "");
    // Of version 1; the plain entries of its memory.stat leave out the groups below.
    keep_left("memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
  });
  return smallest;
}

std::uint64_t available_memory(const fs::path& root) {
  const std::uint64_t available = read_sizes(root / "proc/meminfo")["MemAvailable"];
  return std::min(available, cgroup_memory_left(root).value_or(available));
}

std::string format_cpus(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last > i ? fmt::format("{}-{}", cpus[i], cpus[last]) : fmt::to_string(cpus[i]);
    i = last + 1;
  }
  return text;
}

MachineIdentity machine_identity(const fs::path& root) {
  MachineIdentity identity{.cpu = "unknown CPU", .revision = "", .cpus = format_cpus(allowed_cpus())};
  std::map<std::string, std::string> facts;
  std::ifstream in(root / "proc/cpuinfo");
  // "stepping\t: 2"; only the first CPU is read, up to an empty line.
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    const auto key_end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    if (value != std::string::npos && key_end != std::string::npos)
      facts.emplace(line.substr(0, key_end + 1), line.substr(value));
  }
  if (facts.contains("model name")) identity.cpu = facts["model name"];
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"cpu family", "family"}, {"model", "model"}, {"stepping", "stepping"}, {"microcode", "microcode"}};
  for (const auto& [key, word] : kParts)
    if (facts.contains(key))
      identity.revision.append(identity.revision.empty() ? "" : " ").append(word).append(" ").append(facts[key]);
  return identity;
}

double CpuTicks::stolen_percent_since(const CpuTicks& before) const {
  if (total <= before.total || stolen < before.stolen) return 0;
  return 100.0 * static_cast<double>(stolen - before.stolen) / static_cast<double>(total - before.total);
}

CpuTicks cpu_ticks(std::span<const int> cpus, const fs::path& root) {
  CpuTicks ticks;
  std::ifstream in(root / "proc/stat");
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    int cpu = 0;
    // The first line is the sum of all CPUs: it has a blank where the others have a number.
    if (line[3] == ' ' || !(fields >> cpu) || std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    // user nice system idle iowait irq softirq steal; the guest times after them are already in the first two.
    std::uint64_t value = 0;
    for (int i = 0; i < 8 && fields >> value; ++i) {
      ticks.total += value;
      if (i == 7) ticks.stolen += value;
    }
  }
  return ticks;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::uint32_t default_num_threads() {
  auto count = static_cast<std::uint32_t>(allowed_cpus().size());
  if (const auto quota = cgroup_cpus())
    count = std::min(count, std::max(1u, static_cast<std::uint32_t>(std::floor(*quota))));
  return count <= 4 ? count : count - 1;
}

}  // namespace troupe::engine
