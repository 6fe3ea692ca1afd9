#include "tests/adversary/report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace troupe::adversary {
namespace {

std::string to_line(const Finding& finding) {
  return finding.invariant + ": " + finding.measured + ", bound " + finding.bound + " (--attack " + finding.attack +
         " --seed " + std::to_string(finding.seed) + ")" + (finding.detail.empty() ? "" : "\n      " + finding.detail);
}

}  // namespace

void Report::say(const std::string& line) const {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Report::add(Finding finding) {
  say("  BROKEN " + to_line(finding));
  findings_.push_back(std::move(finding));
}

void Report::measured(const std::string& attack, std::uint64_t seed, std::map<std::string, double> figures) {
  rows_.push_back({attack, seed, std::move(figures)});
}

void Report::conclude() const {
  std::map<std::string, const Row*> worst;  // by figure
  for (const Row& row : rows_)
    for (const auto& [what, figure] : row.figures) {
      const Row*& most = worst[what];
      if (!most || figure > most->figures.at(what)) most = &row;
    }
  for (const char* what : {"peak_rss_bytes", "Health p99 ms", "first token p99 ms", "exit_seconds"})
    if (const auto found = worst.find(what); found != worst.end())
      say("worst " + std::string(what) + ": " + one_decimal(found->second->figures.at(what)) + " (" +
          found->second->attack + ")");
  say(std::to_string(rows_.size()) + " attacks and signals");
  if (findings_.empty()) return say("every invariant held");
  say(std::to_string(findings_.size()) + " times an invariant did not hold:");
  for (const Finding& finding : findings_) say("  - " + to_line(finding));
}

bool Report::write_json(const std::string& path) const {
  nlohmann::ordered_json report{
      {"ok", ok()}, {"findings", nlohmann::json::array()}, {"attacks", nlohmann::json::array()}};
  for (const Finding& finding : findings_)
    report["findings"].push_back({{"invariant", finding.invariant},
                                  {"attack", finding.attack},
                                  {"seed", finding.seed},
                                  {"measured", finding.measured},
                                  {"bound", finding.bound},
                                  {"detail", finding.detail}});
  for (const Row& row : rows_)
    report["attacks"].push_back({{"attack", row.attack}, {"seed", row.seed}, {"figures", row.figures}});
  std::ofstream file(path);
  file << report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  return static_cast<bool>(file);
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string one_decimal(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace troupe::adversary
