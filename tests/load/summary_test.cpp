// The summary of a run, on records made by hand whose figures can be calculated by hand.
#include "bench/load/report/summary.h"

#include <catch2/catch.hpp>

#include "tests/load/records.h"

using namespace troupe::load;
using troupe::load::test::completed;
using troupe::load::test::ended;

namespace {

Run run_of(std::vector<RequestRecord> records, double duration_s = 10) {
  Run run;
  run.duration_s = duration_s;
  run.records = std::move(records);
  for (std::size_t i = 0; i < run.records.size(); ++i) run.records[i].index = i;
  return run;
}

}  // namespace

TEST_CASE("percentiles interpolate linearly between ranks, as numpy does") {
  const std::vector<double> values = {1, 2, 3, 4};
  CHECK(percentile(values, 0) == 1);
  CHECK(percentile(values, 50) == 2.5);
  CHECK(percentile(values, 90) == Approx(3.7));
  CHECK(percentile(values, 99) == Approx(3.97));
  CHECK(percentile(values, 100) == 4);
  const std::vector<double> one = {7};
  CHECK(percentile(one, 99) == 7);
}

TEST_CASE("a distribution of nothing is zero, and of values has their moments") {
  CHECK(distribution_of({}).count == 0);
  CHECK(distribution_of({}).max == 0);
  const Distribution d = distribution_of(std::vector<double>{1, 2, 3, 4});
  CHECK(d.count == 4);
  CHECK(d.mean == 2.5);
  CHECK(d.std == Approx(1.1180339887));  // of the population
  CHECK(d.min == 1);
  CHECK(d.median == 2.5);
  CHECK(d.max == 4);
}

TEST_CASE("latencies count from the intended send, not from when the client came to send") {
  RequestRecord late = completed({.intended_s = 1, .arrivals = {{3, 1}, {3.5, 1}, {4, 1}}, .end_s = 4});
  late.sent_s = 2.5;
  const Summary summary = summarize(run_of({late}), {});
  CHECK(summary.ttft.mean == 2000);
  CHECK(summary.e2el.mean == 3000);
  CHECK(summary.tpot.mean == 500);
}

TEST_CASE("tokens that came together end one gap and count each for TPOT") {
  const auto record = completed({.arrivals = {{1, 1}, {2, 4}, {3, 1}}, .end_s = 3});
  const Summary summary = summarize(run_of({record}), {});
  CHECK(record.completion_tokens == 6);
  CHECK(summary.itl.count == 2);
  CHECK(summary.itl.mean == 1000);
  CHECK(summary.tpot.mean == 400);
  CHECK(summary.tokens_per_arrival == 2);
}

TEST_CASE("tokens of one read are one arrival, and there is no gap between them") {
  RequestRecord record = completed({.end_s = 3});
  for (const auto& [at_s, count] : {std::pair{1.0, 1u}, {2.0, 1u}, {2.0, 3u}, {2.000001, 1u}}) {
    add_arrival(record, at_s, count);
    record.completion_tokens += count;
  }
  REQUIRE(record.arrivals.size() == 3);
  CHECK(record.arrivals[1].num_tokens == 4);
  const Summary summary = summarize(run_of({record}), {});
  CHECK(summary.itl.count == 2);
  CHECK(summary.itl.max == 1000);
}

TEST_CASE("an answer of one token has no TPOT, an empty one no TTFT") {
  const Summary summary =
      summarize(run_of({completed({.arrivals = {{1, 1}}, .end_s = 2}), completed({.end_s = 1})}), {});
  CHECK(summary.completed == 2);
  CHECK(summary.ttft.count == 1);
  CHECK(summary.tpot.count == 0);
  CHECK(summary.e2el.count == 2);
}

TEST_CASE("every request falls into one class, and failures and refusals keep their reasons") {
  RequestRecord hung_up = ended(EndKind::lost, "connection");
  hung_up.fault = Fault::disconnect;
  RequestRecord garbage = ended(EndKind::lost, "connection");
  garbage.fault = Fault::garbage;  // beside it: no excuse
  RequestRecord cancelled = ended(EndKind::done, "cancelled");
  cancelled.fault = Fault::cancel;
  RequestRecord refused_first = ended(EndKind::refused, "quota");
  refused_first.fault = Fault::disconnect;  // which never came to happen
  const Summary summary = summarize(
      run_of({completed({.arrivals = {{1, 1}}, .end_s = 1}), ended(EndKind::done, "deadline"), hung_up, garbage,
              cancelled, refused_first, ended(EndKind::refused, "queue_full"), ended(EndKind::refused, "queue_full"),
              ended(EndKind::failed, "internal"), ended(EndKind::lost, "connection"), RequestRecord{}}),
      {});
  CHECK(summary.num_requests == 11);
  CHECK(summary.completed == 1);
  CHECK(summary.cut == 3);
  CHECK(summary.refused == 3);
  CHECK(summary.failed == 4);
  CHECK(summary.refusals == std::map<std::string, std::size_t>{{"queue_full", 2}, {"quota", 1}});
  CHECK(summary.failures == std::map<std::string, std::size_t>{{"connection", 2}, {"internal", 1}, {"never ended", 1}});
  CHECK(summary.faults == std::map<std::string, std::size_t>{{"cancel", 1}, {"disconnect", 2}, {"garbage", 1}});
}

TEST_CASE("requests that end twice or never are counted; those of a client that hung up are not") {
  RequestRecord twice = completed({.arrivals = {{1, 1}}, .end_s = 1});
  twice.num_ends = 2;
  RequestRecord hung_up;
  hung_up.fault = Fault::disconnect;
  CHECK(summarize(run_of({hung_up}), {}).ended_exactly_once());
  CHECK(summarize(run_of({twice}), {}).ended_twice == 1);
  CHECK(summarize(run_of({RequestRecord{}}), {}).never_ended == 1);
  CHECK_FALSE(summarize(run_of({twice}), {}).ended_exactly_once());
  CHECK_FALSE(summarize(run_of({RequestRecord{}}), {}).ended_exactly_once());
}

TEST_CASE("throughput counts completed requests over the whole run") {
  RequestRecord cut = ended(EndKind::done, "cancelled");
  cut.arrivals = {{1, 50}};
  cut.completion_tokens = 50;
  const auto record = completed({.arrivals = {{1, 1}, {2, 9}}, .end_s = 2, .prompt_tokens = 90, .cached_tokens = 30});
  const Summary summary = summarize(run_of({record, record, cut}, /*duration_s=*/4), {});
  CHECK(summary.request_throughput == 0.5);
  CHECK(summary.input_throughput == 45);
  CHECK(summary.output_throughput == 5);
  CHECK(summary.total_throughput == 50);
  CHECK(summary.cached_share() == Approx(1.0 / 3));
  CHECK(summary.peak_output_throughput == 52);  // what the cut one got counts for the best second
}

TEST_CASE("the best second begins anywhere, and is not below the mean") {
  const auto best = [](std::vector<Arrival> arrivals, double duration_s) {
    const double end_s = arrivals.back().at_s;
    return summarize(run_of({completed({.arrivals = std::move(arrivals), .end_s = end_s})}, duration_s), {})
        .peak_output_throughput;
  };
  CHECK(best({{0.9, 10}, {1.8, 20}, {2.9, 5}}, 4) == 30);   // from 0.9 to 1.8
  CHECK(best({{0.5, 10}, {1.5, 20}}, 4) == 20);             // a second apart is not within one
  CHECK(best({{0.1, 20}, {0.4, 30}}, 0.4) == Approx(125));  // a run of less than a second: its mean
  CHECK(best({{0.1, 70}, {1.4, 70}}, 1.4) == Approx(100));
}

TEST_CASE("goodput counts undisturbed requests that keep every stated limit, ends included") {
  const auto fast = completed({.arrivals = {{0.1, 1}, {0.2, 1}}, .end_s = 0.2});
  const auto slow = completed({.arrivals = {{0.1, 1}, {5, 1}}, .end_s = 5});
  auto disturbed = fast;
  disturbed.fault = Fault::slow_reader;
  const Run run = run_of({fast, slow, disturbed, ended(EndKind::refused, "queue_full")}, /*duration_s=*/2);
  CHECK_FALSE(summarize(run, {}).request_goodput);
  CHECK(summarize(run, {.ttft_ms = 100}).request_goodput == 1.0);
  CHECK(summarize(run, {.ttft_ms = 100, .tpot_ms = 100}).request_goodput == 0.5);
  CHECK(summarize(run, {.ttft_ms = 99}).request_goodput == 0.0);
  CHECK(summarize(run, {.e2el_ms = 5000}).request_goodput == 1.0);
  CHECK(summarize(run, {.e2el_ms = 200}).good_share == Approx(1.0 / 3));
  const auto single = completed({.arrivals = {{0.1, 1}}, .end_s = 0.1});
  CHECK(is_good(single, {.tpot_ms = 0}));                           // one token has no TPOT to miss
  CHECK_FALSE(is_good(completed({.end_s = 1}), {.ttft_ms = 500}));  // no token at all: as late as its end
}

TEST_CASE("latencies leave out requests with an injected fault") {
  auto slow_reader = completed({.arrivals = {{9, 1}}, .end_s = 9});
  slow_reader.fault = Fault::slow_reader;
  const Summary summary = summarize(run_of({slow_reader, completed({.arrivals = {{1, 1}}, .end_s = 1})}), {});
  CHECK(summary.completed == 2);
  CHECK(summary.undisturbed == 1);
  CHECK(summary.ttft.max == 1000);
}

TEST_CASE("peak concurrency is of requests that were at work at one time") {
  auto a = completed({.arrivals = {{1, 1}}, .end_s = 2});
  auto b = completed({.intended_s = 1, .arrivals = {{2, 1}}, .end_s = 3});
  auto c = completed({.intended_s = 2, .arrivals = {{3, 1}}, .end_s = 4});  // begins as `a` ends
  CHECK(summarize(run_of({a, b, c}), {}).peak_concurrency == 2);
  auto refused = ended(EndKind::refused, "queue_full");
  refused.sent_s = refused.intended_s = 1;
  refused.end_s = 1.5;
  CHECK(summarize(run_of({a, b, c, refused}), {}).peak_concurrency == 2);
}

TEST_CASE("verified and mismatched are counted, what was not compared is neither") {
  auto equal = completed({.arrivals = {{1, 1}}, .end_s = 1});
  auto different = equal;
  equal.verified = true;
  different.verified = false;
  const Summary summary = summarize(run_of({equal, equal, different, completed({.end_s = 1})}), {});
  CHECK(summary.verified == 2);
  CHECK(summary.mismatched == 1);
}

TEST_CASE("the mean step is taken from the samples, across a restart of the server too") {
  Run run;
  run.samples = {{.at_s = 0, .steps = 100, .step_seconds = 1},
                 {.at_s = 1, .steps = 110, .step_seconds = 1.5},
                 {.at_s = 2, .steps = 0, .step_seconds = 0},
                 {.at_s = 3, .steps = 10, .step_seconds = 1.5}};
  const Summary summary = summarize(run, {});
  CHECK(summary.steps == 20);
  CHECK(summary.mean_step_ms == Approx(100));
}

TEST_CASE("a run without requests has a summary of zeros") {
  const Summary summary = summarize({}, {.ttft_ms = 1});
  CHECK(summary.request_throughput == 0);
  CHECK(summary.request_goodput == 0.0);
  CHECK(summary.good_share == 0);
  CHECK(summary.cached_share() == 0);
  CHECK(summary.ended_exactly_once());
}

TEST_CASE("retries that were admitted, limits that were met and refusals without advice are counted") {
  RequestRecord served = completed({.arrivals = {{1, 1}}, .end_s = 1});
  served.retries = 3;
  RequestRecord gave_up = ended(EndKind::refused, "quota");
  gave_up.limit = "max_queued";
  gave_up.retry_after_s = 0.5;
  gave_up.retries = 2;
  const Summary summary = summarize(run_of({served, gave_up, ended(EndKind::refused, "queue_full")}), {});
  CHECK(summary.retries == 5);
  CHECK(summary.retries_admitted == 1);
  CHECK(summary.without_advice == 1);
  CHECK(summary.limits_met == std::map<std::string, std::size_t>{{"quota (max_queued)", 1}, {"queue_full", 1}});
  CHECK(summary.refusals == std::map<std::string, std::size_t>{{"quota", 1}, {"queue_full", 1}});
}

TEST_CASE("a tenant's figures are of its own requests, time and limits") {
  Run run = test::run_of_tenants(
      {{completed({.arrivals = {{1, 1}, {2, 1}}, .end_s = 2})},
       {completed({.intended_s = 4, .arrivals = {{5, 1}, {8, 4}}, .end_s = 8}), ended(EndKind::refused, "quota")}});
  run.records.back().intended_s = run.records.back().end_s = 5;
  run.tenants[0].limits.ttft_ms = 500;
  run.tenants[1].limits.ttft_ms = 1500;
  const Summary a = summarize_tenant(run, run.tenants[0]), b = summarize_tenant(run, run.tenants[1]);
  CHECK(a.num_requests == 1);
  CHECK(a.duration_s == 2);
  CHECK(a.output_throughput == 1);
  CHECK(a.good_share == 0);
  CHECK(b.refused == 1);
  CHECK(b.duration_s == 4);
  CHECK(b.output_throughput == 1.25);
  CHECK(b.request_goodput == 0.25);
  CHECK(b.good_share == 0.5);
  const Summary all = summarize(run, {});
  CHECK(all.num_requests == 3);
  CHECK(all.good_share == Approx(1.0 / 3));
}
