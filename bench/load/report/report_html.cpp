#include <algorithm>
#include <map>
#include <ostream>
#include <tuple>

#include "bench/load/report/report_chart.h"
#include "bench/load/report/report_curves.h"
#include "bench/load/report/report_format.h"
#include "bench/load/report/report_tenants.h"

namespace troupe::load {
namespace {

constexpr std::size_t kMaxMessages = 12;
constexpr std::size_t kMaxMessageBytes = 300;

const std::string& title_of(const ReportHead& head) {
  static const std::string untitled = "Load test";
  return head.title.empty() ? untitled : head.title;
}

std::string subtitle(const ReportHead& head, const Summary& summary) {
  std::string text;
  for (const std::string& part : {head.model, head.endpoint, head.date, brief(summary.duration_s) + " s"})
    if (!part.empty()) text += (text.empty() ? "" : " \xc2\xb7 ") + part;
  return text;
}

void write_badges(const Summary& s, std::ostream& out) {
  const auto badge = [&](const char* kind, const char* sign, const std::string& text) {
    out << "<li class=\"" << kind << "\">" << sign << ' ' << escaped(text) << "</li>\n";
  };
  constexpr const char *kYes = "\xe2\x9c\x93", *kNo = "\xe2\x9c\x97", *kDot = "\xc2\xb7";
  out << "<ul class=\"badges\">\n";
  const bool all = s.num_requests > 0 && s.completed == s.num_requests;
  badge(all ? "good" : "", all ? kYes : kDot, grouped(s.completed) + " of " + grouped(s.num_requests) + " completed");
  if (s.ended_exactly_once())
    badge("good", kYes, "every request ended exactly once");
  else
    badge("bad", kNo, grouped(s.never_ended) + " never ended, " + grouped(s.ended_twice) + " ended twice");
  if (s.mismatched > 0)
    badge("bad", kNo, grouped(s.mismatched) + " answers differ from the same request run alone");
  else if (s.verified > 0)
    badge("good", kYes, grouped(s.verified) + " answers equal to the same request run alone");
  if (s.failed > 0) badge("bad", kNo, grouped(s.failed) + " failed");
  if (s.refused > 0) badge("warn", kDot, grouped(s.refused) + " refused");
  if (!s.faults.empty()) badge("", kDot, "faults injected: " + counts(s.faults));
  out << "</ul>\n";
}

void write_tiles(const Summary& s, std::ostream& out) {
  const auto tile = [&](const std::string& value, const char* unit, const std::string& label) {
    out << "<div class=\"tile\"><b>" << escaped(value) << " <small>" << unit << "</small></b><span>" << escaped(label)
        << "</span></div>\n";
  };
  out << "<section class=\"tiles\" aria-label=\"Key figures\">\n";
  tile(brief(s.output_throughput), "tok/s", "output throughput");
  tile(brief(s.request_throughput), "req/s", "requests completed");
  if (s.request_goodput) tile(brief(*s.request_goodput), "req/s", "goodput, " + percent(s.good_share) + " of requests");
  tile(brief(s.ttft.median), "ms", "TTFT median; p99 " + brief(s.ttft.p99) + " ms");
  tile(brief(s.tpot.median), "ms", "TPOT median; p99 " + brief(s.tpot.p99) + " ms");
  tile(brief(s.itl.max), "ms", "worst gap between tokens");
  tile(fixed(100 * s.cached_share(), 1), "%", "of prompt tokens from the cache");
  out << "</section>\n";
}

void write_latency_table(const Summary& s, std::ostream& out) {
  out << "<h2>Latency</h2>\n<div class=\"table\"><table>\n<thead><tr><th scope=\"col\">milliseconds</th>";
  for (const char* column : {"mean", "std", "median", "p90", "p95", "p99", "max", "values"})
    out << "<th scope=\"col\">" << column << "</th>";
  out << "</tr></thead>\n<tbody>\n";
  for (const LatencyRow& row : latency_rows(s)) {
    const Distribution& d = *row.values;
    out << "<tr><th scope=\"row\" title=\"" << escaped(row.definition) << "\">" << escaped(row.title) << "</th>";
    for (const double value : {d.mean, d.std, d.median, d.p90, d.p95, d.p99, d.max})
      out << "<td>" << (d.count > 0 ? brief(value) : "-") << "</td>";
    out << "<td>" << grouped(d.count) << "</td></tr>\n";
  }
  out << "</tbody></table></div>\n";
}

void write_figure(const Chart& chart, const std::string& note, std::ostream& out) {
  out << "<figure>\n<figcaption>" << escaped(chart.title) << " <span>" << escaped(note) << "</span></figcaption>\n"
      << svg(chart) << "</figure>\n";
}

void write_curves(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out) {
  const Latencies latencies = latencies_of(run.records);
  const std::vector<LatencyRow> rows = latency_rows(summary);
  const std::tuple<const std::vector<double>*, std::optional<double>> drawn[] = {
      {&latencies.ttft, head.goodput.ttft_ms},
      {&latencies.tpot, head.goodput.tpot_ms},
      {&latencies.itl, std::nullopt},
      {&latencies.e2el, head.goodput.e2el_ms}};
  if (latencies.e2el.empty()) return;
  out << "<h2>How latencies are distributed</h2>\n<div class=\"columns\">\n";
  for (std::size_t i = 0; i < std::size(drawn); ++i)
    if (const auto& [values, limit] = drawn[i]; !values->empty())
      write_figure(cdf_chart(rows[i], *values, limit), rows[i].definition, out);
  out << "</div>\n";
}

void write_table_of(const Table& table, std::ostream& out) {
  out << "<h3>" << escaped(table.title) << "</h3>\n<div class=\"table\"><table>\n<thead><tr>";
  for (const std::string& column : table.columns) out << "<th scope=\"col\">" << escaped(column) << "</th>";
  out << "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out << "<tr><th scope=\"row\">" << escaped(row.front()) << "</th>";
    for (std::size_t i = 1; i < row.size(); ++i) out << "<td>" << escaped(row[i]) << "</td>";
    out << "</tr>\n";
  }
  out << "</tbody></table></div>\n";
  if (!table.note.empty()) out << "<p class=\"soft\">" << escaped(table.note) << "</p>\n";
}

// The lines that belong to the tenants, in all charts.
void write_tenant_key(const Run& run, std::ostream& out) {
  out << "<ul class=\"lines\">\n";
  for (std::size_t i = 0; i < std::min(run.tenants.size(), kMaxTenantLines); ++i) {
    const Line line = tenant_line(run, i);
    out << "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><line x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\" "
           "class=\"line c"
        << line.color << " d" << line.dash << "\"/></svg> " << escaped(line.label) << "</li>\n";
  }
  if (run.tenants.size() > kMaxTenantLines)
    out << "<li>and " << run.tenants.size() - kMaxTenantLines << " that are not drawn</li>\n";
  out << "</ul>\n";
}

void write_tenants(const ReportHead& head, const Run& run, std::ostream& out) {
  if (run.tenants.empty()) return;
  out << "<h2>Tenants</h2>\n";
  if (const auto fairness = fairness_of(run))
    out << "<figure>\n<figcaption>Share of the " << (fairness->of_time ? "time of computing" : "tokens")
        << " <span>The line is the share due by weight. Jain's index "
        << fixed(fairness->of_time.value_or(fairness->of_tokens).jain, 4)
        << (fairness->of_time ? ", of tokens " + fixed(fairness->of_tokens.jain, 4) : "") << "</span></figcaption>\n"
        << shares_svg(run, *fairness) << "</figure>\n";
  write_tenant_key(run, out);
  const std::vector<Chart> charts = tenant_charts(run);
  write_figure(charts.front(), charts.front().summary, out);
  out << "<div class=\"columns\">\n";
  for (std::size_t i = 1; i < charts.size(); ++i) write_figure(charts[i], charts[i].summary, out);
  out << "</div>\n";
  for (const Table& table : tenant_tables(head, run)) write_table_of(table, out);
}

void write_timeline(const Run& run, std::ostream& out) {
  if (run.records.empty()) return;
  out << "<h2>The run over time</h2>\n";
  for (const Chart& chart : timeline_charts(run)) write_figure(chart, chart.summary, out);
}

void write_pairs(const char* heading, const std::vector<std::pair<std::string, std::string>>& lines,
                 std::ostream& out) {
  if (lines.empty()) return;
  out << "<h2>" << heading << "</h2>\n<div class=\"table\"><table class=\"pairs\"><tbody>\n";
  for (const auto& [label, value] : lines)
    out << "<tr><th scope=\"row\">" << escaped(label) << "</th><td>" << escaped(value) << "</td></tr>\n";
  out << "</tbody></table></div>\n";
}

// The server's messages to requests that were not served, the most frequent first.
void write_messages(const Run& run, std::ostream& out) {
  std::map<std::pair<std::string, std::string>, std::size_t> found;
  for (const RequestRecord& record : run.records)
    if (verdict(record) == Verdict::refused || verdict(record) == Verdict::failed)
      ++found[{record.num_ends == 0 ? "never ended" : record.outcome, record.message.substr(0, kMaxMessageBytes)}];
  if (found.empty()) return;
  std::vector<std::pair<std::size_t, std::pair<std::string, std::string>>> sorted;
  sorted.reserve(found.size());
  for (const auto& [what, count] : found) sorted.emplace_back(count, what);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  out << "<h2>What the server said</h2>\n<div class=\"table\"><table class=\"words\"><thead><tr><th scope=\"col\">"
         "outcome</th><th scope=\"col\">message</th><th scope=\"col\" "
         "class=\"count\">requests</th></tr></thead><tbody>\n";
  for (std::size_t i = 0; i < std::min(sorted.size(), kMaxMessages); ++i)
    out << "<tr><td>" << escaped(sorted[i].second.first) << "</td><td>" << escaped(sorted[i].second.second)
        << "</td><td class=\"count\">" << grouped(sorted[i].first) << "</td></tr>\n";
  out << "</tbody></table></div>\n";
  if (sorted.size() > kMaxMessages)
    out << "<p class=\"soft\">and " << grouped(sorted.size() - kMaxMessages) << " other messages</p>\n";
}

}  // namespace

void write_html(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out) {
  // No element of this page loads anything; the policy makes the browser enforce that.
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
         "<title>"
      << escaped(title_of(head)) << "</title>\n<style>" << kPageStyle << "</style>\n</head>\n<body>\n<main>\n<h1>"
      << escaped(title_of(head)) << "</h1>\n<p class=\"soft\">" << escaped(subtitle(head, summary)) << "</p>\n";
  write_badges(summary, out);
  write_tiles(summary, out);
  write_tenants(head, run, out);
  write_latency_table(summary, out);
  write_curves(head, run, summary, out);
  write_timeline(run, out);
  write_pairs("What came of it", findings(run, summary, head.goodput), out);
  write_messages(run, out);
  write_pairs("Configuration", run.description, out);
  out << "<p class=\"soft note\">Latencies count from the intended send and are of completed requests into which no "
         "fault was injected. Percentiles interpolate linearly between ranks, as "
         "numpy's.</p>\n</main>\n</body>\n</html>\n";
}

}  // namespace troupe::load
