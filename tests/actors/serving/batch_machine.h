// A Batch with a cache keeper and a worker of known step times, in one thread.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "actors/batching/batch.h"
#include "cache/lease_book.h"

namespace troupe::actors::test {

inline constexpr std::uint32_t kMachineThreads = 2;

inline TimePoint::duration batch_seconds(double seconds) {
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
  explicit BatchMachine(std::uint32_t num_blocks = 64, scheduler::PlannerOptions planner = {},
                        BatchOptions options = {})
      : book_({.groups = {{.num_blocks = num_blocks}}}),
        batch_(with(std::move(options), num_blocks, planner), table_, shares_) {
    shares_.on_charge([this](TenantId tenant, double seconds) { served_[tenant] += seconds; });
  }
  ~BatchMachine() {
    End end;
    end.outcome = scheduler::Outcome::cancelled;
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
    Asked asked{.id = 0, .sink = std::make_shared<ReceiptSink>()};
    std::vector<TokenId> prompt(prompt_tokens, static_cast<TokenId>(10 + ++salt_));
    asked.id = ask(std::move(request), std::move(prompt), asked.sink);
    return asked;
  }
  RequestId ask(Request request, std::vector<TokenId> prompt, std::shared_ptr<StreamSink> sink) {
    const RequestId id = table_.add(std::move(request), std::move(sink), now_);
    REQUIRE_FALSE(table_.admit(id, now_));
    for (const AssignmentPtr& task : table_.assign(id, std::move(prompt))) event([&] { batch_.enqueue(task, now_); });
    return id;
  }
  void wait(double seconds) { now_ += batch_seconds(seconds); }
  // copies: what each of the step's copies for a session's file, or from one, takes. A step that only copies computes
  // for no second.
  bool step(double seconds, double copies = 0) {
    if (!work_) return false;
    if (work_->batch.items.empty()) seconds = 0;
    now_ += batch_seconds(seconds);
    const auto work = std::exchange(work_, nullptr);
    for (ImageSave& save : work->saves) save.seconds = copies;
    for (ImageFill& fill : work->fills) fill.seconds = copies;
    num_saves_ += work->saves.size();
    num_fills_ += work->fills.size();
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
    end.outcome = scheduler::Outcome::cancelled;
    table_.end(id, end, now_);
    event([&] { batch_.forget(id); });
  }
  void session_read(RequestId id) {
    event([&] { batch_.session_read(id); });
  }
  double charged() const { return charged_; }                          // steps, without copies
  double served(TenantId tenant) const { return served_.at(tenant); }  // what its share is measured by
  std::size_t num_saves() const { return num_saves_; }
  std::size_t num_fills() const { return num_fills_; }
  const std::vector<UsageEntry>& entries() const { return entries_; }

 private:
  static BatchOptions with(BatchOptions options, std::uint32_t num_blocks, scheduler::PlannerOptions planner) {
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
        if (!work->batch.items.empty() || !work->saves.empty() || !work->fills.empty()) work_ = std::move(work);
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
      {}, {.num_threads = kMachineThreads, .on_usage = [this](const UsageEntry& entry) { entries_.push_back(entry); }}};
  scheduler::FairShares shares_;
  cache::LeaseBook book_;
  Batch batch_;
  std::shared_ptr<StepWork> work_;
  std::map<SequenceId, std::uint32_t> tokens_left_;
  double charged_ = 0;
  std::map<TenantId, double> served_;
  std::size_t num_saves_ = 0, num_fills_ = 0;
  int salt_ = 0;
};

}  // namespace troupe::actors::test
