#include "bench/load/report/goals.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::load;

namespace {

RequestRecord answered() {
  RequestRecord record;
  record.end_s = 0.25;
  record.arrivals = {{0.125, 1}, {0.25, 1}};
  record.completion_tokens = 2;
  record.num_ends = 1;
  record.kind = EndKind::done;
  record.outcome = "length";
  return record;
}

// A run of two answers that misses nothing.
Run good_run() {
  Run run;
  run.records = {answered(), answered()};
  run.duration_s = 1;
  run.account = ServerAccount{.at_rest = true, .received = 2, .ended = 2};
  return run;
}

std::vector<std::string> missed(const Run& run, const Goals& goals = {}) {
  return missed_goals(run, summarize(run, goals.limits), goals);
}

bool misses(const std::string& part, const Run& run, const Goals& goals = {}) {
  const auto list = missed(run, goals);
  INFO((list.empty() ? "no goal was missed" : list.front()));
  CHECK(list.size() == 1);
  return list.size() == 1 && list.front().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run without errors misses no goal") { CHECK(missed(good_run()).empty()); }

TEST_CASE("goals that always hold: one end for each request, equal answers, no block held") {
  CHECK(misses("nothing was sent", Run{}));
  Run run = good_run();
  SECTION("an end that never came") {
    run.records[1].num_ends = 0;
    run.records[1].kind = EndKind::none;
    CHECK(misses("1 requests never ended", run, {.max_failed = {}}));
  }
  SECTION("two ends") {
    run.records[1].num_ends = 2;
    CHECK(misses("ended more than once", run));
  }
  SECTION("frames after the end") {
    run.stray_frames = 3;
    CHECK(misses("3 frames came for requests that had ended", run));
  }
  SECTION("an end that the server did not count") {
    run.account->ended = 1;
    CHECK(misses("2 requests came and 1 ended", run));
    run.account->ended = 3;
    CHECK(misses("2 requests came and 3 ended", run));
    run.account->requests_before = 1;  // a request of another client ended in this run
    CHECK(missed(run).empty());
    run.account->at_rest = false;  // other clients' requests run: the counters say nothing about this run
    run.account->ended = 1;
    run.account->requests_left = 1;
    CHECK(missed(run).empty());
  }
  SECTION("blocks held while nothing runs") {
    run.account->at_rest = false;
    run.account->blocks_held = 4;
    CHECK(misses("holds 4 blocks though nothing runs", run));
  }
  SECTION("an answer that is not the one of the request alone") {
    run.records[0].verified = true;
    run.records[1].verified = false;
    CHECK(misses("1 of 2 answers differ", run));
  }
  SECTION("garbage connections that are not closed") {
    run.garbage = {.sent = 2, .closed = 1, .refused = 0, .ignored = 1};
    CHECK(misses("1 of 2 connections that sent garbage", run));
  }
  SECTION("a failure") {
    run.records[0].kind = EndKind::failed;
    run.records[0].outcome = "internal";
    CHECK(misses("1 requests failed, of which 0 may", run));
    CHECK(missed(run, {.max_failed = 1}).empty());
  }
}

TEST_CASE("refusals miss a goal only if a bound is stated") {
  Run run = good_run();
  run.records[1].kind = EndKind::refused;
  run.records[1].outcome = "queue_full";
  run.records[1].arrivals.clear();
  CHECK(missed(run).empty());
  CHECK(misses("1 requests were refused, of which 0 may", run, {.max_refused = 0}));
}

TEST_CASE("the stated share of the requests must be within the limits") {
  Run run = good_run();
  run.records[1].arrivals[0].at_s = 0.2;
  CHECK(missed(run, {.limits = {.ttft_ms = 150}, .good_share = 0.5}).empty());
  CHECK(misses("50 % were within the limits, less than 75 %", run, {.limits = {.ttft_ms = 150}, .good_share = 0.75}));
}

TEST_CASE("limits are written as for vllm bench serve") {
  const auto limits = parse_goodput({"ttft:500,tpot:50.5", "e2el:5000"});
  REQUIRE(limits);
  CHECK(limits->ttft_ms == 500.0);
  CHECK(limits->tpot_ms == 50.5);
  CHECK(limits->e2el_ms == 5000.0);
  for (const char* text : {"", "ttft", "ttft:", "ttft:0", "ttft:-1", "itl:5", "ttft:5,", "ttft:5 tpot:6"}) {
    INFO(text);
    const auto wrong = parse_goodput({text});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().message.find("--goodput: '") == 0);
  }
}
