// Whether a request can be served at all, before anything is spent on it. Plain logic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/failure.h"
#include "actors/request.h"
#include "engine/engine.h"
#include "scheduler/admission.h"

namespace troupe::actors {

// What a loaded model allows.
struct ServingLimits {
  std::string model;  // what clients call it
  std::uint32_t vocab_size = 0;
  bool has_vocabulary = false;  // whether text can be encoded
  scheduler::Capacity capacity;
};

// What can be told without a model: bytes, stop strings, scope. nullopt: nothing is wrong.
[[nodiscard]] std::optional<End> check_shape(const Request& request);

// The name, the vocabulary, the sampling parameters and given ids. nullopt: nothing is wrong.
[[nodiscard]] std::optional<End> check_for_model(const Request& request, const ServingLimits& limits);

// Whether the prompt and its answer fit the context and the cache (scheduler::check_fit). nullopt: they do.
[[nodiscard]] std::optional<End> check_length(const Request& request, std::size_t prompt_tokens,
                                              const ServingLimits& limits);

// The end of a request that is refused. field: what is wrong with it, or the limit that was met.
[[nodiscard]] End refusal(scheduler::Outcome outcome, std::string field, std::string message,
                          std::optional<std::uint64_t> limit = std::nullopt);

// The end of a stream that failed, or was ended by us. Outcomes that time may cure come with a time to retry after.
[[nodiscard]] End ended_as(scheduler::Outcome outcome, std::string message);

// The end of a request that broke what worked on it kMaxFaults times. doing: "to compute it", "to encode its text".
[[nodiscard]] End given_up(const Failure& why, const std::string& doing);

// The refusal of a queue that holds `what` already. field: the server's limit that was met.
[[nodiscard]] End queue_full(std::string what, std::string field, std::uint64_t limit);

// The end that a refusal is for its stream. Outcomes that time may cure come with a time to retry after.
[[nodiscard]] End refused(scheduler::Refusal refusal);

}  // namespace troupe::actors
