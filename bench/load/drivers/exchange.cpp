#include "bench/load/drivers/exchange.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "scheduler/outcome.h"

namespace troupe::load {

void Mailbox::post(News news) {
  const std::lock_guard lock(mutex_);
  news_.push_back(std::move(news));
  changed_.notify_one();
}

std::vector<Mailbox::News> Mailbox::take(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return !news_.empty(); });
  return std::exchange(news_, {});
}

void Brake::hold(double pause_s) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(pause_s), [&] { return released_; });
}

void Brake::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

namespace {

void fill_usage(RequestRecord& record, const client::Ended& ended) {
  const client::Usage& usage = ended.usage;
  record.prompt_tokens = usage.prompt_tokens;
  record.cached_tokens = usage.cached_tokens;
  record.preemptions = usage.preemptions;
  record.queue_s = usage.queue_seconds;
  if (ended.receipt) record.compute_s = ended.receipt->compute_seconds;
}

void fill_refusal(RequestRecord& record, const client::Ended& ended) {
  record.limit = ended.field;
  if (ended.retry_after) record.retry_after_s = std::chrono::duration<double>(*ended.retry_after).count();
}

EndKind to_kind(scheduler::OutcomeKind kind) {
  if (kind == scheduler::OutcomeKind::done) return EndKind::done;
  return kind == scheduler::OutcomeKind::refused ? EndKind::refused : EndKind::failed;
}

bool is_complete(client::Outcome outcome) {
  return outcome == client::Outcome::length || outcome == client::Outcome::eos || outcome == client::Outcome::stop_id ||
         outcome == client::Outcome::stop_string;
}

void fail(RequestRecord& record, const char* outcome, std::string message) {
  record.kind = EndKind::failed;
  record.outcome = outcome;
  record.message = std::move(message);
}

}  // namespace

void settle(Exchange& exchange) {
  RequestRecord& record = exchange.record;
  if (!exchange.end) return;
  record.num_ends = 1;
  if (!*exchange.end) {
    const Error& error = exchange.end->error();
    const bool hung_up = record.fault == Fault::disconnect && record.fault_at_s;
    record.kind = error.code == ErrorCode::busy ? EndKind::refused : EndKind::lost;
    record.outcome = hung_up ? "disconnected" : record.kind == EndKind::refused ? "connection_refused" : "connection";
    record.message = error.message;
    return;
  }
  const client::Ended& ended = **exchange.end;
  const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
  record.kind = to_kind(outcome.kind);
  record.outcome = outcome.name;
  record.message = ended.message;
  if (record.kind != EndKind::refused)
    fill_usage(record, ended);
  else
    fill_refusal(record, ended);
  if (exchange.out_of_order)
    fail(record, "out_of_order", "tokens were missing, or came twice");
  else if (is_complete(ended.outcome) && ended.usage.completion_tokens != record.completion_tokens)
    fail(record, "tokens_missing",
         fmt::format("of {} tokens {} came", ended.usage.completion_tokens, record.completion_tokens));
}

}  // namespace troupe::load
