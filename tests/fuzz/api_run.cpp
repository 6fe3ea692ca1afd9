#include "tests/fuzz/api_run.h"

#include <string>

#include "config/utf8.h"
#include "ipc/http/api/answer.h"
#include "ipc/http/json/json_value.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::fuzz {
namespace {

using namespace ipc::api;

bool is_one_line(std::string_view message) { return message.find('\n') == std::string_view::npos; }

void check_error(const ApiError& error, Dialect dialect) {
  TROUPE_ASSERT(!error.message.empty() && is_one_line(error.message) && is_one_line(error.param));
  TROUPE_ASSERT(error.status >= 400 && error.status < 500);
  TROUPE_ASSERT(read_json(error_body(error, dialect)));
}

void check_request(const ApiCall& call) {
  const actors::Request& request = call.request;
  TROUPE_ASSERT(request.num_choices >= 1 && request.num_choices <= actors::kMaxChoices);
  TROUPE_ASSERT(request.stop_strings.size() <= actors::kMaxStopStrings);
  TROUPE_ASSERT(request.sampling.logit_bias.size() <= engine::kMaxLogitBias);
  TROUPE_ASSERT(request.sampling.stop_ids.size() <= engine::kMaxStopIds);
  if (!request.embed) TROUPE_ASSERT(!engine::validate(request.sampling, std::numeric_limits<std::int32_t>::max()));
  const auto* const chat = std::get_if<actors::ChatPrompt>(&request.prompt);
  if (!chat) return;
  TROUPE_ASSERT(!chat->messages.empty());
  const std::string& arguments = chat->variables;
  if (!arguments.empty()) {
    const auto read = read_json(arguments);
    TROUPE_ASSERT(read && read->as<JsonObject>());
  }
}

// A stream's events, each with a line of data; [DONE] is the last.
void check_events(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find("\n\n");
    TROUPE_ASSERT(end != std::string_view::npos);
    std::string_view event = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
    TROUPE_ASSERT(event.starts_with("data: "));
    event.remove_prefix(6);
    if (event != "[DONE]") TROUPE_ASSERT(read_json(event));
  }
}

actors::End end_of_choice(std::uint32_t choice, scheduler::Outcome outcome) {
  actors::End end;
  end.choice = choice;
  end.outcome = outcome;
  return end;
}

// Answers with the body as the text, in pieces that do not cut characters, as the gateway gives it.
void run_answer(ApiCall call, std::string_view body) {
  const std::uint32_t num_choices = std::min(call.request.num_choices, 3u);
  call.request.num_choices = num_choices;
  const bool streams = call.stream;
  AnswerFacts facts{.id = "1", .model = std::string(body.substr(0, 9))};
  facts.token_bytes = [](TokenId id) { return std::string(1, static_cast<char>(id)); };
  const auto answer = make_answer(std::move(call), std::move(facts));
  const std::string text = valid_utf8(body.substr(0, 4096));
  std::string bytes;
  bool has_head = false;
  const auto add = [&](const AnswerOutput& out) {
    TROUPE_ASSERT(!out.bytes.empty() || (!out.head && !out.last));
    TROUPE_ASSERT(out.head.has_value() == (!has_head && !out.bytes.empty()));
    has_head = has_head || out.head;
    bytes += out.bytes;
  };
  std::uint32_t piece = 0;
  for (std::size_t at = 0; at < text.size(); ++piece) {
    std::size_t length = 1 + piece * 7 % 23;
    while (at + length < text.size() && (static_cast<unsigned char>(text[at + length]) & 0xC0) == 0x80) ++length;
    actors::TokenRun run{
        .choice = piece % num_choices, .first_index = 0, .ids = {1}, .text = text.substr(at, length), .logprobs = {}};
    run.logprobs = {{.id = static_cast<TokenId>(piece & 0xFF), .logprob = -1, .top = {{0, -2}}}};
    add(answer->on_tokens(std::move(run)));
    at += length;
  }
  for (std::uint32_t i = 0; i < num_choices; ++i) add(answer->on_end(end_of_choice(i, scheduler::Outcome::length)));
  TROUPE_ASSERT(answer->finished());
  if (streams)
    check_events(bytes);
  else
    TROUPE_ASSERT(read_json(bytes));
}

}  // namespace

bool run_body(Endpoint endpoint, std::string_view body) {
  ApiContext context;
  context.max_prompt_bytes = 1u << 16;
  auto parsed = parse_call(endpoint, body, context);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    check_error(*error, info(endpoint).dialect);
    return false;
  }
  auto& call = std::get<ApiCall>(parsed);
  check_request(call);
  const bool is_text = endpoint == Endpoint::chat_completions || endpoint == Endpoint::completions ||
                       endpoint == Endpoint::responses || endpoint == Endpoint::messages;
  if (is_text) run_answer(std::move(call), body);
  return true;
}

}  // namespace troupe::fuzz
