#include <algorithm>
#include <ostream>

#include "bench/load/report_format.h"
#include "config/printable.h"

namespace troupe::load {
namespace {

std::string left(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

void write_lines(const std::vector<std::pair<std::string, std::string>>& lines, std::ostream& out) {
  std::size_t width = 0;
  for (const auto& [label, value] : lines) width = std::max(width, label.size());
  for (const auto& [label, value] : lines)
    out << "  " << left(Printable(label).text(), width + 2) << Printable(value, kMaxMessageBytes) << '\n';
}

void write_throughput(const Summary& s, std::ostream& out) {
  out << "\nThroughput" << right("per second", 24) << right("best second", 14) << '\n';
  const auto row = [&](const char* name, double rate, const std::string& best) {
    out << "  " << left(name, 20) << right(brief(rate), 12) << (best.empty() ? "" : right(best, 14)) << '\n';
  };
  row("requests", s.request_throughput, "");
  row("tokens out", s.output_throughput, brief(s.peak_output_throughput));
  row("tokens in", s.input_throughput, "");
  row("tokens, both", s.total_throughput, "");
}

void write_latencies(const Summary& s, std::ostream& out) {
  out << "\n" << left("Latency (ms)", 14);
  for (const char* column : {"mean", "std", "median", "p90", "p95", "p99", "max"}) out << right(column, 11);
  out << '\n';
  for (const LatencyRow& row : latency_rows(s)) {
    const Distribution& d = *row.values;
    out << "  " << left(row.name, 12);
    for (const double value : {d.mean, d.std, d.median, d.p90, d.p95, d.p99, d.max})
      out << right(d.count > 0 ? brief(value) : "-", 11);
    out << '\n';
  }
  for (const LatencyRow& row : latency_rows(s)) out << "  " << left(row.name + ":", 8) << row.definition << '\n';
}

}  // namespace

void write_text(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out) {
  out << Printable((head.title.empty() ? "Load test" : head.title) + ": " + head.model +
                       (head.model.empty() ? "" : " at ") + head.endpoint,
                   kMaxMessageBytes)
      << "\n\n";
  write_lines(run.description, out);
  out << "\nResult\n";
  write_lines(findings(run, summary, head.goodput), out);
  write_throughput(summary, out);
  write_latencies(summary, out);
}

}  // namespace troupe::load
