// A Batch with a cache keeper and a worker of known step times: what its streams' receipts say.
#include "actors/batching/batch.h"

#include <catch2/catch.hpp>
#include <map>

#include "cache/lease_book.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr TenantId kAlice{1}, kBert{2};
constexpr std::uint32_t kThreads = 2;

TimePoint::duration batch_seconds(double seconds) {
  return std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

struct ReceiptSink : StreamSink {
  void tokens(TokenRun) override {}
  void end(End end) override { ends.emplace(end.choice, std::move(end)); }
  const Usage& usage(std::uint32_t choice = 0) const { return ends.at(choice).usage; }
  std::map<std::uint32_t, End> ends;
};

class BatchMachine {
 public:
  explicit BatchMachine(std::uint32_t num_blocks = 64, scheduler::PlannerOptions planner = {})
      : book_({.groups = {{.num_blocks = num_blocks}}}), batch_(options(num_blocks, planner), table_, shares_) {}
  ~BatchMachine() {
    End end;
    end.outcome = Outcome::cancelled;
    table_.end_all(end, end, now_);
    batch_.forget_all();
  }

  struct Asked {
    RequestId id = 0;
    std::shared_ptr<ReceiptSink> sink;
  };
  Asked ask(TenantId tenant, std::size_t prompt_tokens, std::uint32_t max_tokens, std::uint64_t credit = 1000,
            std::uint32_t num_choices = 1) {
    Request request;
    request.tenant.id = tenant;
    request.sampling.max_tokens = max_tokens;
    request.credit = credit;
    request.num_choices = num_choices;
    std::vector<TokenId> prompt(prompt_tokens, static_cast<TokenId>(10 + ++salt_));
    Asked asked{.id = 0, .sink = std::make_shared<ReceiptSink>()};
    asked.id = table_.add(std::move(request), asked.sink, now_);
    REQUIRE_FALSE(table_.admit(asked.id, now_));
    for (const AssignmentPtr& task : table_.assign(asked.id, std::move(prompt)))
      event([&] { batch_.enqueue(task, now_); });
    return asked;
  }
  void wait(double seconds) { now_ += batch_seconds(seconds); }
  bool step(double seconds) {
    if (!work_) return false;
    now_ += batch_seconds(seconds);
    const auto work = std::exchange(work_, nullptr);
    engine::StepResult result;
    result.step = work->batch.step;
    result.epoch = work->batch.epoch;
    result.kernels_began = now_ - batch_seconds(seconds);
    result.kernels_ended = now_;
    for (const engine::StepItem& item : work->batch.items) {
      engine::ItemResult& row = result.items.emplace_back();
      row.sequence = item.sequence;
      if (item.output == engine::Output::none) continue;
      row.tokens.emplace_back().id = 5;
      if (--tokens_left_.at(item.sequence) == 0) row.finish = engine::Finish::length;
    }
    charged_ += seconds;
    event([&] { batch_.step_ended(result, now_); });
    return true;
  }
  void fail_step(double seconds) {
    REQUIRE(work_);
    now_ += batch_seconds(seconds);
    const auto work = std::exchange(work_, nullptr);
    charged_ += seconds;
    event([&] {
      batch_.step_failed(
          {.epoch = work->batch.epoch, .step = work->batch.step, .why = {.what = "a test"}, .seconds = seconds}, now_);
    });
  }
  void credit(RequestId id, std::uint64_t tokens) {
    const auto granted = table_.grant(id, tokens, now_);
    event([&] { batch_.credit(id, granted.value()); });
  }
  void cancel(RequestId id) {
    End end;
    end.outcome = Outcome::cancelled;
    table_.end(id, end, now_);
    event([&] { batch_.forget(id); });
  }
  double charged() const { return charged_; }
  const std::vector<UsageEntry>& entries() const { return entries_; }

 private:
  static BatchOptions options(std::uint32_t num_blocks, scheduler::PlannerOptions planner) {
    BatchOptions options;
    options.capacity = {.context = 1024, .groups = {{.num_blocks = num_blocks}}};
    options.planner = planner;
    return options;
  }
  template <class Event>
  void event(Event&& happen) {
    batch_.begin_event(now_);
    happen();
    settle();
  }
  void settle() {
    for (;;) {
      batch_.decide(now_);
      if (auto work = batch_.take_work()) {
        for (const engine::SequenceSpec& spec : work->opens)
          tokens_left_[spec.id] =
              spec.num_prompt_tokens + spec.sampling.max_tokens - static_cast<std::uint32_t>(spec.tokens.size());
        if (!work->batch.items.empty()) work_ = std::move(work);
      }
      const std::vector<scheduler::LeaseMessage> leases = batch_.take_leases();
      table_.tell(batch_.take_news());
      if (leases.empty()) return;
      LeaseReply reply;
      for (const scheduler::LeaseMessage& message : leases) handle(message, reply);
      batch_.begin_event(now_);
      batch_.keeper_replied(reply, now_);
    }
  }
  void handle(const scheduler::LeaseMessage& message, LeaseReply& reply) {
    if (const auto* ended = std::get_if<scheduler::StepEnded>(&message)) book_.step_done(ended->epoch, ended->step);
    if (const auto* acquire = std::get_if<cache::Acquire>(&message)) book_.acquire(*acquire, reply.effects);
    if (const auto* extend = std::get_if<cache::Extend>(&message)) book_.extend(*extend, reply.effects);
    if (const auto* commit = std::get_if<cache::Commit>(&message)) book_.commit(*commit, reply.effects);
    if (const auto* yield = std::get_if<cache::Yield>(&message)) book_.yield(*yield, reply.effects);
    if (const auto* release = std::get_if<cache::Release>(&message)) book_.release(*release, reply.effects);
    if (const auto* predict = std::get_if<scheduler::Predict>(&message))
      reply.predictions.push_back({predict->request, 0});
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::vector<UsageEntry> entries_;
  StreamTable table_{
      {}, {.num_threads = kThreads, .on_usage = [this](const UsageEntry& entry) { entries_.push_back(entry); }}};
  scheduler::FairShares shares_;
  cache::LeaseBook book_;
  Batch batch_;
  std::shared_ptr<StepWork> work_;
  std::map<SequenceId, std::uint32_t> tokens_left_;
  double charged_ = 0;
  int salt_ = 0;
};

double compute_sum(const BatchMachine& machine) {
  double sum = 0;
  for (const UsageEntry& entry : machine.entries()) sum += entry.usage.compute_seconds;
  return sum;
}

}  // namespace

TEST_CASE("receipt: a request alone has all of each step, and the time between steps is stalled") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 40, 3);
  machine.wait(0.125);  // its first step is planned already
  REQUIRE(machine.step(1));
  REQUIRE(machine.step(0.5));
  REQUIRE(machine.step(0.5));
  REQUIRE_FALSE(machine.step(1));
  const Usage& usage = asked.sink->usage();
  CHECK(usage.compute_seconds == Approx(2));
  CHECK(usage.cpu_seconds == Approx(4));
  CHECK(usage.computed_tokens == 42);  // the last one is not computed
  CHECK(usage.stalled_seconds == Approx(0.125));
  CHECK(usage.block_seconds == Approx(2 * 2.125));
  CHECK(usage.tenant_share == Approx(1));
  CHECK(usage.prefill_seconds + usage.decode_seconds == Approx(2.125));
}

TEST_CASE("receipt: a step's time is divided among its rows by tokens, and the parts add up to what was charged") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 30, 4);
  REQUIRE(machine.step(1));  // Alice alone
  const auto bob = machine.ask(kBert, 3, 2);
  REQUIRE(machine.step(1));  // planned without Bert
  REQUIRE(machine.step(1));  // of 4 tokens, or Bert's 3 alone
  while (machine.step(1)) continue;
  CHECK(ann.sink->usage().computed_tokens == 33);
  CHECK(bob.sink->usage().computed_tokens == 4);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
  CHECK(ann.sink->usage().tenant_share < 1);
  CHECK(bob.sink->usage().tenant_share > 0);
  CHECK(bob.sink->usage().tenant_share < 1);
}

TEST_CASE("receipt: time out of credit is parked, not stalled") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 10, 3, /*credit=*/1);
  REQUIRE(machine.step(1));
  REQUIRE_FALSE(machine.step(1));
  machine.wait(5);
  machine.credit(asked.id, 9);
  REQUIRE(machine.step(1));
  REQUIRE(machine.step(1));
  const Usage& usage = asked.sink->usage();
  CHECK(usage.parked_seconds == Approx(5));
  CHECK(usage.stalled_seconds == Approx(0).margin(1e-9));
  CHECK(usage.block_seconds == Approx(8));  // kept meanwhile
}

TEST_CASE("receipt: a preempted request waits for its place, and computes its tokens again") {
  BatchMachine machine(/*num_blocks=*/4);
  const auto old = machine.ask(kAlice, 31, 60);
  const auto young = machine.ask(kAlice, 31, 60);
  int steps = 0;
  while (machine.step(0.25)) ++steps;
  REQUIRE(old.sink->ends.size() == 1);
  REQUIRE(young.sink->ends.size() == 1);
  const Usage& usage = young.sink->usage();
  REQUIRE(usage.preemptions > 0);
  CHECK(usage.preempted_seconds > 1);
  CHECK(usage.computed_tokens > 90);
  CHECK(old.sink->usage().computed_tokens == 90);
  CHECK(old.sink->usage().preempted_seconds == 0);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
  CHECK(usage.stalled_seconds == Approx(0).margin(1e-9));
  CHECK(usage.preempted_seconds + usage.queue_seconds < 0.25 * steps);
}

TEST_CASE("receipt: each of n answers has its own, and the first one that of the prompt") {
  BatchMachine machine;
  const auto asked = machine.ask(kAlice, 64, 4, 1000, /*num_choices=*/3);
  while (machine.step(1)) continue;
  REQUIRE(asked.sink->ends.size() == 3);
  CHECK(asked.sink->usage(0).computed_tokens == 64 + 3);
  CHECK(asked.sink->usage(0).cached_tokens == 0);
  for (const std::uint32_t choice : {1u, 2u}) {
    CHECK(asked.sink->usage(choice).cached_tokens == 63);
    CHECK(asked.sink->usage(choice).computed_tokens == 1 + 3);
  }
  CHECK(compute_sum(machine) == Approx(machine.charged()));
}

TEST_CASE("receipt: a step that failed is charged, and its tokens are not counted as computed") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 10, 2);
  machine.fail_step(3);
  while (machine.step(1)) continue;
  CHECK(ann.sink->usage().compute_seconds == Approx(machine.charged()));
  CHECK(ann.sink->usage().computed_tokens == 11);
  CHECK(ann.sink->usage().stalled_seconds == Approx(0).margin(1e-9));
}

TEST_CASE("receipt: the step in which a request was cancelled is charged to its tenant after its end") {
  BatchMachine machine;
  const auto ann = machine.ask(kAlice, 10, 5);
  REQUIRE(machine.step(1));
  machine.cancel(ann.id);
  CHECK(ann.sink->usage().compute_seconds == Approx(1));
  REQUIRE(machine.step(2));
  REQUIRE(machine.entries().size() == 2);
  CHECK(machine.entries()[0].outcome == Outcome::cancelled);
  CHECK_FALSE(machine.entries()[1].outcome);
  CHECK(machine.entries()[1].tenant.id == kAlice);
  CHECK(compute_sum(machine) == Approx(machine.charged()));
}

}  // namespace troupe::actors
