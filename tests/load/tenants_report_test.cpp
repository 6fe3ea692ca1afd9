// The reports of a run with tenants: the same figures in all three.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/load/report/report.h"
#include "bench/load/report/report_curves.h"
#include "bench/load/report/report_tenants.h"
#include "tests/load/records.h"

using namespace troupe::load;
using nlohmann::json;
using troupe::load::test::completed;
using troupe::load::test::ended;
using troupe::load::test::run_of_tenants;

namespace {

using Writer = void (*)(const ReportHead&, const Run&, const Summary&, std::ostream&);

std::string tenants_written(Writer write, const ReportHead& head, const Run& run) {
  std::ostringstream out;
  write(head, run, summarize(run, head.goodput), out);
  return out.str();
}

// a is served 2 tokens and 2 requests, one of them refused before; b, of weight 3, 4 tokens and is refused once.
Run two_tenants() {
  RequestRecord retried = completed({.intended_s = 1, .arrivals = {{2, 1}}, .end_s = 4});
  retried.retries = 1;
  RequestRecord refused = ended(EndKind::refused, "quota");
  refused.limit = "max_queued";
  refused.end_s = 1;
  Run run = run_of_tenants({{completed({.arrivals = {{1, 1}}, .end_s = 1}), retried},
                            {completed({.arrivals = {{1, 2}, {3, 2}}, .end_s = 4}), refused}});
  run.tenants[0].uid = 1001;
  run.tenants[1].weight = 3;
  run.tenants[1].limits.ttft_ms = 5000;
  return run;
}

// b alone: twice as fast.
ReportHead compared(const Run& run) {
  ReportHead head;
  head.endpoint = "/run/troupe/troupe.sock";
  Summary alone = summarize_tenant(run, run.tenants[1]);
  alone.output_throughput = 2;
  head.alone = {std::nullopt, alone};
  return head;
}

}  // namespace

TEST_CASE("the text has a row for each tenant, shares, refusals by limit, retries, and the comparison with alone") {
  const Run run = two_tenants();
  const std::string text = tenants_written(write_text, compared(run), run);
  INFO(text);
  for (const char* row : {"\n  a       1001     2          2        0       0       0.50",
                          "\n  b          -     2          1        1       0",
                          "\n  a            1     25.0 %      0.50     33.3 %  +33.3 %",
                          "\n  b            3     75.0 %      1.00     66.7 %  -11.1 %",
                          "per weight: Jain's index 0.9615", "\n  b       quota (max_queued)         1",
                          "\n  a             1         1", "\n  b       tokens/s out   2.00    1.00  0.500"})
    CHECK_THAT(text, Catch::Contains(row));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 100);
    CHECK((line.empty() || line.back() != ' '));
  }
}

TEST_CASE("goodput names the limits of each tenant, or those that all have") {
  Run run = two_tenants();
  CHECK_THAT(tenants_written(write_text, {}, run), Catch::Contains("requests/s within b: TTFT <= 5,000 ms ("));
  run.tenants[0].limits.tpot_ms = 50;
  CHECK_THAT(tenants_written(write_text, {}, run), Catch::Contains("within a: TPOT <= 50.0 ms; b: TTFT <= 5,000 ms ("));
  run.tenants[0].limits = run.tenants[1].limits;
  CHECK_THAT(tenants_written(write_text, {}, run), Catch::Contains("requests/s within TTFT <= 5,000 ms ("));
}

TEST_CASE("the JSON has every tenant's figures, alone too if asked for, and the shares") {
  const Run run = two_tenants();
  const json ours = json::parse(tenants_written(write_json, compared(run), run))["troupe"];
  REQUIRE(ours["tenants"].size() == 2);
  const json &a = ours["tenants"][0], &b = ours["tenants"][1];
  CHECK(a["name"] == "a");
  CHECK(a["uid"] == 1001);
  CHECK(b["uid"].is_null());
  CHECK(b["weight"] == 3);
  CHECK(b["first_request"] == 2);
  CHECK(a["together"]["retries_admitted"] == 1);
  CHECK(a["together"]["good_share"].is_null());
  CHECK(b["together"]["good_share"] == 0.5);
  CHECK(b["together"]["refusals"] == json{{"quota (max_queued)", 1}});
  CHECK(b["together"]["refused_without_retry_after"] == 1);
  CHECK(b["together"]["p99_ttft_ms"] == 1000);
  CHECK(a["alone"].is_null());
  CHECK(b["alone"]["output_throughput"] == 2);
  CHECK(ours["fairness"]["shares"]["b"]["due"] == 0.75);
  CHECK(ours["fairness"]["tokens"]["worst_tenant"] == "a");
  CHECK(ours["fairness"]["tokens"]["worst_deviation"].get<double>() == Approx(1.0 / 3));
  CHECK(ours["fairness"]["shares"]["b"]["tokens"]["deviation"].get<double>() == Approx(-1.0 / 9));
  CHECK(ours["fairness"]["compute_time"].is_null());
  CHECK(ours["fairness"]["shares"]["b"]["compute_time"].is_null());
  CHECK(ours["requests"][3]["limit"] == "max_queued");
}

TEST_CASE("with receipts the reports have the shares of the time of computing, too") {
  Run run = two_tenants();
  for (RequestRecord& record : run.records)
    if (record.kind == EndKind::done) record.compute_s = record.index == 0 ? 0.5 : 0.25;
  const std::string text = tenants_written(write_text, {}, run);
  CHECK_THAT(text,
             Catch::Contains("of time") && Catch::Contains("Of the time of computing, by receipts: Jain's index"));
  const json fairness = json::parse(tenants_written(write_json, {}, run))["troupe"]["fairness"];
  const json &a = fairness["shares"]["a"]["compute_time"], &b = fairness["shares"]["b"]["compute_time"];
  CHECK(a["share"].get<double>() + b["share"].get<double>() == Approx(1));
  CHECK(a["share"] != fairness["shares"]["a"]["tokens"]["share"]);
  CHECK(fairness["compute_time"]["jain"] != fairness["tokens"]["jain"]);
  CHECK_THAT(tenants_written(write_html, {}, run), Catch::Contains("Share of the time of computing"));
}

TEST_CASE("the page draws shares, tokens over time and distributions of the tenants, and escapes their names") {
  Run run = two_tenants();
  run.tenants[0].name = "<b>'x'";
  const std::string page = tenants_written(write_html, compared(run), run);
  for (const char* part :
       {"<h2>Tenants</h2>", "shares-title", "tenants-tokens-title", "tenants-ttft-title", "tenants-itl-title",
        "&lt;b&gt;&#39;x&#39;", "33.3 % of 25.0 % due", "class=\"limit\"", "Beside the others and alone"})
    CHECK_THAT(page, Catch::Contains(part));
  for (const char* part : {"<b>'x'", " nan", "\"nan", "Lnan", "inf\"", "<script", "http://"})
    CHECK(page.find(part) == std::string::npos);
}

TEST_CASE("a tenant without values is in no distribution, and keeps its line's look in the others") {
  Run run =
      run_of_tenants({{ended(EndKind::refused, "quota")}, {completed({.arrivals = {{1, 1}, {2, 1}}, .end_s = 2})}, {}});
  const std::vector<Chart> charts = tenant_charts(run);
  REQUIRE(charts.size() == 3);
  CHECK(charts[0].lines.size() == 3);
  REQUIRE(charts[1].lines.size() == 1);
  CHECK(charts[1].lines[0].color == tenant_line(run, 1).color);
  CHECK(tenant_line(run, 1).color != tenant_line(run, 0).color);
  run.records[1].arrivals.clear();
  CHECK(tenant_charts(run).size() == 1);
}

TEST_CASE("a run of many tenants, or of tenants without requests, has a report") {
  Run run = run_of_tenants(std::vector<std::vector<RequestRecord>>(
      20, {completed({.arrivals = {{1, 1}, {2, 1}}, .end_s = 2, .prompt_tokens = 8})}));
  CHECK_THAT(tenants_written(write_html, {}, run), Catch::Contains("and 2 that are not drawn"));
  CHECK(json::parse(tenants_written(write_json, {}, run))["troupe"]["fairness"]["tokens"]["jain"].get<double>() ==
        Approx(1));
  run = run_of_tenants({{}, {}});
  CHECK_THAT(tenants_written(write_text, {}, run), Catch::Contains("\n  a         -     0"));
  CHECK(json::parse(tenants_written(write_json, {}, run))["troupe"]["fairness"].is_null());
  CHECK_THAT(tenants_written(write_html, {}, run), Catch::Contains("<h2>Tenants</h2>"));
}

TEST_CASE("a run without tenants has no tables and no charts of them") {
  Run run;
  run.records = {completed({.arrivals = {{1, 1}}, .end_s = 1})};
  CHECK(tenant_tables({}, run).empty());
  CHECK(tenant_charts(run).empty());
  CHECK(tenants_written(write_html, {}, run).find("Tenants") == std::string::npos);
}
