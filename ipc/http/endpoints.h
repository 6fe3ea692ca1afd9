// The endpoints' code, by what it is about. api/endpoint.h has the table, and endpoints.cpp chooses from it.
#pragma once

#include "ipc/http/api/call.h"
#include "ipc/http/exchange.h"

namespace troupe::ipc::http {

// endpoints_server.cpp: about the server and its models. They take no body.
[[nodiscard]] Act read_health(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_version(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_metrics(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_models(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_model(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_openapi(Request&& request, const ReadContext& context);

// page/read_page.cpp: the page at "/".
[[nodiscard]] Act read_page(Request&& request, const ReadContext& context);
// Gives the page its key for that of `troupe serve --open`.
[[nodiscard]] Act read_open(Request&& request, const ReadContext& context);

// endpoints_text.cpp
[[nodiscard]] Act read_tokenize(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_detokenize(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_tokenizer_info(Request&& request, const ReadContext& context);

// Also in endpoints_text.cpp: conversations as prompts.
[[nodiscard]] Act read_apply_template(Request&& request, const ReadContext& context);
[[nodiscard]] Act read_count_tokens(Request&& request, const ReadContext& context);

// endpoints_answers.cpp: what the gateway's stream table answers.
[[nodiscard]] Act read_answer(Request&& request, const ReadContext& context);

// What an endpoint answers to a request that is refused before anything is done for it.
[[nodiscard]] Act refuse_with(api::ApiError error, api::Dialect dialect);
// The scheduler's outcome that an HTTP error is counted as.
[[nodiscard]] scheduler::Outcome outcome_of(const api::ApiError& error);
// For parse_call().
[[nodiscard]] api::ApiContext api_context(const ReadContext& context);

}  // namespace troupe::ipc::http
