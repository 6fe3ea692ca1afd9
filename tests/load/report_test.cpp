// The reports of a run: the same figures in all three, and text from outside is escaped.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "bench/load/report/report.h"
#include "bench/load/report/report_chart.h"
#include "bench/load/report/report_curves.h"
#include "bench/load/report/report_format.h"
#include "tests/load/records.h"

using namespace troupe::load;
using nlohmann::json;
using troupe::load::test::completed;
using troupe::load::test::ended;

namespace {

using Writer = void (*)(const ReportHead&, const Run&, const Summary&, std::ostream&);

std::string written(Writer write, const ReportHead& head, const Run& run) {
  std::ostringstream out;
  write(head, run, summarize(run, head.goodput), out);
  return out.str();
}

// Three completed requests, one refusal, one failure; samples of a server that made 30 steps of 20 ms.
Run small_run() {
  Run run;
  run.description = {{"clients", "3"}, {"seed", "7"}};
  run.duration_s = 2;
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto record = completed({.intended_s = 0.1 * i,
                             .arrivals = {{0.5 + 0.1 * i, 1}, {0.6 + 0.1 * i, 1}, {0.8 + 0.1 * i, 2}},
                             .end_s = 0.8 + 0.1 * i,
                             .prompt_tokens = 100,
                             .cached_tokens = 64});
    record.client = i;
    run.records.push_back(record);
  }
  run.records.push_back(ended(EndKind::refused, "queue_full"));
  run.records.back().message = "1,024 requests wait";
  run.records.push_back(ended(EndKind::failed, "internal"));
  for (std::size_t i = 0; i < run.records.size(); ++i) run.records[i].index = i;
  run.samples = {{.at_s = 0, .running = 0}, {.at_s = 1, .running = 3, .waiting = 1, .steps = 30, .step_seconds = 0.6}};
  run.own_cpu_seconds = 0.1;
  return run;
}

ReportHead head_of(Goodput goodput = {}) {
  ReportHead head;
  head.date = "20260101-120000";
  head.endpoint = "/run/troupe/troupe.sock";
  head.model = "stories";
  head.concurrency = 3;
  head.seed = 7;
  head.goodput = goodput;
  return head;
}

}  // namespace

TEST_CASE("numbers have three significant digits and groups of thousands") {
  CHECK(brief(0) == "0.00");
  CHECK(brief(1e-14) == "0.00");
  CHECK(brief(0.0421) == "0.042");
  CHECK(brief(0.0999) == "0.10");
  CHECK(brief(9.994) == "9.99");
  CHECK(brief(9.996) == "10.0");
  CHECK(brief(99.96) == "100");
  CHECK(brief(1234.6) == "1,235");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(counts({{"a", 1}, {"b", 30}, {"c", 1}}) == "b 30, a 1, c 1");
  CHECK(limits({.ttft_ms = 500, .e2el_ms = 2500}) == "TTFT <= 500 ms, E2EL <= 2,500 ms");
}

TEST_CASE("the text has configuration, results and latencies") {
  const std::string text = written(write_text, head_of({.ttft_ms = 550}), small_run());
  INFO(text);
  for (const char* part :
       {"stories at /run/troupe/troupe.sock", "clients", "3 of 5 requests in 2.00 s", "1: queue_full 1",
        "1: internal 1", "every request exactly once", "192 of the tokens in (64.0 %)", "30 of 20.0 ms each",
        "1.50 requests/s within", "TTFT <= 550 ms (60.0 % of the undisturbed)", "p99", "ITL:"})
    CHECK(text.find(part) != std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 100);
    CHECK((line.empty() || line.back() != ' '));
  }
}

TEST_CASE("the text marks lost requests and answers that differ") {
  Run run = small_run();
  run.records[0].num_ends = 2;
  run.records[1].verified = false;
  run.records[2].verified = true;
  const std::string text = written(write_text, head_of(), run);
  INFO(text);
  CHECK(text.find("0 never, 1 more than once: the server is at fault") != std::string::npos);
  CHECK(text.find("1 of 2 answers equal to the same request run alone; 1 DIFFER") != std::string::npos);
}

TEST_CASE("the JSON has the keys of vllm bench serve, with lists of one entry per request") {
  const json report = json::parse(written(write_json, head_of({.ttft_ms = 550}), small_run()));
  std::set<std::string> expected = {"date",
                                    "endpoint_type",
                                    "backend",
                                    "label",
                                    "model_id",
                                    "tokenizer_id",
                                    "num_prompts",
                                    "request_rate",
                                    "burstiness",
                                    "max_concurrency",
                                    "duration",
                                    "completed",
                                    "failed",
                                    "total_input_tokens",
                                    "total_output_tokens",
                                    "request_throughput",
                                    "request_goodput",
                                    "output_throughput",
                                    "total_token_throughput",
                                    "max_output_tokens_per_s",
                                    "max_concurrent_requests",
                                    "input_lens",
                                    "output_lens",
                                    "ttfts",
                                    "itls",
                                    "latencies",
                                    "start_times",
                                    "queue_times",
                                    "errors",
                                    "troupe"};
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"})
    for (const char* statistic : {"mean", "median", "std", "p50", "p90", "p95", "p99", "max"})
      expected.insert(std::string(statistic) + "_" + metric + "_ms");
  std::set<std::string> found;
  for (const auto& [key, value] : report.items()) found.insert(key);
  CHECK(found == expected);
  CHECK(report["request_rate"] == "inf");
  CHECK(report["completed"] == 3);
  CHECK(report["failed"] == 2);  // as vllm counts: whatever did not complete
  CHECK(report["total_output_tokens"] == 12);
  CHECK(report["request_goodput"] == 1.5);
  CHECK(report["mean_ttft_ms"].get<double>() == Approx(500));
  for (const char* list :
       {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors"})
    CHECK(report[list].size() == 5);
  CHECK(report["itls"][0].size() == 2);
  CHECK(report["itls"][0][1].get<double>() == Approx(0.2));
  CHECK(report["errors"][3] == "queue_full: 1,024 requests wait");
  CHECK(report["errors"][0] == "");
}

TEST_CASE("the JSON keeps every request and sample, so that a run can be judged again") {
  const json ours = json::parse(written(write_json, head_of(), small_run()))["troupe"];
  CHECK(ours["requests"].size() == 5);
  CHECK(ours["requests"][0]["arrivals"] == json::parse("[[0.5,1],[0.6,1],[0.8,2]]"));
  CHECK(ours["requests"][3]["kind"] == "refused");
  CHECK(ours["requests"][0]["verified"].is_null());
  CHECK(ours["samples"][1]["waiting"] == 1);
  CHECK(ours["refusals"] == json{{"queue_full", 1}});
  CHECK(ours["exactly_once"]["held"] == true);
  CHECK(ours["description"]["seed"] == "7");
  CHECK(ours["mean_step_ms"].get<double>() == Approx(20));
}

TEST_CASE("no text from a server breaks the JSON") {
  Run run = small_run();
  run.records[3].message = "quote \" newline \n nul \x01 not UTF-8 \xff\xfe";
  const json report = json::parse(written(write_json, head_of(), run));
  CHECK(report["errors"][3] == "queue_full: quote \" newline \n nul \x01 not UTF-8 \xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("the page draws every latency, the timeline and what was refused, and loads nothing") {
  const std::string page = written(write_html, head_of({.ttft_ms = 550}), small_run());
  for (const char* part :
       {"id=\"cdf-ttft-title\"", "id=\"cdf-tpot-title\"", "id=\"cdf-itl-title\"", "id=\"cdf-e2el-title\"",
        "id=\"requests-desc\"", "id=\"steps-desc\"", "id=\"tokens-desc\"", "id=\"refusals-desc\"", "limit 550 ms",
        "prefers-color-scheme: dark", "queue_full", "1,024 requests wait", "3 of 5 completed", "1 failed"})
    CHECK(page.find(part) != std::string::npos);
  for (const char* part : {"http://", "https://", "<script", "url(", "@import", " src=", " href=", "nan", "inf\""})
    CHECK(page.find(part) == std::string::npos);
}

TEST_CASE("text from outside is escaped on the page") {
  const std::string evil = "</title><script>alert('x')</script>\"&\xff\x01";
  Run run = small_run();
  run.description.emplace_back(evil, evil);
  run.records[3].outcome = run.records[3].message = evil;
  run.records[4].outcome = run.records[4].message = evil;
  ReportHead head = head_of();
  head.title = head.endpoint = head.model = head.date = evil;
  const std::string page = written(write_html, head, run);
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("'x'") == std::string::npos);
  CHECK(page.find('\xff') == std::string::npos);
  CHECK(page.find('\x01') == std::string::npos);
  CHECK(page.find("&lt;/title&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;\xef\xbf\xbd\xef\xbf\xbd") !=
        std::string::npos);
}

TEST_CASE("a page of many requests is not much larger than one of few") {
  Run run = small_run();
  const RequestRecord one = run.records[0];
  for (int i = 0; i < 20000; ++i) {
    run.records.push_back(one);
    run.records.back().intended_s = 1e-4 * i;
    run.samples.push_back({.at_s = 1 + 1e-4 * i, .running = static_cast<std::uint64_t>(i % 7), .blocks_total = 8});
  }
  CHECK(written(write_html, head_of(), run).size() < 200'000);
}

TEST_CASE("a latency curve passes through the percentiles that are marked on it") {
  std::vector<double> values;
  for (int i = 0; i <= 400; ++i) values.push_back(i * 0.5);
  const Distribution d = distribution_of(values);
  const Chart chart = cdf_chart({"TTFT", "ttft", "Time to first token", "", &d}, values, 250);
  REQUIRE(chart.marks.size() == 3);
  CHECK(chart.marks[0].at.x == 100);
  CHECK(chart.marks[2].label == "p99  198 ms");
  for (const Mark& mark : chart.marks) {
    const auto& points = chart.lines.at(0).points;
    CHECK(std::any_of(points.begin(), points.end(), [&](const Point& point) {
      return point.x == Approx(mark.at.x) && point.y == Approx(mark.at.y);
    }));
  }
  CHECK(chart.x.logarithmic);  // 2 ms to 250 ms: the limit is in view
  CHECK(chart.x.max >= 250);
}

TEST_CASE("ticks are round numbers within their axis") {
  CHECK(ticks({.min = 0, .max = 10}, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(ticks({.min = 0, .max = 108}, 4) == std::vector<double>{0, 50, 100});
  CHECK(ticks({.min = 3, .max = 250, .logarithmic = true}, 4) == std::vector<double>{5, 10, 20, 50, 100, 200});
  CHECK(ticks({.min = 0.5, .max = 2000, .logarithmic = true}, 4) == std::vector<double>{1, 10, 100, 1000});
  CHECK(std::signbit(ticks({.min = 0, .max = 1}, 4).front()) == false);
  CHECK(tick_label(0.25, Unit::milliseconds) == "250 \xc2\xb5s");
  CHECK(tick_label(20, Unit::milliseconds) == "20 ms");
  CHECK(tick_label(1500, Unit::milliseconds) == "1.5 s");
  CHECK(tick_label(12000, Unit::plain) == "12,000");
}

TEST_CASE("a timeline keeps the peaks when it is thinned") {
  Run run = small_run();
  run.samples.clear();
  for (int i = 0; i < 5000; ++i)
    run.samples.push_back({.at_s = i * 1e-3, .running = i == 2500 ? 99u : 1u, .steps = static_cast<std::uint64_t>(i)});
  const Chart requests = timeline_charts(run).front();
  CHECK(requests.lines.at(0).points.size() <= 500);
  CHECK(requests.y.max > 99);
}

TEST_CASE("without samples of the server the timeline is drawn from what the clients saw") {
  Run run = small_run();
  run.samples.clear();
  const std::vector<Chart> charts = timeline_charts(run);
  CHECK(charts.front().lines.at(0).label == "receiving");
  CHECK(charts.front().y.max > 3);
  CHECK(charts.front().y.max < 4);
}

TEST_CASE("a run without requests has a report") {
  CHECK(written(write_html, {}, {}).find("Load test") != std::string::npos);
  CHECK_FALSE(written(write_text, {}, {}).empty());
  CHECK(json::parse(written(write_json, {}, {}))["completed"] == 0);
}
