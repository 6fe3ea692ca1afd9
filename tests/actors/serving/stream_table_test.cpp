#include "actors/serving/stream_table.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using std::chrono::milliseconds;

constexpr std::uint32_t kQuota = 64;
const TimePoint kStart{};
TimePoint at(int ms) { return kStart + milliseconds(ms); }

// Records all calls.
struct Listener : StreamSink {
  void admitted(const Admitted& choice) override {
    CHECK(ids.empty());
    CHECK(ends.empty());
    admissions.push_back(choice.choice);
    in_reasoning |= choice.in_reasoning;
    temperature = choice.temperature;
    top_p = choice.top_p;
  }
  void tokens(TokenRun run) override {
    CHECK(ends.empty());
    CHECK(run.first_index == ids.size());
    ids.insert(ids.end(), run.ids.begin(), run.ids.end());
    text += run.text;
    if (on_tokens) on_tokens();
  }
  void end(End end) override { ends.push_back(std::move(end)); }

  std::vector<std::uint32_t> admissions;
  bool in_reasoning = false;  // of any of them
  float temperature = 0, top_p = 0;
  std::vector<TokenId> ids;
  std::string text;
  std::vector<End> ends;
  std::function<void()> on_tokens;
};

End outcome(Outcome what) {
  End end;
  end.outcome = what;
  return end;
}

Emission emission(const Assignment& task, std::uint64_t first, std::vector<TokenId> ids, std::uint64_t offset,
                  std::string text) {
  return {.request = task.request,
          .generation = task.generation,
          .first_index = first,
          .ids = std::move(ids),
          .text_offset = offset,
          .text = std::move(text),
          .logprobs = {}};
}

struct Stream {
  explicit Stream(StreamTable& table, Request request = {}) : sink(std::make_shared<Listener>()) {
    id = table.add(std::move(request), sink, at(0));
    CHECK_FALSE(table.admit(id, at(0)));
    task = table.assign(id, {1, 2, 3}).at(0);
  }
  std::shared_ptr<Listener> sink;
  RequestId id;
  std::shared_ptr<const Assignment> task;
};

TEST_CASE("streams: faults are counted for each stream, outlive a batcher, and can be cleared") {
  StreamTable table({.max_requests_per_user = kQuota});
  Stream one(table), other(table);
  CHECK(table.record_fault(one.id) == 1);
  CHECK(table.record_fault(one.id) == 2);
  CHECK(table.record_fault(other.id) == 1);
  table.clear_faults(other.id);
  const auto resumed = table.resume(0, WorkKind::generate);
  REQUIRE(resumed.size() == 2);
  CHECK(resumed[0]->num_faults == 2);
  CHECK(resumed[1]->num_faults == 0);
  for (const Stream* stream : {&one, &other}) table.end(stream->id, outcome(Outcome::cancelled), at(1));
  CHECK(table.record_fault(one.id) == 0);
}

TEST_CASE("streams: the sink is told once of each choice that has passed the checks") {
  StreamTable table({.max_requests_per_user = kQuota});
  const auto sink = std::make_shared<Listener>(), refused = std::make_shared<Listener>();
  Request request;
  request.num_choices = 3;
  request.sampling.temperature = 0.25f;
  request.sampling.top_p = 0.5f;
  const RequestId first = table.add(std::move(request), sink, at(0));
  CHECK_FALSE(table.admit(first, at(0)));
  CHECK(sink->admissions.empty());
  CHECK(table.assign(first, {1, 2}, {}).size() == 3);
  CHECK(sink->admissions == std::vector<std::uint32_t>{0, 1, 2});
  CHECK_FALSE(sink->in_reasoning);
  CHECK(sink->temperature == 0.25f);
  CHECK(sink->top_p == 0.5f);
  CHECK(table.resume(0, WorkKind::generate).size() == 3);
  CHECK(sink->admissions.size() == 3);
  for (RequestId id = first; id < first + 3; ++id) table.end(id, outcome(Outcome::cancelled), at(1));
  const RequestId none = table.add({}, refused, at(2));
  table.end(none, outcome(Outcome::queue_full), at(2));
  CHECK(table.assign(none, {1}).empty());
  CHECK(refused->admissions.empty());
  const auto thinking = std::make_shared<Listener>();
  const RequestId second = table.add({}, thinking, at(3));
  CHECK_FALSE(table.admit(second, at(3)));
  CHECK(table.assign(second, {1}, {}, {.in_reasoning = true}).size() == 1);
  CHECK(thinking->in_reasoning);
  table.end(second, outcome(Outcome::cancelled), at(3));
}

TEST_CASE("streams: an end names a folder of the server to the owner alone") {
  StreamTable table({.max_requests_per_user = kQuota});
  End end = outcome(Outcome::model_unloaded);
  end.message = "no model: /srv/my models/a.gguf: cannot be read";
  for (const bool is_owner : {true, false}) {
    Request request;
    request.tenant = {TenantId{1}, is_owner};
    Stream stream(table, request);
    table.end(stream.id, end, at(1));
    CHECK(stream.sink->ends.at(0).message == (is_owner ? end.message : "no model: a.gguf: cannot be read"));
  }
}

TEST_CASE("streams: work_since is when a stream of the unit arrived, or got credit, while no other waited or ran") {
  StreamTable table({.max_requests_per_user = kQuota});
  const auto sink = std::make_shared<Listener>(), of_other = std::make_shared<Listener>();
  const auto clock = table.work_clock(0), other = table.work_clock(7);
  CHECK_FALSE(clock->since());
  const RequestId first = table.add({}, sink, at(10));
  CHECK(table.counts().has_work());
  CHECK(clock->since() == at(10));
  CHECK_FALSE(other->since());
  const RequestId second = table.add({}, std::make_shared<Listener>(), at(20));
  CHECK(clock->since() == at(10));
  const RequestId elsewhere = table.add({}, of_other, at(21), 7);
  CHECK(other->since() == at(21));
  CHECK(table.counts(7).states.waiting == 1);
  CHECK(table.counts(0).states.waiting == 2);
  table.end(second, outcome(Outcome::cancelled), at(21));
  CHECK_FALSE(table.admit(first, at(0)));
  const auto task = table.assign(first, {1}).at(0);
  CHECK(table.set_state(first, task->generation, RequestState::parked));
  CHECK_FALSE(clock->since());
  CHECK(table.counts(0).states.parked == 1);
  CHECK(other->since() == at(21));
  table.grant(first, 1, at(30));
  CHECK(table.started(first, task->generation, 0, at(30)));
  CHECK(table.counts(0).states.running == 1);
  CHECK(clock->since() == at(30));
  table.grant(first, 1, at(40));
  CHECK(clock->since() == at(30));
  table.end(first, outcome(Outcome::cancelled), at(41));
  CHECK_FALSE(clock->since());
  CHECK(table.counts(0).states.running == 0);
  CHECK(table.counts(0).tokens.prompt == 1);
  CHECK(table.counts(7).tokens.prompt == 0);
  table.end(elsewhere, outcome(Outcome::cancelled), at(50));
  CHECK_FALSE(other->since());
  CHECK_FALSE(table.counts().has_work());
}

// The sink of all choices of one request.
struct Choices : StreamSink {
  void tokens(TokenRun run) override { ids[run.choice].insert(ids[run.choice].end(), run.ids.begin(), run.ids.end()); }
  void end(End end) override { ends[end.choice].push_back(end.outcome); }
  std::map<std::uint32_t, std::vector<TokenId>> ids;
  std::map<std::uint32_t, std::vector<Outcome>> ends;
};

Request for_choices(std::uint32_t n) {
  Request request;
  request.prompt = "text";
  request.num_choices = n;
  return request;
}

TEST_CASE("streams: the choices of a request share its prompt, and each has tokens and an end of its own") {
  StreamTable table({.max_requests_per_user = kQuota});
  const auto sink = std::make_shared<Choices>();
  const RequestId first = table.add(for_choices(3), sink, at(0));
  CHECK(table.live() == std::vector<RequestId>{first, first + 1, first + 2});
  CHECK(table.unassigned(0) == std::vector<RequestId>{first});
  CHECK_FALSE(table.admit(first, at(0)));
  CHECK(table.counts().in(RequestState::encoding) == 3);
  CHECK(table.end(first + 1, outcome(Outcome::cancelled), at(1)));  // a later choice ends alone
  CHECK(table.live().size() == 2);
  const auto tasks = table.assign(first, {1, 2});
  REQUIRE(tasks.size() == 2);
  CHECK(tasks[0]->request == first);
  CHECK(tasks[0]->body->fork_of == 0);
  CHECK(tasks[1]->request == first + 2);
  CHECK(tasks[1]->body->fork_of == first);
  CHECK(tasks[1]->body->sampling.choice == 2);
  CHECK(tasks[1]->prompt == tasks[0]->prompt);
  CHECK(table.deliver(emission(*tasks[1], 0, {9}, 0, "z"), at(2)));
  CHECK(table.deliver(emission(*tasks[0], 0, {5, 6}, 0, "ab"), at(2)));
  CHECK(table.end(first, 1, outcome(Outcome::eos), at(3)));
  CHECK(table.live() == std::vector<RequestId>{first + 2});
  CHECK(table.end(first + 2, 1, outcome(Outcome::length), at(4)));
  CHECK(sink->ids == std::map<std::uint32_t, std::vector<TokenId>>{{0, {5, 6}}, {2, {9}}});
  CHECK(sink->ends == std::map<std::uint32_t, std::vector<Outcome>>{
                          {0, {Outcome::eos}}, {1, {Outcome::cancelled}}, {2, {Outcome::length}}});
}

TEST_CASE("streams: before their prompt is known, choices end as the first one ends") {
  StreamTable table({.max_requests_per_user = kQuota});
  const auto sink = std::make_shared<Choices>();
  const RequestId first = table.add(for_choices(3), sink, at(0));
  CHECK(table.end(first, outcome(Outcome::unknown_model), at(1)));
  CHECK(table.live().empty());
  CHECK(sink->ends.size() == 3);
  for (const auto& [choice, ends] : sink->ends) CHECK(ends == std::vector<Outcome>{Outcome::unknown_model});
}

TEST_CASE("streams: the quota takes all choices of a request or none") {
  StreamTable table({.max_requests_per_user = 3});
  const auto sink = std::make_shared<Choices>(), other = std::make_shared<Choices>();
  const RequestId pair = table.add(for_choices(2), sink, at(0));
  CHECK_FALSE(table.admit(pair, at(0)));
  const RequestId second = table.add(for_choices(2), other, at(0));
  const auto refused = table.admit(second, at(0));
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  const RequestId single = table.add({}, std::make_shared<Listener>(), at(1));
  CHECK_FALSE(table.admit(single, at(0)));  // the quota was not kept for the third
  CHECK(table.end(second, outcome(Outcome::quota), at(2)));
  for (const RequestId id : {pair, single}) CHECK(table.end(id, outcome(Outcome::cancelled), at(3)));
  CHECK(table.live().empty());
  const RequestId three = table.add(for_choices(3), other, at(4));
  CHECK_FALSE(table.admit(three, at(0)));  // each gave its quota back
  CHECK(table.end(three, outcome(Outcome::cancelled), at(5)));
}

TEST_CASE("streams: when all end, a choice that waited for the prefill of the first one counts as begun") {
  StreamTable table({.max_requests_per_user = kQuota});
  const auto sink = std::make_shared<Choices>(), idle = std::make_shared<Choices>();
  const RequestId first = table.add(for_choices(2), sink, at(0));
  table.add(for_choices(2), idle, at(0));
  CHECK_FALSE(table.admit(first, at(0)));
  CHECK(table.assign(first, {1, 2}).size() == 2);
  CHECK(table.started(first, 1, 0, at(1)));
  table.end_all(outcome(Outcome::cancelled), outcome(Outcome::draining), at(2));
  for (const auto& [choice, ends] : sink->ends) CHECK(ends == std::vector<Outcome>{Outcome::cancelled});
  for (const auto& [choice, ends] : idle->ends) CHECK(ends == std::vector<Outcome>{Outcome::draining});
  CHECK(sink->ends.size() + idle->ends.size() == 4);
}

TEST_CASE("stream table: tokens arrive in order and the end comes once, with usage and seed") {
  StreamTable table({.max_requests_per_user = kQuota});
  Request request;
  request.sampling.seed = 77;
  Stream s(table, request);
  CHECK(table.started(s.id, 1, 2, at(10)));
  CHECK(table.deliver(emission(*s.task, 0, {5}, 0, "a"), at(30)));
  CHECK(table.deliver(emission(*s.task, 1, {6, 7}, 1, "bc"), at(70)));
  CHECK(table.end(s.id, 1, outcome(Outcome::eos), at(80)));
  CHECK_FALSE(table.end(s.id, outcome(Outcome::cancelled), at(90)));
  CHECK_FALSE(table.deliver(emission(*s.task, 3, {8}, 3, "d"), at(90)));

  CHECK(s.sink->ids == std::vector<TokenId>{5, 6, 7});
  CHECK(s.sink->text == "abc");
  REQUIRE(s.sink->ends.size() == 1);
  const End& end = s.sink->ends[0];
  CHECK(end.outcome == Outcome::eos);
  CHECK(end.seed == 77);
  CHECK(end.usage.prompt_tokens == 3);
  CHECK(end.usage.cached_tokens == 2);
  CHECK(end.usage.completion_tokens == 3);
  CHECK(end.usage.queue_seconds == Approx(0.010));
  CHECK(end.usage.prefill_seconds == Approx(0.020));
  CHECK(end.usage.decode_seconds == Approx(0.040));
  CHECK(end.usage.ttft_seconds == Approx(0.030));
}

TEST_CASE("stream table: how far a prompt is computed shows until its answer begins") {
  StreamTable table({.max_requests_per_user = kQuota});
  Stream s(table);
  const auto computed = [&] { return table.views(at(100)).at(0).computed_tokens; };
  CHECK(computed() == 0);
  CHECK(table.started(s.id, 1, 1, at(1)));
  CHECK(computed() == 1);
  CHECK(table.computed(s.id, 1, 2));
  CHECK(computed() == 2);
  const auto task = table.resume(0, WorkKind::generate).at(0);
  CHECK_FALSE(table.computed(s.id, 1, 3));  // from the batcher that was replaced
  CHECK(computed() == 2);
  CHECK(table.started(s.id, task->generation, 0, at(2)));
  CHECK(computed() == 0);
  CHECK(table.deliver(emission(*task, 0, {5}, 0, ""), at(30)));
  CHECK(computed() == 3);
  CHECK(table.end(s.id, outcome(Outcome::cancelled), at(90)));
}

TEST_CASE("stream table: a request's times are counted once, in seconds, however its tokens are bundled") {
  StreamTable table({.max_requests_per_user = kQuota});
  Request named;
  named.client_id = "job-17";
  Stream s(table, std::move(named));
  Stream waiting(table);
  CHECK(table.started(s.id, 1, 2, at(10)));
  CHECK(table.deliver(emission(*s.task, 0, {5}, 0, ""), at(30)));
  CHECK(table.deliver(emission(*s.task, 1, {6, 7}, 0, ""), at(70)));
  const std::vector<RequestView> views = table.views(at(100));
  REQUIRE(views.size() == 2);
  CHECK(views[0].request == s.id);
  CHECK(views[0].client_id == "job-17");
  CHECK(views[0].state == RequestState::running);
  CHECK(views[0].prompt_tokens == 3);
  CHECK(views[0].cached_tokens == 2);
  CHECK(views[0].generated_tokens == 3);
  CHECK(views[0].computed_tokens == 3);  // an answer has begun
  CHECK(views[0].age_seconds == Approx(0.1));
  CHECK(views[1].state == RequestState::queued);
  CHECK(table.counts().bytes > 0);
  CHECK(table.end(s.id, 1, outcome(Outcome::eos), at(80)));
  CHECK(table.end(waiting.id, outcome(Outcome::cancelled), at(90)));  // without a token: not counted
  CHECK(table.counts().bytes == 0);
  CHECK(table.views(at(100)).empty());
  const Latencies latencies = table.counts().latencies;
  const auto require = [&](Latency latency, std::uint64_t count, double sum) {
    const Histogram& histogram = latencies.histograms[static_cast<std::size_t>(latency)];
    INFO(kLatencyNames[static_cast<std::size_t>(latency)]);
    CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0}) == count);
    CHECK(histogram.sum_seconds == Approx(sum));
  };
  require(Latency::time_to_first_token, 1, 0.030);
  require(Latency::inter_token_latency, 1, 0.020);  // two tokens in 40 ms
  require(Latency::e2e_request_latency, 1, 0.080);
  require(Latency::request_queue_time, 1, 0.010);
  require(Latency::request_prefill_time, 1, 0.020);
  require(Latency::request_decode_time, 1, 0.040);
  require(Latency::request_inference_time, 1, 0.070);
}

TEST_CASE("stream table: ids and text that were delivered before are dropped") {
  StreamTable table({.max_requests_per_user = kQuota});
  Stream s(table);
  table.started(s.id, 1, 0, at(0));
  table.deliver(emission(*s.task, 0, {5, 6}, 0, "ab"), at(1));
  table.deliver(emission(*s.task, 0, {5, 6}, 0, "ab"), at(2));  // all of it again
  table.deliver(emission(*s.task, 1, {6, 7}, 1, "bc"), at(3));  // half of it again
  table.end(s.id, outcome(Outcome::length), at(4));
  CHECK(s.sink->ids == std::vector<TokenId>{5, 6, 7});
  CHECK(s.sink->text == "abc");
}

TEST_CASE("stream table: resuming gives the record under a new generation and drops the old one's reports") {
  StreamTable table({.max_requests_per_user = kQuota});
  Stream s(table);
  table.started(s.id, 1, 0, at(0));
  table.deliver(emission(*s.task, 0, {5, 6}, 0, "ab"), at(1));
  table.grant(s.id, 9, TimePoint{});

  const auto resumed = table.resume(0, WorkKind::generate);
  REQUIRE(resumed.size() == 1);
  CHECK(resumed[0]->request == s.id);
  CHECK(resumed[0]->generation == 2);
  CHECK(*resumed[0]->prompt == std::vector<TokenId>{1, 2, 3});
  CHECK(resumed[0]->emitted == std::vector<TokenId>{5, 6});
  CHECK(table.granted(s.id, resumed[0]->generation) == 9u);

  CHECK_FALSE(table.deliver(emission(*s.task, 2, {9}, 2, "x"), at(2)));
  CHECK_FALSE(table.set_state(s.id, 1, RequestState::parked));
  CHECK_FALSE(table.preempted(s.id, 1, at(2)));
  CHECK_FALSE(table.end(s.id, 1, outcome(Outcome::eos), at(2)));
  CHECK(table.started(s.id, 2, 3, at(3)));
  CHECK(table.deliver(emission(*resumed[0], 2, {7}, 2, "c"), at(3)));
  CHECK(table.end(s.id, 2, outcome(Outcome::eos), at(4)));
  CHECK(s.sink->ids == std::vector<TokenId>{5, 6, 7});
  CHECK(s.sink->ends.at(0).usage.cached_tokens == 0);  // of the first start
}

TEST_CASE("stream table: a request whose prompt is not encoded yet is not resumed but listed as unassigned") {
  StreamTable table({.max_requests_per_user = kQuota});
  auto sink = std::make_shared<Listener>();
  const RequestId id = table.add({}, sink, at(0));
  CHECK(table.resume(0, WorkKind::generate).empty());
  CHECK(table.unassigned(0) == std::vector<RequestId>{id});
  table.end_all(outcome(Outcome::cancelled), outcome(Outcome::draining), at(1));
  CHECK(sink->ends.at(0).outcome == Outcome::draining);
  CHECK(table.live().empty());
}

TEST_CASE("stream table: recent quantiles are within 5 % of what the clients of those streams are told") {
  StreamTable table({.max_requests_per_user = kQuota});
  std::mt19937_64 random(23);
  std::lognormal_distribution<double> spread(0.0, 1.5);
  std::vector<double> first, queued;
  const auto within_5_percent = [](double shown, double measured) {
    return std::abs(shown - measured) <= 0.05 * measured;
  };
  for (int i = 0; i < 400; ++i) {
    Stream s(table);
    const int begun = 1 + static_cast<int>(20 * spread(random));
    const int answered = begun + 1 + static_cast<int>(300 * spread(random));
    REQUIRE(table.started(s.id, 1, 0, at(begun)));
    REQUIRE(table.deliver(emission(*s.task, 0, {5}, 0, ""), at(answered)));
    REQUIRE(table.end(s.id, outcome(Outcome::length), at(answered + 7)));
    first.push_back(s.sink->ends.at(0).usage.ttft_seconds);
    queued.push_back(s.sink->ends.at(0).usage.queue_seconds);
  }
  std::ranges::sort(first);
  std::ranges::sort(queued);
  MetricList metrics;
  table.counts().append_metrics(metrics, at(1000));
  CHECK(within_5_percent(metrics.value("time_to_first_token_p50"), first[199]));
  CHECK(within_5_percent(metrics.value("time_to_first_token_p99"), first[395]));
  CHECK(within_5_percent(metrics.value("request_queue_time_p50"), queued[199]));
  CHECK(within_5_percent(metrics.value("request_queue_time_p99"), queued[395]));
  CHECK(metrics.find("inter_token_latency_p50") == nullptr);
  MetricList later;
  table.counts().append_metrics(later, at(1000 * 1000));
  CHECK(later.find("time_to_first_token_p50") == nullptr);
}

TEST_CASE("stream table: states are counted") {
  StreamTable table({.max_requests_per_user = kQuota});
  Request request;
  request.tenant.id = TenantId{7};
  const auto state = [&](RequestState s) { return table.counts().in_state[static_cast<std::size_t>(s)]; };
  auto sink = std::make_shared<Listener>();
  const RequestId first = table.add(request, sink, at(0));
  Stream second(table, request);
  CHECK(state(RequestState::received) == 1);
  CHECK(state(RequestState::queued) == 1);
  table.set_state(second.id, 1, RequestState::running);  // it has a place, and waits for its first step
  CHECK(table.counts().waiting() == 2);
  CHECK(table.counts(0).states.waiting == 2);
  CHECK(table.tenants().all()[0].states.waiting == 2);
  CHECK(table.views(at(1)).back().state == RequestState::queued);
  table.started(second.id, 1, 0, at(1));
  CHECK(state(RequestState::running) == 1);
  table.set_state(second.id, 1, RequestState::parked);
  CHECK(state(RequestState::parked) == 1);
  table.preempted(second.id, 1, at(2));
  table.set_state(second.id, 1, RequestState::queued);
  table.end(second.id, outcome(Outcome::cancelled), at(2));
  table.end(first, outcome(Outcome::cancelled), at(2));
  CHECK(state(RequestState::ended) == 2);
  CHECK(table.counts().preemptions == 1);
  const std::vector<TenantUse> tenants = table.tenants().all();
  REQUIRE(tenants.size() == 1);
  CHECK(tenants[0].received == 2);
  CHECK(tenants[0].ended[static_cast<std::size_t>(scheduler::OutcomeKind::done)] == 2);
}

TEST_CASE("stream table: a user's quota counts from admission to the end") {
  StreamTable table({.max_requests_per_user = 2});
  Request request;
  request.tenant.id = TenantId{7};
  Stream first(table, request);
  Stream second(table, request);
  auto sink = std::make_shared<Listener>();
  const RequestId third = table.add(request, sink, at(0));
  const auto refused = table.admit(third, at(0));
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->limit == std::optional<std::uint64_t>(2));
  request.tenant.id = TenantId{8};
  Stream other(table, request);
  table.end(first.id, outcome(Outcome::eos), at(1));
  CHECK_FALSE(table.admit(third, at(0)));
  CHECK_FALSE(table.admit(third, at(0)));  // counted once
  table.end_all(outcome(Outcome::cancelled), outcome(Outcome::draining), at(2));
}

TEST_CASE("stream table: credit adds up without overflow and ended streams take none") {
  StreamTable table({.max_requests_per_user = kQuota});
  Request request;
  request.credit = 5;
  Stream s(table, request);
  CHECK(table.grant(s.id, 3, TimePoint{}) == std::optional<std::uint64_t>(8));
  CHECK(table.grant(s.id, ~std::uint64_t{0}, TimePoint{}) == std::optional<std::uint64_t>(~std::uint64_t{0}));
  table.end(s.id, outcome(Outcome::eos), at(1));
  CHECK_FALSE(table.grant(s.id, 3, TimePoint{}));
  CHECK(table.assign(s.id, {1}).empty());
  CHECK_FALSE(table.admit(s.id, at(0)));  // the stream has ended
  CHECK_FALSE(table.request(s.id));
}

TEST_CASE("stream table: a deadline beyond the range of the clock is not due") {
  StreamTable table({.max_requests_per_user = kQuota});
  Request request;
  request.deadline = milliseconds::max();
  Stream s(table, request);
  CHECK(table.next_deadline(0) > at(1'000'000'000));
  CHECK(table.overdue(0, at(1'000'000'000)).empty());
  table.end(s.id, outcome(Outcome::eos), at(1));
  CHECK_FALSE(table.next_deadline(0));
}

TEST_CASE("stream table: a sink may call back into the table from within a call") {
  StreamTable table({.max_requests_per_user = kQuota});
  Stream s(table);
  s.sink->on_tokens = [&] {
    table.grant(s.id, 1, TimePoint{});
    table.end(s.id, outcome(Outcome::cancelled), at(2));  // the sink is called after this call returns
    CHECK(s.sink->ends.empty());
  };
  table.deliver(emission(*s.task, 0, {5}, 0, "a"), at(1));
  CHECK(s.sink->ends.size() == 1);
}

TEST_CASE("stream table: when_empty waits until the last sink has its end") {
  StreamTable table({.max_requests_per_user = kQuota});
  int called = 0;
  table.when_empty([&] { ++called; });
  CHECK(called == 1);
  Stream a(table);
  Stream b(table);
  table.when_empty([&] { called += 10; });
  table.end(a.id, outcome(Outcome::eos), at(1));
  CHECK(called == 1);
  table.end(b.id, outcome(Outcome::eos), at(1));
  CHECK(called == 11);
}

TEST_CASE("stream table: ends and tokens from many threads keep every stream in order") {
  StreamTable table({.max_requests_per_user = kQuota});
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 50; ++i) streams.push_back(std::make_unique<Stream>(table));
  std::thread batcher([&] {
    for (std::uint64_t i = 0; i < 20; ++i) {
      for (const auto& s : streams) table.deliver(emission(*s->task, i, {static_cast<TokenId>(i)}, i, "x"), at(1));
    }
  });
  std::thread canceller([&] {
    for (const auto& s : streams) table.end(s->id, outcome(Outcome::cancelled), at(2));
  });
  batcher.join();
  canceller.join();
  for (const auto& s : streams) {
    CHECK(s->sink->ends.size() == 1);
    for (std::size_t i = 0; i < s->sink->ids.size(); ++i) CHECK(s->sink->ids[i] == static_cast<TokenId>(i));
    CHECK(s->sink->ends[0].usage.completion_tokens == s->sink->ids.size());
  }
}

// --- limits and shares ---

Request of_user(std::uint32_t uid, std::size_t prompt_tokens = 3) {
  Request request;
  request.tenant = {TenantId{uid}, uid == 0};
  request.prompt = std::vector<TokenId>(prompt_tokens, 7);
  return request;
}

TEST_CASE("streams: waiting requests of one user leave room in the queue to others, and running ones take none") {
  StreamTable table({.max_queued_requests = 16});
  std::vector<std::unique_ptr<Stream>> streams;
  const auto waits = [&](Request request, TimePoint now = at(0)) {
    streams.push_back(std::make_unique<Stream>(table, std::move(request)));
    return table.take_queue_room(streams.back()->id, now);
  };
  for (int i = 0; i < 4; ++i) CHECK_FALSE(waits(of_user(1)));
  CHECK_FALSE(table.take_queue_room(streams.front()->id, at(0)));  // it is counted already
  const auto own = waits(of_user(1));
  REQUIRE(own);
  CHECK(own->outcome == Outcome::quota);
  CHECK(own->field == "max_queued_requests");
  CHECK(own->limit == 4);
  for (const std::uint32_t uid : {2, 3}) {
    for (int i = 0; i < 4; ++i) CHECK_FALSE(waits(of_user(uid)));
  }
  for (int i = 0; i < 3; ++i) CHECK_FALSE(waits(of_user(4)));
  CHECK(waits(of_user(4))->outcome == Outcome::queue_full);
  CHECK_FALSE(waits(of_user(0)));  // kept for the owner
  // Running, parked or ended: each stops counting for good.
  CHECK(table.started(streams[0]->id, 1, 0, at(1)));
  CHECK(table.preempted(streams[0]->id, 1, at(2)));
  CHECK(table.set_state(streams[0]->id, 1, RequestState::queued));
  CHECK(table.park(streams[1]->id, 1, at(1)).is_live);
  table.end(streams[2]->id, outcome(Outcome::cancelled), at(1));
  const TimePoint later = at(10'000);  // the refused ones have not come back
  for (int i = 0; i < 2; ++i) CHECK_FALSE(waits(of_user(1), later));
  CHECK(waits(of_user(1), later));  // the rest is still kept for the owner
  for (const auto& stream : streams) table.end(stream->id, outcome(Outcome::cancelled), at(2));
}

TEST_CASE("streams: waiting prompts' tokens have shares, and a text counts by its size until it is encoded") {
  StreamTable table({.max_queued_tokens = 1600});
  auto sink = std::make_shared<Listener>();
  Request text = of_user(1);
  text.prompt = std::string(800, 'a');  // estimated as 200 tokens
  const RequestId first = table.add(text, sink, at(0));
  const RequestId second = table.add(text, sink, at(0));
  const RequestId third = table.add(text, sink, at(0));
  const RequestId other = table.add(of_user(2, 400), sink, at(0));
  CHECK_FALSE(table.take_queue_room(first, at(0)));
  CHECK_FALSE(table.take_queue_room(second, at(0)));
  const auto refused = table.take_queue_room(third, at(0));
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max_queued_tokens");
  CHECK_FALSE(table.take_queue_room(other, at(0)));
  for (const RequestId id : {first, second}) CHECK_FALSE(table.retake_queue_room(id, 100, at(0)));
  CHECK_FALSE(table.take_queue_room(third, at(0)));  // 100 and 100 and 200
  CHECK(table.retake_queue_room(second, 101, at(0)));
  for (const RequestId id : {first, second, third}) table.end(id, outcome(Outcome::cancelled), at(1));
  const RequestId alone = table.add(of_user(1, 1000), sink, at(0));
  // More than a share, but there is room and the user has nothing else.
  CHECK_FALSE(table.take_queue_room(alone, at(0)));
  for (const RequestId id : {other, alone}) table.end(id, outcome(Outcome::cancelled), at(1));
}

TEST_CASE("streams: with too many parked, the slowest reader of the user with most parked streams is ended") {
  StreamTable table({.max_parked_requests = 16});
  std::vector<std::unique_ptr<Stream>> ann, ben;
  const auto park = [&](Stream& stream, int ms) { return table.park(stream.id, 1, at(ms)); };
  const auto add = [&](std::vector<std::unique_ptr<Stream>>& to, std::uint32_t uid) {
    to.push_back(std::make_unique<Stream>(table, of_user(uid)));
  };
  for (int i = 0; i < 9; ++i) add(ann, 1);
  for (int i = 0; i < 7; ++i) add(ben, 2);
  for (auto& stream : ann) CHECK(park(*stream, 0).ended == 0);
  for (auto& stream : ben) CHECK(park(*stream, 0).ended == 0);
  // All but one of Ann's streams get a token a second and are parked again.
  for (int second = 1; second <= 5; ++second) {
    for (std::size_t i = 0; i < ann.size(); ++i) {
      if (i == 3) continue;
      Stream& stream = *ann[i];
      table.grant(stream.id, 1, at(1000 * second));
      table.set_state(stream.id, 1, RequestState::running);
      table.deliver(emission(*stream.task, static_cast<std::uint64_t>(second - 1), {9}, 0, ""), at(1000 * second));
      CHECK(park(stream, 1000 * second + 1).ended == 0);
    }
  }
  // Users with a share of parked streams are refused; others are not, nor is the owner.
  auto sink = std::make_shared<Listener>();
  const RequestId more = table.add(of_user(1), sink, at(6000));
  const auto refused = table.admit(more, at(0));
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max_parked_requests");
  table.end(more, outcome(Outcome::cancelled), at(6000));
  Stream carl(table, of_user(3)), root(table, of_user(0));
  const Parked parked = park(carl, 6000);
  CHECK(parked.is_live);
  CHECK(parked.ended == ann[3]->id);
  const End& end = ann[3]->sink->ends.at(0);
  CHECK(end.outcome == Outcome::cancelled);
  CHECK(end.field == "max_parked_requests");
  CHECK(end.message ==
        "its client took 0 tokens and let the answer wait for 6 s; others needed its place among the 16 "
        "(max_parked_requests). Grant more credit, and sooner");
  CHECK(park(root, 6000).is_live);
  CHECK(carl.sink->ends.empty());
  CHECK(root.sink->ends.empty());
  CHECK(table.counts().in(RequestState::parked) == 16);
  table.end_all(outcome(Outcome::cancelled), outcome(Outcome::cancelled), at(7000));
}

TEST_CASE("streams: in any order of events no more are parked than allowed, and only a user with most loses one") {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    StreamTable table({.max_requests_per_user = 1000, .max_parked_requests = 20});
    std::map<RequestId, std::unique_ptr<Stream>> streams;
    std::map<RequestId, std::uint32_t> parked;  // by user
    for (int i = 0; i < 3000; ++i) {
      if (streams.size() < 60) {
        const std::uint32_t uid = random() % 2 == 0 ? 1 : 1 + random() % 6;
        Request request = of_user(uid);
        auto sink = std::make_shared<Listener>();
        const RequestId probe = table.add(request, sink, at(i));
        std::uint32_t own = 0;
        for (const auto& [id, user] : parked) own += user == uid ? 1 : 0;
        const bool refused = table.admit(probe, at(0)).has_value();
        REQUIRE(refused == (own >= 5));  // a quarter
        table.end(probe, outcome(Outcome::cancelled), at(i));
        if (refused) continue;
        auto stream = std::make_unique<Stream>(table, std::move(request));
        const RequestId id = stream->id;
        streams.emplace(id, std::move(stream));
      }
      auto it = streams.begin();
      std::advance(it, random() % streams.size());
      const RequestId id = it->first;
      const auto uid = static_cast<std::uint32_t>(table.request(id)->tenant.id);
      switch (random() % 4) {
        case 0:
          table.end(id, outcome(Outcome::cancelled), at(i));
          parked.erase(id);
          streams.erase(id);
          break;
        case 1:
          table.grant(id, 1, at(i));
          table.set_state(id, 1, RequestState::running);
          parked.erase(id);
          break;
        default: {
          parked[id] = uid;
          const Parked result = table.park(id, 1, at(i));
          REQUIRE((result.ended != 0) == (parked.size() > 20));
          REQUIRE(result.is_live == (result.ended != id));
          if (result.ended == 0) break;
          std::map<std::uint32_t, int> count;
          for (const auto& [each, user] : parked) ++count[user];
          for (const auto& [user, n] : count) REQUIRE(count[parked.at(result.ended)] >= n);
          REQUIRE(streams.at(result.ended)->sink->ends.size() == 1);
          streams.erase(result.ended);
          parked.erase(result.ended);
        }
      }
      REQUIRE(table.counts().in(RequestState::parked) == parked.size());
    }
    table.end_all(outcome(Outcome::cancelled), outcome(Outcome::cancelled), at(9999));
    REQUIRE(table.counts().in(RequestState::parked) == 0);
  }
}

scheduler::Tenant tenant_with(scheduler::TenantLimits limits) {
  return {.id = TenantId{5},
          .policy = std::make_shared<const scheduler::TenantPolicy>(
              scheduler::TenantPolicy{.name = "web", .limits = limits})};
}

// A table and requests of one tenant.
struct Quotas {
  explicit Quotas(scheduler::TenantLimits limits) : tenant(tenant_with(limits)) {}
  ~Quotas() { table.end_all(outcome(Outcome::cancelled), outcome(Outcome::cancelled), at(100'000)); }

  RequestId add(decltype(Request::prompt) prompt = std::vector<TokenId>(10, 1), std::uint32_t choices = 1) {
    Request request;
    request.tenant = tenant;
    request.prompt = std::move(prompt);
    request.num_choices = choices;
    return table.add(std::move(request), std::make_shared<Choices>(), at(0));
  }
  // As the intake does; returns the first refusal.
  std::optional<scheduler::Refusal> begin(RequestId id, std::uint64_t tokens, TimePoint now) {
    if (auto refused = table.take_queue_room(id, now)) return refused;
    if (auto refused = table.admit(id, now)) return refused;
    if (auto refused = table.retake_queue_room(id, tokens, now)) return refused;
    tasks = table.assign(id, std::vector<TokenId>(tokens, 1));
    return std::nullopt;
  }

  scheduler::Tenant tenant;
  StreamTable table{{.max_requests_per_user = kQuota}};
  std::vector<AssignmentPtr> tasks;  // of the last request that began
};

TEST_CASE("stream table: max_queued counts choices until they run") {
  Quotas quotas({.max_queued = 3});
  const RequestId pair = quotas.add("text", 2);
  CHECK_FALSE(quotas.begin(pair, 4, at(0)));
  const auto tasks = quotas.tasks;
  const auto refused = quotas.table.take_queue_room(quotas.add("text", 2), at(1));
  REQUIRE(refused);
  CHECK(refused->field == "max-queued");
  CHECK(refused->message ==
        "tenant web has 2 waiting requests, and may have 3 (max-queued); wait until some have begun");
  CHECK(quotas.table.started(pair, tasks[0]->generation, 0, at(2)));
  CHECK_FALSE(quotas.table.take_queue_room(quotas.add("text", 2), at(1'001)));
  CHECK(quotas.table.take_queue_room(quotas.add("text"), at(1'001)));
}

TEST_CASE("stream table: prompt tokens are taken once, whatever happens to the request after that") {
  Quotas quotas({.max_prompt_tokens_per_minute = 60});
  const RequestId first = quotas.add("text", 3);
  CHECK_FALSE(quotas.begin(first, 50, at(0)));
  CHECK_FALSE(quotas.table.retake_queue_room(first, 50, at(0)));  // an intake that began again
  CHECK(quotas.table.resume(0, WorkKind::generate).size() == 3);
  quotas.table.end(first, outcome(Outcome::cancelled), at(0));  // the others still compute the prompt
  const std::string text = "a text of 20 letters";
  const auto refused = quotas.begin(quotas.add(text), 20, at(0));
  REQUIRE(refused);
  CHECK(refused->field == "max-prompt-tokens-per-minute");
  CHECK(refused->retry_after == 10.0);
  CHECK_FALSE(quotas.begin(quotas.add(text), 20, at(10'000)));
}

TEST_CASE("stream table: ids beyond what is left are refused on arrival, and a text by its likely tokens") {
  Quotas quotas({.max_prompt_tokens_per_minute = 60});
  CHECK_FALSE(quotas.begin(quotas.add(), 55, at(0)));
  CHECK(quotas.table.take_queue_room(quotas.add(std::vector<TokenId>(6, 1)), at(0))->retry_after == 1.0);
  CHECK_FALSE(quotas.table.take_queue_room(quotas.add(std::string(20, 'x')), at(10'000)));
  CHECK(quotas.table.take_queue_room(quotas.add(std::string(64, 'x')), at(10'000))->retry_after);
  CHECK(quotas.table.take_queue_room(quotas.add(std::vector<TokenId>(61, 1)), at(0))->retry_after ==
        std::numeric_limits<double>::infinity());
}

TEST_CASE("stream table: a request that the server refuses before it runs gets its prompt tokens back") {
  Quotas quotas({.max_prompt_tokens_per_minute = 60});
  const RequestId unlucky = quotas.add();
  CHECK_FALSE(quotas.begin(unlucky, 60, at(0)));
  quotas.table.end(unlucky, outcome(Outcome::deadline_unmeetable), at(0));
  const RequestId cancelled = quotas.add();
  CHECK_FALSE(quotas.begin(cancelled, 60, at(0)));
  quotas.table.end(cancelled, outcome(Outcome::cancelled), at(0));
  CHECK(quotas.begin(quotas.add(), 60, at(0)));
}

TEST_CASE("stream table: answer tokens are taken as they are delivered, and hold up new requests only") {
  Quotas quotas({.max_answer_tokens_per_minute = 60});
  const RequestId id = quotas.add();
  REQUIRE_FALSE(quotas.begin(id, 3, at(0)));
  const Assignment task = *quotas.tasks.at(0);
  CHECK(quotas.table.started(id, task.generation, 0, at(0)));
  CHECK(quotas.table.deliver(emission(task, 0, std::vector<TokenId>(60, 4), 0, ""), at(0)));
  CHECK_FALSE(quotas.table.take_queue_room(quotas.add(), at(0)));
  CHECK(quotas.table.deliver(emission(task, 60, std::vector<TokenId>(3, 4), 0, ""), at(0)));
  CHECK(quotas.table.deliver(emission(task, 60, std::vector<TokenId>(3, 4), 0, ""), at(0)));  // these are known
  const auto refused = quotas.table.take_queue_room(quotas.add(), at(0));
  REQUIRE(refused);
  CHECK(refused->field == "max-answer-tokens-per-minute");
  CHECK(refused->retry_after == 3.0);
  CHECK_FALSE(quotas.table.take_queue_room(quotas.add(), at(3'000)));
}

TEST_CASE("stream table: how fast a tenant's requests end decides when a refused one should come back") {
  StreamTable table({.max_requests_per_user = 2});
  const auto add = [&](TimePoint now) { return table.add({}, std::make_shared<Listener>(), now); };
  std::deque<RequestId> live;
  for (int i = 0; i < 40; ++i) {
    const RequestId id = add(at(500 * i));
    REQUIRE_FALSE(table.admit(id, at(500 * i)));
    const auto task = table.assign(id, {1}).at(0);
    CHECK(table.started(id, task->generation, 0, at(500 * i)));
    live.push_back(id);
    if (live.size() == 1) continue;
    table.end(live.front(), outcome(Outcome::eos), at(500 * i + 250));
    live.pop_front();
  }
  const RequestId second = add(at(20'000)), third = add(at(20'000));
  CHECK_FALSE(table.admit(second, at(20'000)));
  const auto refused = table.admit(third, at(20'000));
  REQUIRE(refused);
  CHECK(*refused->retry_after > 0.5);
  CHECK(*refused->retry_after < 1.5);
  for (const RequestId id : {live.front(), second, third}) table.end(id, outcome(Outcome::cancelled), at(20'000));
}

TEST_CASE("stream table: a request that was refused finds its place when it comes back in time, before new ones") {
  Quotas quotas({.max_queued = 4});
  std::vector<RequestId> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(quotas.add("waits"));
    REQUIRE_FALSE(quotas.begin(waiting.back(), 2, at(0)));
  }
  const std::string long_text(20'000, 'x');
  const auto refused = quotas.table.take_queue_room(quotas.add(long_text + "!"), at(0));
  REQUIRE(refused);
  REQUIRE(refused->retry_after == 1.0);
  quotas.table.end(waiting[0], outcome(Outcome::cancelled), at(500));
  CHECK(quotas.table.take_queue_room(quotas.add(long_text + "?"), at(1'000)));
  CHECK_FALSE(quotas.table.take_queue_room(quotas.add(long_text + "!"), at(1'000)));
}

TEST_CASE("stream table: the place of a refused request is kept in the shared queue, too") {
  StreamTable table({.max_requests_per_user = kQuota, .max_queued_requests = 16});  // 4 for a guest
  const auto add = [&](std::uint32_t id) {
    Request request;
    request.tenant = {TenantId{5}, false};
    request.prompt = std::vector<TokenId>{static_cast<TokenId>(id)};
    return table.add(std::move(request), std::make_shared<Listener>(), at(0));
  };
  std::vector<RequestId> waiting;
  for (std::uint32_t i = 0; i < 4; ++i) {
    waiting.push_back(add(i));
    REQUIRE_FALSE(table.take_queue_room(waiting.back(), at(0)));
  }
  const auto refused = table.take_queue_room(add(100), at(0));
  REQUIRE(refused);
  CHECK(refused->field == "max_queued_requests");
  REQUIRE(refused->retry_after == 1.0);
  table.end(waiting[0], outcome(Outcome::cancelled), at(500));
  CHECK(table.take_queue_room(add(101), at(1'000)));
  CHECK_FALSE(table.take_queue_room(add(100), at(1'000)));
  table.end_all(outcome(Outcome::cancelled), outcome(Outcome::cancelled), at(2'000));
}

}  // namespace
}  // namespace troupe::actors
