#include "cli/client/answers.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "scheduler/outcome.h"

namespace troupe::cli {

using nlohmann::ordered_json;

ordered_json call_json(const client::ToolCall& call) {
  constexpr int kMostDepth = 64;  // it is written by recursion
  bool is_deep = false;
  const auto check = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
    is_deep |= depth > kMostDepth;
    return true;
  };
  ordered_json arguments = ordered_json::parse(call.arguments, check, /*allow_exceptions=*/false);
  if (arguments.is_discarded() || is_deep) arguments = call.arguments;
  ordered_json object{{"id", call.id}, {"name", call.name}, {"arguments", std::move(arguments)}};
  if (!call.is_complete) object["incomplete"] = true;
  return object;
}

std::string call_line(const client::ToolCall& call) {
  return printable_json(call_json(call).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

namespace {

bool is_refused(const client::Ended& ended) {
  return scheduler::info(ended.outcome).kind == scheduler::OutcomeKind::refused;
}

ordered_json to_json(const client::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},         {"cached_tokens", usage.cached_tokens},
          {"completion_tokens", usage.completion_tokens}, {"preemptions", usage.preemptions},
          {"queue_seconds", usage.queue_seconds},         {"prefill_seconds", usage.prefill_seconds},
          {"decode_seconds", usage.decode_seconds},       {"ttft_seconds", usage.ttft_seconds}};
}

ordered_json to_json(const client::Receipt& receipt) {
  ordered_json object{{"queue_seconds", receipt.queue_seconds},
                      {"prefill_seconds", receipt.prefill_seconds},
                      {"decode_seconds", receipt.decode_seconds},
                      {"stalled_seconds", receipt.stalled_seconds},
                      {"preempted_seconds", receipt.preempted_seconds},
                      {"parked_seconds", receipt.parked_seconds},
                      {"compute_seconds", receipt.compute_seconds},
                      {"cpu_seconds", receipt.cpu_seconds},
                      {"prompt_tokens", receipt.prompt_tokens},
                      {"cached_tokens", receipt.cached_tokens},
                      {"computed_tokens", receipt.computed_tokens},
                      {"block_seconds", receipt.block_seconds},
                      {"preemptions", receipt.preemptions},
                      {"drafted_tokens", receipt.drafted_tokens},
                      {"accepted_tokens", receipt.accepted_tokens},
                      {"share", receipt.share}};
  if (!receipt.recomputed_from.empty()) object["recomputed_from"] = receipt.recomputed_from;
  return object;
}

ordered_json to_json(const Answer& answer) {
  const client::Ended& ended = *answer.end;
  const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
  ordered_json object{{"outcome", outcome.name},
                      {"text", answer.text},
                      {"ids", answer.ids},
                      {"seed", ended.seed},
                      {"usage", to_json(ended.usage)}};
  if (ended.receipt) object["receipt"] = to_json(*ended.receipt);
  if (!ended.message.empty()) object["message"] = ended.message;
  if (!ended.field.empty()) object["field"] = ended.field;
  if (!ended.stop.empty()) object["stop"] = ended.stop;
  if (ended.limit) object["limit"] = *ended.limit;
  if (ended.retry_after) object["retry_after_ms"] = ended.retry_after->count();
  if (ended.predicted_first) object["predicted_first_ms"] = ended.predicted_first->count();
  if (ended.predicted_last) object["predicted_last_ms"] = ended.predicted_last->count();
  if (!answer.calls.empty()) {
    object["tool_calls"] = ordered_json::array();
    for (const client::ToolCall& call : answer.calls) object["tool_calls"].push_back(call_json(call));
  }
  if (!answer.logprobs.empty()) {
    object["logprobs"] = ordered_json::array();
    for (const client::Logprobs& entry : answer.logprobs) {
      ordered_json top = ordered_json::array();
      for (const client::TokenLogprob& other : entry.top) top.push_back({{"id", other.id}, {"logprob", other.logprob}});
      object["logprobs"].push_back({{"logprob", entry.logprob}, {"top", std::move(top)}});
    }
  }
  return object;
}

}  // namespace

Answers::Answers(const AnswerOptions& options, std::ostream& out)
    : options_(options), out_(out), answers_(options.count) {}

void Answers::take(const client::Tokens& tokens) {
  Answer& answer = answers_[tokens.choice];
  answer.text += tokens.text;
  answer.ids.insert(answer.ids.end(), tokens.ids.begin(), tokens.ids.end());
  answer.logprobs.insert(answer.logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
  for (const client::CallPart& part : tokens.calls) client::add_call_part(answer.calls, part);
  if (tokens.choice == shown_) show(tokens.text);
}

bool Answers::end(const client::Ended& ended) {
  if (is_refused(ended)) {
    for (Answer& answer : answers_)
      if (!answer.end) answer.end = ended;
  } else {
    answers_[ended.choice].end = ended;
  }
  while (shown_ < answers_.size() && answers_[shown_].end) {
    end_shown();
    if (++shown_ < answers_.size()) show(answers_[shown_].text);
  }
  return shown_ == answers_.size();
}

std::string Answers::label(std::size_t index) const {
  if (answers_.size() == 1) return "";
  return fmt::format("answer {} of {}: ", index + 1, answers_.size());
}

ordered_json Answers::json() const {
  if (answers_.size() == 1 || is_refused(*answers_.front().end)) return to_json(answers_.front());
  ordered_json choices = ordered_json::array();
  for (const Answer& answer : answers_) choices.push_back(to_json(answer));
  return {{"choices", std::move(choices)}};
}

void Answers::show(std::string_view text) {
  if (!options_.as_text || text.empty()) return;
  show_heading();
  out_ << (options_.shows_controls ? terminal_text_.show(text) : text) << std::flush;
}

void Answers::show_heading() {
  if (answers_.size() > 1 && !has_heading_)
    out_ << (shown_ > 0 ? "\n" : "") << "--- answer " << shown_ + 1 << " of " << answers_.size() << " ---\n";
  has_heading_ = true;
}

void Answers::end_shown() {
  const Answer& answer = answers_[shown_];
  if (options_.as_text && !is_refused(*answer.end)) {
    show_heading();
    if (!answer.text.empty() && answer.text.back() != '\n') out_ << terminal_text_.end() << '\n';
    for (const client::ToolCall& call : answer.calls) out_ << call_line(call) << '\n';
    out_ << std::flush;
  }
  has_heading_ = false;
  terminal_text_ = {};
}

}  // namespace troupe::cli
