#include "cli/terminal/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <vector>

namespace troupe::cli {
namespace {

using engine::OperationTime;
using engine::PhaseTime;

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// "1.23 | 1.25 | 1.61 (#7)": milliseconds per step in the first, the median and the slowest layer.
std::string of_layers(const std::vector<double>& seconds, double steps) {
  if (seconds.empty()) return "| |";
  std::vector<std::size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return seconds[a] < seconds[b]; });
  const auto ms = [&](std::size_t layer) { return 1e3 * seconds[layer] / steps; };
  return fmt::format("{:.3f} | {:.3f} | {:.3f} (#{})", ms(0), ms(order[order.size() / 2]), ms(order.back()),
                     order.back());
}

struct Sums {
  double seconds = 0, join_seconds = 0, busy = 0, wake_up = 0, wait = 0, absent = 0;
  std::uint64_t joins = 0;
  std::vector<double> layers;

  void add(const OperationTime& operation) {
    seconds += operation.seconds;
    joins += operation.joins;
    join_seconds += operation.join_seconds;
    busy += operation.busy_seconds;
    wake_up += operation.wake_up_seconds;
    wait += operation.wait_seconds;
    absent += operation.absent_seconds;
    layers.resize(std::max(layers.size(), operation.layer_seconds.size()));
    for (std::size_t i = 0; i < operation.layer_seconds.size(); ++i) layers[i] += operation.layer_seconds[i];
  }
};

void write_row(const std::string& name, const Sums& sums, const PhaseTime& phase, double threads, std::ostream& out) {
  const auto steps = static_cast<double>(phase.measured_steps);
  const auto of_threads = [&](double seconds) { return percent(seconds, threads * sums.join_seconds); };
  out << fmt::format("| {} | {:.3f} | {:.1f} % | ", name, 1e3 * sums.seconds / steps,
                     percent(sums.seconds, phase.measured_seconds));
  if (sums.joins == 0)
    out << "| | | | | ";
  else
    out << fmt::format("{:.1f} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | ", static_cast<double>(sums.joins) / steps,
                       of_threads(sums.busy), of_threads(sums.wake_up), of_threads(sums.wait), of_threads(sums.absent));
  out << of_layers(sums.layers, steps) << " |\n";
}

void write_phase(const PhaseTime& phase, double threads, std::ostream& out) {
  const auto steps = static_cast<double>(phase.steps);
  Sums all;
  for (const OperationTime& operation : phase.operations) all.add(operation);
  out << fmt::format(
      "{}: {} steps of {:.1f} tokens, {:.3f} ms each; {} were measured: operations take {:.1f} % of them, threads "
      "without work in joins {:.1f} % of all threads' time\n\n"
      "| operation | ms | share | joins | busy | wake-up | wait | absent | layer #0 | median | slowest |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      phase.name, phase.steps, static_cast<double>(phase.rows) / steps, 1e3 * phase.seconds / steps,
      phase.measured_steps, percent(all.seconds, phase.measured_seconds),
      percent(all.wake_up + all.wait + all.absent, threads * phase.measured_seconds));
  for (const OperationTime& operation : phase.operations) {
    Sums sums;
    sums.add(operation);
    write_row(operation.name, sums, phase, threads, out);
  }
  write_row("all", all, phase, threads, out);
}

}  // namespace

std::string profile_text(const engine::ProfileSnapshot& profile) {
  std::ostringstream out;
  for (const PhaseTime& phase : profile.phases) {
    if (&phase != &profile.phases.front()) out << "\n";
    write_phase(phase, profile.num_threads, out);
  }
  return out.str();
}

nlohmann::ordered_json profile_json(const engine::ProfileSnapshot& profile) {
  using nlohmann::ordered_json;
  ordered_json phases = ordered_json::array();
  for (const PhaseTime& phase : profile.phases) {
    ordered_json operations = ordered_json::array();
    for (const OperationTime& operation : phase.operations)
      operations.push_back({{"operation", operation.name},
                            {"calls", operation.calls},
                            {"seconds", operation.seconds},
                            {"joins", operation.joins},
                            {"join_seconds", operation.join_seconds},
                            {"busy_seconds", operation.busy_seconds},
                            {"wake_up_seconds", operation.wake_up_seconds},
                            {"wait_seconds", operation.wait_seconds},
                            {"absent_seconds", operation.absent_seconds},
                            {"layer_seconds", operation.layer_seconds}});
    phases.push_back({{"phase", phase.name},
                      {"steps", phase.steps},
                      {"tokens", phase.rows},
                      {"seconds", phase.seconds},
                      {"measured_steps", phase.measured_steps},
                      {"measured_seconds", phase.measured_seconds},
                      {"operations", std::move(operations)}});
  }
  return {{"num_threads", profile.num_threads}, {"phases", std::move(phases)}};
}

}  // namespace troupe::cli
