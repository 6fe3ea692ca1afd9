#include "ipc/streams.h"

#include <fmt/format.h>

#include <algorithm>

#include "ipc/request_rules.h"

namespace troupe::ipc {

using scheduler::Outcome;

namespace {

// Of a request that comes in frames, which waits in no line.
scheduler::RequestLoad load_of(const actors::Request& request) {
  const std::uint64_t bytes = actors::input_bytes(request);
  return {.live = request.num_choices,
          .waiting = request.num_choices,
          .prompt_bytes = bytes,
          .texts = bytes > actors::kMaxTextInActor ? 1u : 0u,
          .vector_bytes = request.embed ? bytes : 0};
}

}  // namespace

Streams::Stream* Streams::find(std::uint64_t number) {
  const auto found = streams_.find(number);
  return found == streams_.end() ? nullptr : &found->second;
}

const Streams::Stream* Streams::find(std::uint64_t number) const {
  const auto found = streams_.find(number);
  return found == streams_.end() ? nullptr : &found->second;
}

std::vector<std::uint64_t> Streams::questions() const {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, stream] : streams_)
    if (stream.choices.empty()) numbers.push_back(number);
  return numbers;
}

Streams::Stream& Streams::enter(std::uint64_t number, RequestKind kind, std::shared_ptr<Tally> tally,
                                std::uint64_t count, Arrival arrival) {
  Stream& stream = streams_[number];
  stream.tally = std::move(tally);
  stream.arrival = std::move(arrival);
  stream.kind = kind;
  stream.count = count;
  return stream;
}

// The sink may get the end before submit() of the gateway returns; it stays in the outbox until this thread writes it.
void Streams::submit(Stream& stream, actors::Request request, std::shared_ptr<actors::StreamSink> sink) {
  Choice choice;
  choice.credit = request.credit;
  choice.empty_since = Clock::now();
  const std::size_t before = stream.choices.size();
  stream.choices.insert(stream.choices.end(), request.num_choices, choice);
  stream.num_open += request.num_choices;
  request.uid = uid_;
  request.protocol = stream.arrival.protocol;
  if (!stream.held) stream.held = stream.tally->line.take(load_of(request));
  const actors::RequestId first = hub_.gateway->submit(std::move(request), std::move(sink));
  for (std::size_t i = before; i < stream.choices.size(); ++i) {
    stream.choices[i].request = first + (i - before);
    stream.choices[i].own_number = ++stream.tally->num_submitted;
  }
}

Streams::Stream* Streams::enter_tokens(std::uint64_t number, const actors::TokenRun& run) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return nullptr;
  found->second.held.begun();
  Choice& choice = found->second.choices.at(run.choice);
  const std::uint64_t count = run.ids.size();
  if (found->second.implicit_credit) {
    written_.emplace_back(choice.request, count);
  } else {
    choice.credit -= std::min(choice.credit, count);
    if (choice.credit == 0) {
      choice.empty_since = Clock::now();
      hub_.arm_tick();
    }
  }
  return &found->second;
}

std::optional<Streams::EndedChoice> Streams::enter_end(std::uint64_t number, actors::End& end) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return std::nullopt;
  Stream& stream = found->second;
  Choice& choice = stream.choices.at(end.choice);
  choice.ended = true;
  const bool is_last = --stream.num_open == 0;
  if (choice.stalled && end.outcome == Outcome::cancelled)
    end.message =
        fmt::format("no credit was granted for {} ms (stall_timeout)", hub_.options.limits.stall_timeout.count());
  else if (choice.cancelled_by && end.outcome == Outcome::cancelled)
    end.message = fmt::format("uid {} asked for it with CancelRequest", *choice.cancelled_by);
  const RequestKind kind = stream.kind;
  const std::shared_ptr<Tally> tally = stream.tally;
  if (is_last) streams_.erase(found);  // before the client can see the end and reuse the number
  last_end_ = Clock::now();
  hub_.count_ended(*tally, kind, end.outcome);
  tally->tokens.prompt += end.usage.prompt_tokens;
  tally->tokens.cached += end.usage.cached_tokens;
  tally->tokens.generated += end.usage.completion_tokens;
  return EndedChoice{is_last};
}

bool Streams::enter_answer(std::uint64_t number, Outcome outcome) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return false;
  const Stream& stream = found->second;
  hub_.count_ended(*stream.tally, stream.kind, outcome, stream.count);
  if (stream.choices.empty()) hub_.tell_ended(stream.arrival, stream.kind, outcome);
  streams_.erase(found);
  last_end_ = Clock::now();
  return true;
}

void Streams::grant(std::uint64_t number, std::uint32_t choice_number, std::uint64_t tokens) {
  Stream* const stream = find(number);
  if (!stream || stream->implicit_credit || choice_number >= stream->choices.size()) return;
  Choice& choice = stream->choices[choice_number];
  tokens = std::min(tokens, kMaxCredit - choice.credit);
  choice.credit += tokens;
  if (tokens > 0 && choice.to_credit == 0) granted_.push_back(number);
  choice.to_credit += tokens;
}

void Streams::pass_on_granted() {
  for (const std::uint64_t number : granted_) {
    Stream* const stream = find(number);
    if (!stream) continue;
    for (Choice& choice : stream->choices) {
      const std::uint64_t tokens = std::exchange(choice.to_credit, 0);
      if (tokens > 0) hub_.gateway->credit(choice.request, tokens);
    }
  }
  granted_.clear();
}

void Streams::pass_on_written() {
  for (const auto& [request, tokens] : std::exchange(written_, {})) hub_.gateway->credit(request, tokens);
}

bool Streams::cancel_stalled(Clock::time_point now) {
  bool any = false;
  for (auto& [number, stream] : streams_) {
    if (stream.implicit_credit) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || choice.credit > 0 || choice.stalled) continue;
      any = true;
      if (now - choice.empty_since < hub_.options.limits.stall_timeout) continue;
      choice.stalled = true;
      cancel(choice);
    }
  }
  return any;
}

void Streams::cancel(Choice& choice) const {
  if (!choice.ended && !std::exchange(choice.cancelled, true)) hub_.gateway->cancel(choice.request);
}

void Streams::cancel(Stream& stream) const {
  for (Choice& choice : stream.choices) cancel(choice);
  if (stream.unwanted) *stream.unwanted = true;
}

void Streams::cancel(std::uint64_t number) {
  if (Stream* const stream = find(number)) cancel(*stream);
}

void Streams::cancel_all() {
  for (auto& [number, stream] : streams_) {
    cancel(stream);
    hub_.count_ended(*stream.tally, stream.kind, Outcome::cancelled,
                     stream.choices.empty() ? stream.count : stream.num_open);
    if (stream.choices.empty()) hub_.tell_ended(stream.arrival, stream.kind, Outcome::cancelled);
  }
  streams_.clear();
}

void Streams::add_requests(OwnRequests& own, TenantId tenant, bool is_asking) const {
  for (const auto& [number, stream] : streams_) {
    if (stream.tally->tenant != tenant) continue;
    for (const Choice& choice : stream.choices)
      if (!choice.ended) own[choice.request] = {.number = choice.own_number, .stream = is_asking ? number : 0};
  }
}

bool Streams::cancel_request(std::uint64_t number, const scheduler::Tenant& by, std::uint32_t by_uid) {
  for (auto& [id, stream] : streams_) {
    if (!by.is_owner && stream.tally->tenant != by.id) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || number != (by.is_owner ? choice.request : choice.own_number)) continue;
      choice.cancelled_by = by_uid;
      cancel(choice);
      return true;
    }
  }
  return false;
}

}  // namespace troupe::ipc
