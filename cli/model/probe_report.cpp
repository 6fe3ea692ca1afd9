#include "cli/model/probe_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "cli/terminal/text.h"
#include "kernels/cpu/unit.h"

namespace troupe::cli {
namespace {

using engine::MachineProbe;
using kernels::Unit;

// In units of 10^9 per second, with a star if it was disturbed.
std::string giga(const engine::Rate& rate, int decimals) {
  return fmt::format("{:.{}f}{}", rate.per_second * 1e-9, decimals, rate.disturbed() ? "*" : " ");
}

std::string gigahertz(const engine::Rate& rate) {
  return fmt::format("{:.2f} GHz{}", rate.per_second * 1e-9, rate.disturbed() ? "*" : "");
}

std::string microseconds(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.2f} us", *seconds * 1e6) : "not measured: there is one CPU";
}

std::string threads_text(std::uint32_t count) {
  return fmt::format("{}{} ", count, count == 1 ? " thread" : " threads");
}

std::string pair_text(const engine::PairFigure& pair) {
  const std::string both = fmt::format("CPUs {} and {} at once keep {:.0f} % each ({}): ", pair.first, pair.second,
                                       100 * pair.kept, kernels::name(pair.unit));
  switch (engine::pairing(pair)) {
    case engine::Pairing::cores:
      return both + "two cores";
    case engine::Pairing::siblings:
      return both + "siblings of one core";
    case engine::Pairing::unclear:
      break;
  }
  return both + (pair.others_percent > engine::kQuietPercent ? "too disturbed to say"
                                                             : "neither as two cores nor as siblings");
}

std::string taken_text(const MachineProbe& probe) {
  return fmt::format("by the hypervisor {:.1f} %, by other processes {:.1f} %{}", probe.steal_percent,
                     probe.others_percent,
                     probe.disturbed() ? ": over 1 %, so the limits are higher than these figures" : "");
}

// Aligns the first column to the left, the others to the right.
void print_table(const std::vector<std::vector<std::string>>& rows, std::ostream& out) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i < row.size(); ++i) line += std::string(2 + widths[i] - row[i].size(), ' ') + row[i];
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

void print_peaks(const MachineProbe& probe, std::ostream& out) {
  std::set<std::uint32_t> counts;
  std::map<std::pair<Unit, std::uint32_t>, std::string> cells;
  for (const engine::PeakFigure& figure : probe.peaks) {
    counts.insert(figure.num_threads);
    cells[{figure.unit, figure.num_threads}] = giga(figure.ops, 0);
  }
  std::vector<std::vector<std::string>> rows{{"GOP/s"}};
  for (const std::uint32_t count : counts) rows[0].push_back(threads_text(count));
  for (std::size_t i = 1; i < kernels::kNumUnits; ++i) {
    const Unit unit = static_cast<Unit>(i);
    std::vector<std::string> row{std::string(kernels::name(unit))};
    for (const std::uint32_t count : counts) {
      const auto found = cells.find({unit, count});
      row.push_back(found == cells.end() ? "absent " : found->second);
    }
    rows.push_back(std::move(row));
  }
  print_table(rows, out);
}

void print_reads(const MachineProbe& probe, std::ostream& out) {
  std::set<std::uint32_t> counts;
  std::map<std::pair<bool, std::uint64_t>, std::map<std::uint32_t, std::string>> lines;  // 2 MiB pages first
  for (const engine::ReadFigure& figure : probe.reads) {
    counts.insert(figure.num_threads);
    lines[{!figure.huge_pages, figure.bytes}][figure.num_threads] = giga(figure.rate, 1);
  }
  std::vector<std::vector<std::string>> rows{{"read GB/s", "pages"}};
  for (const std::uint32_t count : counts) rows[0].push_back(threads_text(count));
  for (const auto& [kind, cells] : lines) {
    std::vector<std::string> row{human_bytes(kind.second), kind.first ? "4 KiB" : "2 MiB"};
    for (const std::uint32_t count : counts) row.push_back(cells.contains(count) ? cells.at(count) : "- ");
    rows.push_back(std::move(row));
  }
  print_table(rows, out);
}

}  // namespace

void print_probe(const MachineProbe& probe, std::ostream& out) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"machine", probe.machine.cpu + (probe.machine.revision.empty() ? "" : ", ") + probe.machine.revision},
      {"CPUs", fmt::format("{}, of which a team of {} was measured", probe.machine.cpus, probe.num_threads)},
      {"measured",
       fmt::format("{}, in {:.1f} s{}", probe.measured_at, probe.duration_s, probe.quick ? " (--quick)" : "")},
      {"time taken", taken_text(probe)},
      {"clock",
       gigahertz(probe.clock) +
           (probe.clock_beside_amx ? "; while the matrix unit works " + gigahertz(*probe.clock_beside_amx) : "")}};
  for (const engine::PairFigure& pair : probe.pairs) facts.emplace_back("pairs", pair_text(pair));
  facts.emplace_back("wake-up", microseconds(probe.wake_s) + (probe.wake_s ? ", p50 of a thread that sleeps" : ""));
  facts.emplace_back("ping-pong",
                     microseconds(probe.ping_pong_s) + (probe.ping_pong_s ? ", p50 of a cache line, one way" : ""));
  facts.emplace_back("L3 cache", probe.l3_bytes ? human_bytes(probe.l3_bytes) + ", as the CPU reports it" : "unknown");
  out << aligned(facts) << '\n';
  print_peaks(probe, out);
  out << '\n';
  print_reads(probe, out);
  const auto starred_any =
      std::any_of(probe.peaks.begin(), probe.peaks.end(), [](const auto& f) { return f.ops.disturbed(); }) ||
      std::any_of(probe.reads.begin(), probe.reads.end(), [](const auto& f) { return f.rate.disturbed(); }) ||
      probe.clock.disturbed() || (probe.clock_beside_amx && probe.clock_beside_amx->disturbed());
  if (starred_any)
    out << "\n* measured while the hypervisor or other processes took over 1 % of the time: the limit is higher\n";
}

std::string limits_line(const MachineProbe& probe, std::uint32_t num_threads, const std::set<Unit>& units) {
  std::string text;
  std::uint64_t largest = 0;
  for (const engine::ReadFigure& figure : probe.reads) largest = std::max(largest, figure.bytes);
  if (const auto speed = probe.read_bytes_per_second(largest, num_threads))
    text = fmt::format("read {:.1f} GB/s ({})", *speed * 1e-9, human_bytes(largest));
  for (const Unit unit : units)
    if (const auto speed = probe.ops_per_second(unit, num_threads))
      text += fmt::format("{}{} {:.0f} GOP/s", text.empty() ? "" : ", ", kernels::name(unit), *speed * 1e-9);
  return text;
}

std::string share_text(double share, const std::string& limit) {
  return fmt::format("{:.0f} % of {}", 100 * share, limit);
}

}  // namespace troupe::cli
