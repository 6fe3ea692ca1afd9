// A batch with a keeper and a worker that answer at once.
#include "actors/batching/batch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::actors {
namespace {

constexpr TimePoint kNow{};

struct Outcomes : StreamSink {
  void tokens(TokenRun run) override { num_tokens += run.ids.size(); }
  void end(End end) override { ends.push_back(end.outcome); }
  std::size_t num_tokens = 0;
  std::vector<scheduler::Outcome> ends;
};

class BatchServer {
 public:
  BatchServer(std::uint32_t max_sequences, std::uint32_t num_blocks)
      : groups_{{.num_blocks = num_blocks}},
        batch_({.capacity = {.context = 512, .groups = groups_},
                .planner = {.max_step_tokens = 64, .max_sequences = max_sequences, .max_initial_blocks = num_blocks},
                .tokenizer = nullptr,
                .on_step = {}},
               streams, shares_),
        book_({.groups = groups_}) {}
  ~BatchServer() {
    batch_.forget_all();
    End end;
    end.outcome = scheduler::Outcome::cancelled;
    streams.end_all(end, end, kNow);
  }

  RequestId submit(const scheduler::Tenant& tenant, std::uint32_t num_prompt, std::uint32_t max_tokens,
                   std::uint32_t num_choices = 1, std::uint64_t credit = 1000) {
    Request request;
    request.tenant = tenant;
    for (std::uint32_t i = 0; i < num_prompt; ++i) prompt_.push_back(static_cast<TokenId>(random_() % 1000));
    request.prompt = prompt_;
    request.sampling.max_tokens = max_tokens;
    request.num_choices = num_choices;
    request.credit = credit;
    const RequestId id = streams.add(std::move(request), sink, kNow);
    REQUIRE_FALSE(streams.take_queue_room(id, kNow));
    REQUIRE_FALSE(streams.admit(id, kNow));
    REQUIRE_FALSE(streams.retake_queue_room(id, num_prompt, kNow));
    for (auto& task : streams.assign(id, std::exchange(prompt_, {}))) batch_.enqueue(std::move(task), kNow);
    return id;
  }
  void credit(RequestId id, std::uint64_t tokens) {
    if (const auto granted = streams.grant(id, tokens, kNow)) batch_.credit(id, *granted);
  }
  // Decides until nothing more is sent, then runs a step; false if there is none.
  bool turn() {
    std::shared_ptr<StepWork> step;
    for (bool sent = true; sent;) {
      batch_.decide(kNow);
      check();
      if (auto work = batch_.take_work()) {
        open(*work);
        if (!work->batch.items.empty()) step = std::move(work);
      }
      sent = ask_keeper();
    }
    if (!step) return false;
    if (during_step) std::exchange(during_step, nullptr)();
    do batch_.decide(kNow);
    while (ask_keeper());
    end_step(step->batch);
    return true;
  }
  void report() { streams.tell(batch_.take_news()); }
  // Answers of each tenant with streams that are running.
  std::map<TenantId, std::uint32_t> running() const {
    std::map<TenantId, std::uint32_t> counts;
    for (const RequestView& view : streams.views(kNow)) counts[view.tenant] += view.state == RequestState::running;
    return counts;
  }

  StreamTable streams{{.max_requests_per_user = 1000}};
  std::shared_ptr<Outcomes> sink = std::make_shared<Outcomes>();
  std::function<void()> during_step;               // called once, in the next step
  std::map<TenantId, std::uint32_t> limits;        // checked after each decision
  std::map<TenantId, std::uint32_t> most_running;  // since the start

 private:
  void check() {
    for (const auto& [tenant, count] : running()) {
      std::uint32_t& most = most_running[tenant];
      most = std::max(most, count);
      const auto limit = limits.find(tenant);
      if (limit != limits.end()) REQUIRE(count <= limit->second);
    }
  }
  bool ask_keeper() {
    report();
    LeaseReply reply;
    const auto leases = batch_.take_leases();
    for (const scheduler::LeaseMessage& lease : leases) {
      if (const auto* m = std::get_if<scheduler::StepEnded>(&lease)) book_.step_done(m->epoch, m->step);
      if (const auto* m = std::get_if<cache::Acquire>(&lease)) book_.acquire(*m, reply.effects);
      if (const auto* m = std::get_if<cache::Extend>(&lease)) book_.extend(*m, reply.effects);
      if (const auto* m = std::get_if<cache::Commit>(&lease)) book_.commit(*m, reply.effects);
      if (const auto* m = std::get_if<cache::Yield>(&lease)) book_.yield(*m, reply.effects);
      if (const auto* m = std::get_if<cache::Release>(&lease)) book_.release(*m, reply.effects);
      if (const auto* m = std::get_if<scheduler::Predict>(&lease)) {
        const auto found = book_.predict(m->scopes, *m->tokens);
        reply.predictions.push_back({m->request, found.cached_tokens + found.in_flight_tokens});
      }
    }
    batch_.keeper_replied(reply, kNow);
    check();
    return !leases.empty();
  }
  void open(const StepWork& work) {
    for (const engine::SequenceSpec& spec : work.opens)
      left_[spec.id] =
          spec.num_prompt_tokens + spec.sampling.max_tokens - static_cast<std::uint32_t>(spec.tokens.size());
  }
  void end_step(const engine::StepBatch& step) {
    engine::StepResult result;
    result.step = step.step;
    result.epoch = step.epoch;
    for (const auto& item : step.items) {
      engine::ItemResult& row = result.items.emplace_back();
      row.sequence = item.sequence;
      if (item.output != engine::Output::sample) continue;
      row.tokens.emplace_back().id = 7;
      if (--left_.at(item.sequence) == 0) row.finish = engine::Finish::length;
    }
    batch_.step_ended(result, kNow);
  }

  std::vector<cache::Group> groups_;
  scheduler::FairShares shares_;
  Batch batch_;
  cache::LeaseBook book_;
  std::map<SequenceId, std::uint32_t> left_;  // tokens that each sequence may still have
  std::vector<TokenId> prompt_;
  std::mt19937_64 random_{11};
};

scheduler::Tenant at_most(std::uint32_t max_running, std::uint32_t uid) {
  return {.id = TenantId{uid},
          .policy = std::make_shared<const scheduler::TenantPolicy>(
              scheduler::TenantPolicy{.name = {}, .limits = {.max_running = max_running}})};
}

TEST_CASE("batch: a tenant has no more sequences than its max_running, and the others get the places that are left") {
  BatchServer server(/*max_sequences=*/6, /*num_blocks=*/200);
  const scheduler::Tenant limited = at_most(2, 1), free{.id = TenantId{2}};
  server.limits = {{limited.id, 2}};
  for (int i = 0; i < 8; ++i) server.submit(limited, 40, 10);
  for (int i = 0; i < 8; ++i) server.submit(free, 40, 10);
  while (server.turn()) continue;
  CHECK(server.sink->ends == std::vector(16, scheduler::Outcome::length));
  CHECK(server.most_running.at(limited.id) == 2);
  CHECK(server.most_running.at(free.id) >= 4);
}

TEST_CASE("batch: tokens of a step are reported once the next one is taken, and none of a stream that has ended") {
  BatchServer server(2, 50);
  const scheduler::Tenant tenant{.id = TenantId{1}};
  server.submit(tenant, 40, 3);
  REQUIRE(server.turn());
  CHECK(server.sink->num_tokens == 0);
  REQUIRE(server.turn());
  CHECK(server.sink->num_tokens == 1);
  REQUIRE(server.turn());
  CHECK_FALSE(server.turn());
  CHECK(server.sink->num_tokens == 3);

  const RequestId cancelled = server.submit(tenant, 40, 100);
  REQUIRE(server.turn());
  REQUIRE(server.streams.end(cancelled, {}, kNow));  // the batch hears of it by its report alone
  REQUIRE(server.turn());
  CHECK_FALSE(server.turn());
  CHECK(server.sink->num_tokens == 3);
}

TEST_CASE("batch: a newcomer is in the next step, though all places were taken and others wait") {
  BatchServer server(4, 200);
  const scheduler::Tenant crowd{.id = TenantId{1}}, newcomer{.id = TenantId{2}};
  for (int i = 0; i < 12; ++i) server.submit(crowd, 40, 60);
  for (int i = 0; i < 10; ++i) REQUIRE(server.turn());
  REQUIRE(server.running()[crowd.id] == 4);
  RequestId id = 0;
  server.during_step = [&] { id = server.submit(newcomer, 20, 5); };
  REQUIRE(server.turn());
  CHECK(server.streams.state(id) == RequestState::queued);
  REQUIRE(server.turn());
  CHECK(server.streams.state(id) == RequestState::running);
  server.report();
  const auto views = server.streams.views(kNow);
  CHECK(std::ranges::find(views, id, &RequestView::request)->generated_tokens == 1);
  CHECK(server.running()[crowd.id] == 3);
  while (server.turn()) continue;
  CHECK(server.sink->ends == std::vector(13, scheduler::Outcome::length));
}

TEST_CASE("batch: the answers to one request count each, and all of them come") {
  BatchServer server(8, 200);
  const scheduler::Tenant limited = at_most(2, 1);
  server.limits = {{limited.id, 2}};
  server.submit(limited, 40, 10, /*num_choices=*/5);
  server.submit(limited, 20, 10);
  while (server.turn()) continue;
  CHECK(server.sink->ends == std::vector(6, scheduler::Outcome::length));
  CHECK(server.sink->num_tokens == 60);
  CHECK(server.most_running.at(limited.id) == 2);
}

TEST_CASE("batch: a request waits until it is in a step, though it has a place") {
  BatchServer server(8, 400);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 8; ++i) ids.push_back(server.submit({.id = TenantId{i}}, 256, 4));
  std::size_t most = 0;
  do {
    const auto views = server.streams.views(kNow);
    std::size_t running = 0;
    for (const RequestView& view : views) {
      if (view.state != RequestState::running) continue;
      ++running;
      CHECK(view.computed_tokens + view.generated_tokens > 0);
    }
    CHECK(server.streams.counts().waiting() == views.size() - running);
    CHECK(server.streams.counts(0).states.waiting == views.size() - running);
    most = std::max(most, running);
  } while (server.turn());
  CHECK(most > 1);
  CHECK(server.sink->ends == std::vector(8, scheduler::Outcome::length));
}

TEST_CASE("batch: a parked sequence has no place, and waits for one when its client reads again") {
  BatchServer server(4, 200);
  const scheduler::Tenant limited = at_most(1, 1);
  server.limits = {{limited.id, 1}};
  const RequestId slow = server.submit(limited, 40, 10, 1, /*credit=*/3);
  const RequestId other = server.submit(limited, 40, 30);
  while (server.streams.state(slow) != RequestState::parked) REQUIRE(server.turn());
  while (server.streams.state(other) != RequestState::running) REQUIRE(server.turn());
  server.credit(slow, 100);
  CHECK(server.streams.state(slow) == RequestState::queued);
  while (server.streams.state(other) == RequestState::running) REQUIRE(server.turn());
  while (server.turn()) continue;
  CHECK(server.sink->ends == std::vector(2, scheduler::Outcome::length));
  CHECK(server.sink->num_tokens == 40);
}

TEST_CASE("batch: in any mix of tenants, choices, credit and few blocks the limits hold, and all requests end") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    BatchServer server(6, 30);
    for (std::uint32_t uid = 1; uid <= 3; ++uid) server.limits[TenantId{uid}] = uid;
    std::vector<RequestId> all;
    for (int i = 0; i < 60; ++i) {
      const auto uid = static_cast<std::uint32_t>(1 + random() % 4);
      const scheduler::Tenant tenant = uid == 4 ? scheduler::Tenant{.id = TenantId{uid}} : at_most(uid, uid);
      const auto choices = static_cast<std::uint32_t>(1 + random() % 3);
      const RequestId first = server.submit(tenant, 1 + random() % 150, 1 + random() % 40, choices, random() % 20);
      for (std::uint32_t choice = 0; choice < choices; ++choice) all.push_back(first + choice);
      for (int turn = 0; turn < 5; ++turn) {
        server.turn();
        server.credit(all[random() % all.size()], random() % 20);
      }
    }
    for (const RequestId id : all) server.credit(id, 1000);
    while (server.turn()) continue;
    CHECK(server.streams.live().empty());
    CHECK(server.sink->ends == std::vector(all.size(), scheduler::Outcome::length));
  }
}

TEST_CASE("batch: an answer ends with `length` at its tenant's max_context") {
  BatchServer server(4, 200);
  const scheduler::Tenant tenant{.id = TenantId{1},
                                 .policy = std::make_shared<const scheduler::TenantPolicy>(
                                     scheduler::TenantPolicy{.name = {}, .limits = {.max_context = 50}})};
  server.submit(tenant, 40, 100);
  while (server.turn()) continue;
  CHECK(server.sink->ends == std::vector{scheduler::Outcome::length});
  CHECK(server.sink->num_tokens == 10);
}

}  // namespace
}  // namespace troupe::actors
