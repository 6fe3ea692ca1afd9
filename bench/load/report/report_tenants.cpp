#include "bench/load/report/report_tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/load/report/report_format.h"

namespace troupe::load {
namespace {

std::string signed_percent(double share) { return fmt::format("{}{}", share < 0 ? "" : "+", percent(share)); }

std::vector<Summary> summaries_of(const Run& run) {
  std::vector<Summary> all;
  all.reserve(run.tenants.size());
  for (const Tenant& tenant : run.tenants) all.push_back(summarize_tenant(run, tenant));
  return all;
}

Table requests_table(const Run& run, const std::vector<Summary>& summaries) {
  Table table{.title = "Tenants",
              .note = "tokens per second of each tenant's own time, from its first request to its last end",
              .columns = {"tenant", "uid", "sent", "completed", "refused", "failed", "tok/s out", "tok/s in", "good/s",
                          "good"}};
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const Tenant& tenant = run.tenants[i];
    const Summary& s = summaries[i];
    table.rows.push_back({tenant.name, tenant.uid ? std::to_string(*tenant.uid) : "-", grouped(s.num_requests),
                          grouped(s.completed), grouped(s.refused), grouped(s.failed), brief(s.output_throughput),
                          brief(s.input_throughput), s.request_goodput ? brief(*s.request_goodput) : "-",
                          s.request_goodput ? percent(s.good_share) : "-"});
  }
  return table;
}

Table latencies_table(const Run& run, const std::vector<Summary>& summaries) {
  Table table{.title = "Latency by tenant (ms)",
              .columns = {"tenant", "latency", "mean", "p50", "p95", "p99", "max", "values"}};
  for (std::size_t i = 0; i < summaries.size(); ++i)
    for (const LatencyRow& row : latency_rows(summaries[i])) {
      const Distribution& d = *row.values;
      if (d.count == 0) continue;
      table.rows.push_back({run.tenants[i].name, row.name, brief(d.mean), brief(d.median), brief(d.p95), brief(d.p99),
                            brief(d.max), grouped(d.count)});
    }
  return table;
}

std::string evenness_note(const Run& run, const Fairness& fairness, const Evenness& of, Served Share::*part) {
  const Share& worst = fairness.shares[of.worst];
  return fmt::format("Jain's index {}, furthest from its due share: {}, {}", fixed(of.jain, 4),
                     run.tenants[worst.tenant].name, signed_percent((worst.*part).deviation));
}

Table shares_table(const Run& run, const Fairness& fairness) {
  Table table{.title = "Shares",
              .note = fmt::format(
                  "what was computed from {} to {} s, while every tenant had requests. Of tokens (prompts without "
                  "cached tokens, and answers), per weight: {}",
                  brief(fairness.from_s), brief(fairness.to_s),
                  evenness_note(run, fairness, fairness.of_tokens, &Share::tokens)),
              .columns = {"tenant", "weight", "due share", "tokens/s", "of tokens", "off by"}};
  if (fairness.of_time) {
    table.note += fmt::format(". Of the time of computing, by receipts: {}",
                              evenness_note(run, fairness, *fairness.of_time, &Share::time));
    table.columns.insert(table.columns.end(), {"s/s", "of time", "off by"});
  }
  for (const Share& share : fairness.shares) {
    const Tenant& tenant = run.tenants[share.tenant];
    std::vector<std::string> row{tenant.name, fmt::format("{:g}", tenant.weight), percent(share.due)};
    const auto add = [&](const Served& served, std::string per_s) {
      row.insert(row.end(), {std::move(per_s), percent(served.share), signed_percent(served.deviation)});
    };
    add(share.tokens, brief(share.tokens.per_s));
    if (fairness.of_time) add(share.time, fixed(share.time.per_s, 3));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table refusals_table(const Run& run, const std::vector<Summary>& summaries) {
  Table table{.title = "Refusals by tenant", .columns = {"tenant", "outcome (limit)", "requests"}};
  for (std::size_t i = 0; i < summaries.size(); ++i)
    for (const auto& [why, count] : summaries[i].limits_met)
      table.rows.push_back({run.tenants[i].name, why, grouped(count)});
  return table;
}

Table retries_table(const Run& run, const std::vector<Summary>& summaries) {
  Table table{.title = "Retries by tenant",
              .note = "sent again when the server's retry_after was over; admitted: not refused once more",
              .columns = {"tenant", "retries", "admitted", "share", "refused without retry_after"}};
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const Summary& s = summaries[i];
    if (s.retries == 0 && s.without_advice == 0) continue;
    table.rows.push_back(
        {run.tenants[i].name, grouped(s.retries), grouped(s.retries_admitted),
         s.retries > 0 ? percent(static_cast<double>(s.retries_admitted) / static_cast<double>(s.retries)) : "-",
         grouped(s.without_advice)});
  }
  return table;
}

Table alone_table(const ReportHead& head, const Run& run, const std::vector<Summary>& summaries) {
  Table table{.title = "Beside the others and alone",
              .note = "ratio: beside the others over alone; latencies in milliseconds",
              .columns = {"tenant", "figure", "alone", "beside", "ratio"}};
  for (std::size_t i = 0; i < std::min(head.alone.size(), summaries.size()); ++i) {
    if (!head.alone[i]) continue;
    const Summary &alone = *head.alone[i], &beside = summaries[i];
    const auto row = [&](const std::string& figure, double of_alone, double of_beside) {
      if (of_alone > 0 && of_beside > 0)
        table.rows.push_back(
            {run.tenants[i].name, figure, brief(of_alone), brief(of_beside), fixed(of_beside / of_alone, 3)});
    };
    row("tokens/s out", alone.output_throughput, beside.output_throughput);
    row("tokens/s in", alone.input_throughput, beside.input_throughput);
    row("requests/s", alone.request_throughput, beside.request_throughput);
    row("TTFT p50", alone.ttft.median, beside.ttft.median);
    row("TTFT p99", alone.ttft.p99, beside.ttft.p99);
    row("TPOT p50", alone.tpot.median, beside.tpot.median);
    row("ITL p99", alone.itl.p99, beside.itl.p99);
    row("ITL max", alone.itl.max, beside.itl.max);
    row("E2EL p50", alone.e2el.median, beside.e2el.median);
    row("E2EL p99", alone.e2el.p99, beside.e2el.p99);
  }
  return table;
}

}  // namespace

std::vector<Table> tenant_tables(const ReportHead& head, const Run& run) {
  if (run.tenants.empty()) return {};
  const std::vector<Summary> summaries = summaries_of(run);
  std::vector<Table> tables = {requests_table(run, summaries)};
  if (const auto fairness = fairness_of(run)) tables.push_back(shares_table(run, *fairness));
  tables.push_back(latencies_table(run, summaries));
  tables.push_back(alone_table(head, run, summaries));
  tables.push_back(refusals_table(run, summaries));
  tables.push_back(retries_table(run, summaries));
  std::erase_if(tables, [](const Table& table) { return table.rows.empty(); });
  return tables;
}

Line tenant_line(const Run& run, std::size_t tenant) {
  return {.label = run.tenants[tenant].name,
          .color = 1 + static_cast<int>(tenant % 6),
          .dash = static_cast<int>(tenant / 6 % 3)};
}

std::string shares_svg(const Run& run, const Fairness& fairness) {
  constexpr double kWidth = 1080, kRow = 26, kNames = 150, kNumbers = 210, kBar = 16;
  double most = 0;
  const auto part = fairness.of_time ? &Share::time : &Share::tokens;
  for (const Share& share : fairness.shares) most = std::max({most, (share.*part).share, share.due});
  const auto x = [&](double share) { return kNames + share / most * (kWidth - kNames - kNumbers); };
  const double height = kRow * static_cast<double>(fairness.shares.size()) + 6;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-labelledby=\"shares-title shares-desc\">\n<title "
      "id=\"shares-title\">Shares of the tenants</title>\n<desc id=\"shares-desc\">A bar for what each tenant was "
      "served, "
      "and a line for its due share.</desc>\n",
      kWidth, height);
  for (std::size_t i = 0; i < fairness.shares.size(); ++i) {
    const Share& share = fairness.shares[i];
    const double top = kRow * static_cast<double>(i) + 5, base = top + kBar - 3;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"end\">{}</text>\n", kNames - 8, base,
                       escaped(run.tenants[share.tenant].name));
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"bar f{}\"/>\n",
                       kNames, top, x((share.*part).share) - kNames, kBar, tenant_line(run, share.tenant).color);
    out += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" class=\"limit\"/>\n",
                       x(share.due), top - 4, top + kBar + 4);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"tick\">{} of {} due</text>\n", kWidth - kNumbers + 12,
                       base, percent((share.*part).share), percent(share.due));
  }
  return out + "</svg>\n";
}

}  // namespace troupe::load
