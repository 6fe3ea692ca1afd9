// The requests of a connection that are not fully answered, and what is counted of them.
#include <fmt/format.h>

#include <algorithm>

#include "ipc/connection.h"

namespace troupe::ipc {

using scheduler::Outcome;

Connection::Stream& Connection::enter_stream(std::uint64_t number, RequestKind kind, std::uint64_t count) {
  Stream& stream = streams_[number];
  stream.tally = tally_;
  stream.kind = kind;
  stream.count = count;
  return stream;
}

// The sink may get the end before submit() of the gateway returns; it stays in the outbox until this thread writes it.
void Connection::submit(Stream& stream, actors::Request request, std::shared_ptr<actors::StreamSink> sink) {
  Choice choice;
  choice.credit = request.credit;
  choice.empty_since = Clock::now();
  const std::size_t before = stream.choices.size();
  stream.choices.insert(stream.choices.end(), request.num_choices, choice);
  stream.num_open += request.num_choices;
  request.uid = caller_.peer.uid;
  const actors::RequestId first = hub_.gateway->submit(std::move(request), std::move(sink));
  for (std::size_t i = before; i < stream.choices.size(); ++i) {
    stream.choices[i].request = first + (i - before);
    stream.choices[i].own_number = ++stream.tally->num_submitted;
  }
}

Connection::Stream* Connection::enter_tokens(std::uint64_t number, const actors::TokenRun& run) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return nullptr;
  Choice& choice = found->second.choices.at(run.choice);
  const std::uint64_t count = run.ids.size();
  if (found->second.implicit_credit) {
    to_grant_.emplace_back(choice.request, count);
  } else {
    choice.credit -= std::min(choice.credit, count);
    if (choice.credit == 0) {
      choice.empty_since = Clock::now();
      hub_.arm_tick();
    }
  }
  return &found->second;
}

std::optional<Connection::EndedChoice> Connection::enter_end(std::uint64_t number, actors::End& end) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return std::nullopt;
  Stream& stream = found->second;
  Choice& choice = stream.choices.at(end.choice);
  choice.ended = true;
  const bool is_last = --stream.num_open == 0;
  if (choice.stalled && end.outcome == Outcome::cancelled)
    end.message = fmt::format("no credit was granted for {} ms (stall_timeout)", hub_.options.stall_timeout.count());
  else if (choice.cancelled_by && end.outcome == Outcome::cancelled)
    end.message = fmt::format("uid {} asked for it with CancelRequest", *choice.cancelled_by);
  const RequestKind kind = stream.kind;
  const std::shared_ptr<Tally> tally = stream.tally;
  if (is_last) streams_.erase(found);  // before the client can see the end and reuse the number
  last_answer_ = Clock::now();
  count_ended(*tally, kind, end.outcome);
  tally->tokens.prompt += end.usage.prompt_tokens;
  tally->tokens.cached += end.usage.cached_tokens;
  tally->tokens.generated += end.usage.completion_tokens;
  return EndedChoice{is_last};
}

bool Connection::enter_answer(std::uint64_t number, Outcome outcome) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return false;
  const Stream& stream = found->second;
  count_ended(*stream.tally, stream.kind, outcome, stream.count);
  streams_.erase(found);
  last_answer_ = Clock::now();
  return true;
}

void Connection::cancel_choice(Choice& choice) const {
  if (!choice.ended && !std::exchange(choice.cancelled, true)) hub_.gateway->cancel(choice.request);
}

void Connection::cancel_stream(Stream& stream) const {
  for (Choice& choice : stream.choices) cancel_choice(choice);
  if (stream.unwanted) *stream.unwanted = true;
}

void Connection::cancel_streams() {
  for (auto& [number, stream] : streams_) {
    cancel_stream(stream);
    count_ended(*stream.tally, stream.kind, Outcome::cancelled,
                stream.choices.empty() ? stream.count : stream.num_open);
  }
  streams_.clear();
}

void Connection::add_requests(OwnRequests& own, TenantId tenant, bool is_asking) const {
  for (const auto& [number, stream] : streams_) {
    if (stream.tally->tenant != tenant) continue;
    for (const Choice& choice : stream.choices)
      if (!choice.ended) own[choice.request] = {.number = choice.own_number, .stream = is_asking ? number : 0};
  }
}

bool Connection::cancel_request(std::uint64_t number, const scheduler::Tenant& by, std::uint32_t by_uid) {
  for (auto& [id, stream] : streams_) {
    if (!by.is_owner && stream.tally->tenant != by.id) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || number != (by.is_owner ? choice.request : choice.own_number)) continue;
      choice.cancelled_by = by_uid;
      cancel_choice(choice);
      return true;
    }
  }
  return false;
}

void Connection::count_received(RequestKind kind, std::uint64_t count) {
  hub_.counts.received(kind, count);
  tally_->counts.received(kind, count);
}

void Connection::count_ended(Tally& tally, RequestKind kind, Outcome outcome, std::uint64_t count) {
  hub_.counts.ended(kind, outcome, count);
  tally.counts.ended(kind, outcome, count);
  if (scheduler::info(outcome).kind == scheduler::OutcomeKind::refused) tally.refusals.refused(Clock::now());
}

}  // namespace troupe::ipc
