#include <algorithm>
#include <ostream>
#include <sstream>

#include "bench/load/report/report_format.h"
#include "bench/load/report/report_tenants.h"
#include "config/printable.h"

namespace troupe::load {
namespace {

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
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

// In lines of at most 100 columns.
void write_wrapped(const std::string& text, std::ostream& out) {
  std::istringstream words(text);
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) out << "  " << line << '\n';
    line.clear();
  };
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > 98) flush();
    line += (line.empty() ? "" : " ") + word;
  }
  flush();
}

void write_table(const Table& table, std::ostream& out) {
  std::vector<std::size_t> widths(table.columns.size());
  for (std::size_t i = 0; i < widths.size(); ++i) {
    widths[i] = table.columns[i].size();
    for (const auto& row : table.rows) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto write_row = [&](const std::vector<std::string>& cells) {
    out << "  " << left(Printable(cells.front()).text(), widths.front());
    for (std::size_t i = 1; i < cells.size(); ++i) out << "  " << right(Printable(cells[i]).text(), widths[i]);
    out << '\n';
  };
  out << '\n' << table.title << '\n';
  write_row(table.columns);
  for (const auto& row : table.rows) write_row(row);
  write_wrapped(table.note, out);
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
  for (const Table& table : tenant_tables(head, run)) write_table(table, out);
}

}  // namespace troupe::load
