// Calls and answers of the HTTP APIs for tests, without a server.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/http/api/answer.h"
#include "ipc/http/api/call.h"

namespace troupe::ipc::api {

// The call of a body that must be taken.
inline ApiCall taken(Endpoint endpoint, std::string_view body, const ApiContext& context = {}) {
  auto call = parse_call(endpoint, body, context);
  if (const auto* error = std::get_if<ApiError>(&call)) FAIL(body << ": " << error->message);
  return std::get<ApiCall>(std::move(call));
}

// The conversation of a call that has one.
inline actors::ChatPrompt chat_of(const ApiCall& call) { return std::get<actors::ChatPrompt>(call.request.prompt); }

// The error of a body that must be refused.
inline ApiError refused(Endpoint endpoint, std::string_view body, const ApiContext& context = {}) {
  auto call = parse_call(endpoint, body, context);
  if (std::holds_alternative<ApiCall>(call)) FAIL("this was taken: " << body);
  return std::get<ApiError>(std::move(call));
}

inline AnswerFacts facts_of_test() {
  AnswerFacts facts{.id = "1", .created = 1700000000, .model = "m", .fingerprint = "f"};
  facts.token_bytes = [](TokenId id) {
    if (id == 100) return std::string("\xe2\x82");  // the beginning of a character, and its end
    if (id == 101) return std::string("\xac");
    return std::string(1, static_cast<char>('a' + id % 26));
  };
  return facts;
}

inline actors::TokenRun run_of(std::string text, std::vector<TokenId> ids = {1}, std::uint32_t choice = 0) {
  return {.choice = choice,
          .first_index = 0,
          .ids = std::move(ids),
          .text = std::move(text),
          .logprobs = {},
          .prompt_tokens = 5,
          .cached_tokens = 4};
}

inline actors::End end_of(scheduler::Outcome outcome, std::uint32_t completion_tokens = 2, std::uint32_t choice = 0) {
  actors::End end;
  end.choice = choice;
  end.outcome = outcome;
  end.seed = 7;
  end.usage.prompt_tokens = 5;
  end.usage.cached_tokens = 4;
  end.usage.completion_tokens = completion_tokens;
  return end;
}

// The receipt of an end_of(), as it is in answers.
inline std::string receipt_of_test(std::string_view outcome, int completion_tokens = 2, int choice = 0,
                                   std::string_view stop = {}) {
  std::string out = R"({"index":)" + std::to_string(choice) + R"(,"outcome":")" + std::string(outcome) + "\",";
  if (!stop.empty()) out += R"("stop":")" + std::string(stop) + "\",";
  return out + R"("seed":"7","prompt_tokens":5,"cached_tokens":4,"completion_tokens":)" +
         std::to_string(completion_tokens) +
         R"(,"computed_tokens":0,"queue_seconds":0,"prefill_seconds":0,"decode_seconds":0,"ttft_seconds":0,)"
         R"("stalled_seconds":0,"preempted_seconds":0,"parked_seconds":0,"compute_seconds":0,"cpu_seconds":0,)"
         R"("block_seconds":0,"drafted_tokens":0,"accepted_tokens":0,"share":0,"preemptions":0})";
}

}  // namespace troupe::ipc::api
