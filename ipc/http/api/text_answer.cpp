#include "ipc/http/api/text_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "config/assert.h"
#include "config/utf8.h"
#include "engine/tokenizers/tokenizer.h"
#include "ipc/http/json/receipt.h"

namespace troupe::ipc::api {
namespace {

constexpr std::string_view kEventStream = "text/event-stream";

AnswerHead error_head(const ApiError& error, Dialect dialect) {
  return {.status = known_status(error, dialect), .retry_after = error.retry_after, .should_retry = error.retryable};
}

void write_receipt(JsonWriter& json, const actors::End& end) {
  const actors::Usage& usage = end.usage;
  json.begin_object().field("index", end.choice).field("outcome", scheduler::info(end.outcome).name);
  if (!end.stop.empty()) json.field("stop", end.stop);
  // As text: numbers above 2^53 are not exact in every client.
  json.field("seed", std::to_string(end.seed));
  json.field("prompt_tokens", usage.prompt_tokens).field("cached_tokens", usage.cached_tokens);
  json.field("completion_tokens", usage.completion_tokens).field("computed_tokens", usage.computed_tokens);
  json.field("queue_seconds", usage.queue_seconds).field("prefill_seconds", usage.prefill_seconds);
  json.field("decode_seconds", usage.decode_seconds).field("ttft_seconds", usage.ttft_seconds);
  json.field("stalled_seconds", usage.stalled_seconds).field("preempted_seconds", usage.preempted_seconds);
  json.field("parked_seconds", usage.parked_seconds).field("compute_seconds", usage.compute_seconds);
  json.field("cpu_seconds", usage.cpu_seconds).field("block_seconds", usage.block_seconds);
  json.field("drafted_tokens", usage.drafted_tokens).field("accepted_tokens", usage.accepted_tokens);
  json.field("share", usage.tenant_share).field("preemptions", usage.preemptions);
  if (usage.tool_calls > 0)
    json.field("tool_calls", usage.tool_calls).field("tool_call_tokens", usage.tool_call_tokens);
  if (!end.recomputed_from.empty()) json.field("recomputed_from", end.recomputed_from);
  if (end.proof) write_receipt(json.key("proof"), *end.proof);
  json.end_object();
}

void write_token(JsonWriter& json, const std::string& bytes, float logprob) {
  json.field("token", bytes).field("logprob", shown_logprob(logprob)).key("bytes").begin_array();
  for (const char c : bytes) json.natural(static_cast<unsigned char>(c));
  json.end_array();
}

}  // namespace

void AnswerFacts::set(const actors::AnsweringModel& answering, bool with_pieces) {
  if (takes_name) model = valid_utf8(answering.name);
  fingerprint = answering.numerics_id;
  reasoning = answering.reasoning;
  tool_format = answering.tool_format;
  if (!with_pieces || !answering.tokenizer) return;
  token_bytes = [tokenizer = answering.tokenizer](TokenId id) {
    std::string piece = tokenizer->piece(id);
    return piece.empty() ? tokenizer->raw_piece(id) : piece;
  };
}

TextAnswer::TextAnswer(ApiCall call, AnswerFacts facts, bool splits_reasoning, bool keeps_text)
    : call_(std::move(call)), facts_(std::move(facts)), splits_reasoning_(splits_reasoning), keeps_text_(keeps_text) {
  make_readers();
}

void TextAnswer::make_readers() {
  const ReasoningMarkers markers = splits_reasoning_ ? facts_.reasoning : ReasoningMarkers{"", ""};
  choices_.clear();
  for (std::uint32_t i = 0; i < call_.num_choices(); ++i) {
    ChoiceState& choice = choices_.emplace_back(ChoiceState{.splitter = ReasoningSplitter(markers, false)});
    if (call_.request.tools && facts_.tool_format != nullptr)
      choice.reader.emplace(*facts_.tool_format, call_.request.tools->set, id_seed(), i);
  }
}

void TextAnswer::set_model(const actors::AnsweringModel& model) {
  for (const ChoiceState& each : choices_) TROUPE_ASSERT(!each.has_begun);
  facts_.set(model, call_.logprobs || call_.echo);
  make_readers();
}

void TextAnswer::set_reasoning_open() {
  if (!splits_reasoning_) return;
  for (ChoiceState& each : choices_) {
    TROUPE_ASSERT(!each.has_begun);
    each.splitter = ReasoningSplitter(facts_.reasoning, true);
  }
}

std::vector<ChoiceText> TextAnswer::split(std::uint32_t index, actors::TokenRun&& run) {
  ChoiceState& choice = choices_[index];
  const bool reasoned = choice.splitter.is_reasoning();
  ReasoningSplitter::Parts parts = choice.splitter.push(run.text);
  if (reasoned || choice.splitter.is_reasoning()) choice.reasoning_tokens += run.ids.size();
  std::vector<ChoiceText> pieces = read_calls(index, std::move(parts.content), false);
  if (pieces.empty() || pieces.front().call) pieces.insert(pieces.begin(), ChoiceText());
  ChoiceText& first = pieces.front();
  if (call_.show_reasoning) first.reasoning = std::move(parts.reasoning);
  first.logprobs = std::move(run.prompt_logprobs);
  first.logprobs.insert(first.logprobs.end(), std::make_move_iterator(run.logprobs.begin()),
                        std::make_move_iterator(run.logprobs.end()));
  return pieces;
}

std::vector<ChoiceText> TextAnswer::read_calls(std::uint32_t index, std::string content, bool at_end) {
  ChoiceState& choice = choices_[index];
  if (!choice.reader) return {{.content = std::move(content)}};
  std::vector<ChoiceText> pieces;
  for (AnswerPiece& piece : at_end ? choice.reader->finish(content) : choice.reader->push(content)) {
    ChoiceText& text = pieces.emplace_back(ChoiceText{.content = std::move(piece.content)});
    if (piece.call) text.call = client_call(choice, *std::move(piece.call));
  }
  return pieces;
}

void TextAnswer::keep(ChoiceState& choice, const ChoiceText& text) const {
  if (call_.stream && !keeps_text_) return;
  choice.text.reasoning += text.reasoning;
  choice.text.content += text.content;
  choice.text.logprobs.insert(choice.text.logprobs.end(), text.logprobs.begin(), text.logprobs.end());
  if (!text.call) return;
  if (text.call->begins)
    choice.calls.push_back(*text.call);
  else
    choice.calls.back().arguments += text.call->arguments;
}

ClientCall TextAnswer::client_call(ChoiceState& choice, CallText&& call) const {
  if (call.begins) {
    const auto found = call_.client_tools.find(call.name);
    choice.open_tool = found != call_.client_tools.end() ? found->second : ClientTool{.name = call.name};
    choice.custom_input.reset();
    if (choice.open_tool.is_custom) choice.custom_input.emplace();
  }
  ClientCall told{std::move(call), choice.open_tool};
  if (!choice.custom_input) return told;
  told.arguments = choice.custom_input->push(told.arguments);
  if (told.ends) told.arguments += choice.custom_input->finish();
  return told;
}

std::uint64_t TextAnswer::id_seed() const {
  std::uint64_t seed = call_.request.sampling.seed;
  if (!call_.request.has_seed)
    for (const char c : facts_.id) seed = seed * 131 + static_cast<unsigned char>(c);
  return seed;
}

AnswerHead stream_answer_head() { return {.content_type = kEventStream, .streams = true}; }

// For OpenAI's clients a comment of server-sent events.
std::string passed_over_event(Dialect dialect) {
  return dialect == Dialect::anthropic ? "event: ping\ndata: {\"type\":\"ping\"}\n\n" : ": keep-alive\n\n";
}

std::string waiting_event(std::string_view state, Dialect dialect) {
  return fmt::format(": {}\n", state) + (dialect == Dialect::anthropic ? passed_over_event(dialect) : "\n");
}

void TextAnswer::start(AnswerOutput& out) {
  if (has_begun_) return;
  has_begun_ = true;
  out.head = stream_answer_head();
  begin(out.bytes);
}

AnswerOutput TextAnswer::on_tokens(actors::TokenRun&& run) {
  TROUPE_ASSERT(!finished_);
  TROUPE_ASSERT(run.choice < choices_.size());
  const std::uint32_t index = run.choice;
  ChoiceState& choice = choices_[index];
  choice.has_begun = true;
  choice.end.usage.prompt_tokens = run.prompt_tokens;
  choice.end.usage.cached_tokens = run.cached_tokens;
  if (call_.only_prompt) {
    run.ids.clear();
    run.text.clear();
    run.logprobs.clear();
  }
  choice.tokens += run.ids.size();
  std::vector<ChoiceText> pieces = split(index, std::move(run));
  std::erase_if(pieces, [](const ChoiceText& piece) { return piece.empty(); });
  AnswerOutput out;
  const bool has_events = call_.stream && (!pieces.empty() || !held_.empty());
  std::string* const events = has_events ? &events_to(out) : nullptr;
  for (const ChoiceText& piece : pieces) {
    keep(choice, piece);
    if (events != nullptr) add(*events, index, piece);
  }
  return out;
}

bool TextAnswer::all_admitted() const {
  for (std::size_t i = 0; i < choices_.size(); i += call_.request.num_choices) {
    const auto first = choices_.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::none_of(first, first + call_.request.num_choices, [](const ChoiceState& each) { return each.has_begun; }))
      return false;
  }
  return true;
}

std::string& TextAnswer::events_to(AnswerOutput& out) {
  if (!has_begun_ && !all_admitted()) return held_;
  start(out);
  out.bytes += std::exchange(held_, {});
  return out.bytes;
}

AnswerOutput TextAnswer::on_end(actors::End&& ended) {
  TROUPE_ASSERT(!finished_);
  TROUPE_ASSERT(ended.choice < choices_.size());
  const bool is_error = scheduler::info(ended.outcome).kind != scheduler::OutcomeKind::done ||
                        ended.outcome == scheduler::Outcome::cancelled;
  if (is_error) {
    finished_ = true;
    ApiError error = api_error(ended);
    error.param = field_here(error.param, call_.endpoint);
    if (error.param == "prompt" && !call_.more_prompts.empty())
      error.param = fmt::format("prompt[{}]", ended.choice / call_.request.num_choices);
    if (!has_begun_) return error_answer(error, info(call_.endpoint).dialect, "req_" + facts_.id);
    AnswerOutput out{.last = true, .cut_off = true};
    fail(out.bytes, error);
    return out;
  }
  const std::uint32_t index = ended.choice;
  ChoiceState& choice = choices_[index];
  TROUPE_ASSERT(!choice.has_ended);
  if (call_.only_prompt) {
    ended.outcome = scheduler::Outcome::length;
    ended.usage.completion_tokens = 0;
  }
  ReasoningSplitter::Parts parts = choice.splitter.finish();
  if (!call_.show_reasoning) parts.reasoning.clear();
  std::vector<ChoiceText> rest = read_calls(index, std::move(parts.content), true);
  rest.insert(rest.begin(), {.reasoning = std::move(parts.reasoning)});
  std::erase_if(rest, [](const ChoiceText& piece) { return piece.empty(); });
  if (!call_.stream)
    for (const ChoiceText& piece : rest) keep(choice, piece);
  choice.has_begun = choice.has_ended = true;
  choice.end = std::move(ended);
  finished_ = ++num_ended_ == choices_.size();
  if (!call_.stream) {
    if (!finished_) return {};
    return {.head = AnswerHead{}, .bytes = body(), .last = true};
  }
  AnswerOutput out;
  std::string& events = events_to(out);
  for (const ChoiceText& piece : rest) {
    keep(choice, piece);
    add(events, index, piece);
  }
  end_choice(events, index);
  if (finished_) end(events);
  out.last = finished_;
  return out;
}

AnswerOutput TextAnswer::on_silence() {
  AnswerOutput out;
  if (!call_.stream || finished_) return out;
  start(out);
  out.bytes += std::exchange(held_, {});
  if (out.bytes.empty()) out.bytes = passed_over_event(info(call_.endpoint).dialect);
  return out;
}

void TextAnswer::fail(std::string& out, const ApiError& error) {
  out += error_event(error, info(call_.endpoint).dialect);
}

TextAnswer::Totals TextAnswer::totals() const {
  Totals sum;
  for (const ChoiceState& each : choices_) {
    sum.completion += each.end.usage.completion_tokens;
    sum.reasoning += each.reasoning_tokens;
  }
  for (std::size_t i = 0; i < choices_.size(); i += call_.request.num_choices) {
    actors::Usage of_prompt;  // while the answer streams, not each of its choices has begun
    for (std::size_t j = i; j < i + call_.request.num_choices && j < choices_.size(); ++j)
      if (const actors::Usage& usage = choices_[j].end.usage; usage.prompt_tokens > of_prompt.prompt_tokens)
        of_prompt = usage;
    sum.prompt += of_prompt.prompt_tokens;
    sum.cached += of_prompt.cached_tokens;
  }
  return sum;
}

void TextAnswer::write_usage(JsonWriter& json) const {
  const Totals sum = totals();
  json.begin_object().field("prompt_tokens", sum.prompt).field("completion_tokens", sum.completion);
  json.field("total_tokens", sum.prompt + sum.completion);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", sum.cached).end_object();
  json.key("completion_tokens_details").begin_object().field("reasoning_tokens", sum.reasoning).end_object();
  json.end_object();
}

void TextAnswer::write_receipts(JsonWriter& json, std::uint32_t first, std::uint32_t count) const {
  const Echoed& echoed = call_.echoed;
  if (!call_.receipt && echoed.user.empty() && echoed.safety_identifier.empty() && echoed.metadata.empty()) return;
  json.key("troupe").begin_object();
  if (call_.receipt) {
    json.key("choices").begin_array();
    for (std::uint32_t i = first; i < first + count; ++i) write_receipt(json, choices_[i].end);
    json.end_array();
  }
  if (!echoed.user.empty()) json.raw_field("user", echoed.user);
  if (!echoed.safety_identifier.empty()) json.raw_field("safety_identifier", echoed.safety_identifier);
  if (!echoed.metadata.empty()) json.raw_field("metadata", echoed.metadata);
  json.end_object();
}

void TextAnswer::write_logprobs(JsonWriter& json, const std::vector<engine::SampledToken>& tokens) const {
  json.begin_array();
  for (const engine::SampledToken& token : tokens) {
    json.begin_object();
    write_token(json, token_bytes(token.id), token.logprob);
    json.key("top_logprobs").begin_array();
    for (const engine::TokenLogprob& each : token.top) {
      json.begin_object();
      write_token(json, token_bytes(each.id), each.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

std::string TextAnswer::token_bytes(TokenId id) const {
  return facts_.token_bytes ? facts_.token_bytes(id) : std::string();
}

std::string_view finish_reason(const ChoiceState& choice) {
  using scheduler::Outcome;
  const Outcome outcome = choice.end.outcome;
  if (outcome == Outcome::length || outcome == Outcome::deadline) return "length";
  return choice.reader && choice.reader->num_calls() > 0 ? "tool_calls" : "stop";
}

float shown_logprob(float logprob) {
  constexpr float kNoProbability = -9999.0f;
  return std::isfinite(logprob) ? logprob : kNoProbability;
}

std::string server_sent_event(std::string_view name, std::string_view json) {
  std::string out;
  if (!name.empty()) fmt::format_to(std::back_inserter(out), "event: {}\n", name);
  fmt::format_to(std::back_inserter(out), "data: {}\n\n", json);
  return out;
}

AnswerOutput error_answer(const ApiError& error, Dialect dialect, const std::string& request_id) {
  return {.head = error_head(error, dialect), .bytes = error_body(error, dialect, request_id), .last = true};
}

std::unique_ptr<ApiAnswer> make_answer(ApiCall call, AnswerFacts facts) {
  switch (call.endpoint) {
    case Endpoint::chat_completions:
      return make_chat_answer(std::move(call), std::move(facts));
    case Endpoint::completions:
      return make_completion_answer(std::move(call), std::move(facts));
    case Endpoint::embeddings:
      return make_embedding_answer(std::move(call), std::move(facts));
    case Endpoint::responses:
      return make_response_answer(std::move(call), std::move(facts));
    case Endpoint::messages:
      return make_messages_answer(std::move(call), std::move(facts));
    case Endpoint::count_tokens:
    case Endpoint::tokenize:
    case Endpoint::detokenize:
    case Endpoint::apply_template:
      break;
  }
  TROUPE_ASSERT(false);  // they have bodies of their own (answer.h)
  return nullptr;
}

}  // namespace troupe::ipc::api
