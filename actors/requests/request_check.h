// Checks of a request against the model, before any work is done for it: each returns the refusal, or nullopt if
// nothing is wrong. (request_shape.h has those that need no model.) And the ends of requests that are refused or fail.
// Plain logic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/requests/failure.h"
#include "actors/requests/request.h"
#include "actors/requests/request_shape.h"
#include "engine/engine.h"
#include "scheduler/shares/admission.h"

namespace troupe::actors {

// What a loaded model allows.
struct ServingLimits {
  std::string model;  // the name that clients use
  std::uint32_t vocab_size = 0;
  bool has_vocabulary = false;  // whether text can be encoded
  std::string chat_problem{};   // why conversations are refused; empty: there is a chat template
  bool has_draft_model = false;
  bool generates = true;               // false: the model is an encoder
  std::uint32_t max_embed_tokens = 0;  // of each text of an Embed
  scheduler::Capacity capacity;
};

// The model's name, whether the model does such work, the sampling parameters, ids, and whether the vocabulary that is
// needed exists.
[[nodiscard]] std::optional<End> check_for_model(const Request& request, const ServingLimits& limits);

// Whether prompt and answer fit the context, the tenant's max_context and the cache (scheduler::check_fit).
[[nodiscard]] std::optional<End> check_length(const Request& request, std::size_t prompt_tokens,
                                              const ServingLimits& limits);

// Cuts the inputs of an Embed that asks for it to what the model reads and the tenant may send, and returns how many
// tokens were cut. end_token: of texts, kept as their last one; none: they have none.
std::uint32_t cut_inputs(const Request& request, EmbedIds& inputs, const ServingLimits& limits,
                         std::optional<TokenId> end_token);

// Which of these inputs of an Embed are empty, or too long for the model or the tenant's max_context: all are named.
[[nodiscard]] std::optional<End> check_lengths(const Request& request, const EmbedIds& inputs,
                                               const ServingLimits& limits);

// The end of a request for a model that is not here. known: the names of those that are.
[[nodiscard]] End unknown_model(const std::string& name, const std::vector<std::string>& known);

// The end of a request to a model that is being unloaded.
[[nodiscard]] End being_unloaded(const std::string& model);
// The end of a request for a model that failed.
[[nodiscard]] End not_served(const std::string& model, const Error& why);

// The end of a refused request. field: the request's field at fault, or the name of the limit that was met.
[[nodiscard]] End refusal(scheduler::Outcome outcome, std::string field, std::string message,
                          std::optional<std::uint64_t> limit = std::nullopt);

// The end of a stream that failed or that the server ended. Retryable outcomes get a retry_after.
[[nodiscard]] End ended_as(scheduler::Outcome outcome, std::string message);

// The end of a request after kMaxFaults failed attempts. doing: "to compute it", "to encode its text".
[[nodiscard]] End given_up(const Failure& why, const std::string& doing);

// The refusal as the end of its stream, with its retry_ms().
[[nodiscard]] End refused(scheduler::Refusal refusal);

}  // namespace troupe::actors
