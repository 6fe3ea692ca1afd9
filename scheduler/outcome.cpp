#include "scheduler/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "config/assert.h"
#include "config/exit_codes.h"

namespace troupe::scheduler {
namespace {

using enum Outcome;
using enum OutcomeKind;

constexpr std::array kOutcomes{
    OutcomeInfo{eos, done, "eos", false, kExitOk, 200},
    OutcomeInfo{stop_id, done, "stop_id", false, kExitOk, 200},
    OutcomeInfo{stop_string, done, "stop_string", false, kExitOk, 200},
    OutcomeInfo{length, done, "length", false, kExitOk, 200},
    OutcomeInfo{cancelled, done, "cancelled", false, kExitFailure, 499},
    OutcomeInfo{deadline, done, "deadline", false, kExitFailure, 200},
    OutcomeInfo{tool_call, done, "tool_call", false, kExitOk, 200},
    OutcomeInfo{invalid_argument, refused, "invalid_argument", false, kExitUsage, 400},
    OutcomeInfo{too_long, refused, "too_long", false, kExitUsage, 400},
    OutcomeInfo{never_fits, refused, "never_fits", false, kExitUsage, 413},
    OutcomeInfo{unknown_model, refused, "unknown_model", false, kExitUsage, 404},
    OutcomeInfo{loading, refused, "loading", true, kExitTryLater, 503},
    OutcomeInfo{draining, refused, "draining", true, kExitTryLater, 503},
    OutcomeInfo{queue_full, refused, "queue_full", true, kExitTryLater, 429},
    OutcomeInfo{quota, refused, "quota", true, kExitTryLater, 429},
    OutcomeInfo{deadline_unmeetable, refused, "deadline_unmeetable", true, kExitTryLater, 503},
    OutcomeInfo{permission, refused, "permission", false, kExitPermission, 403},
    OutcomeInfo{unsupported, refused, "unsupported", false, kExitUsage, 400},
    OutcomeInfo{worker_lost, failed, "worker_lost", true, kExitFailure, 500},
    OutcomeInfo{quarantined, failed, "quarantined", false, kExitFailure, 500},
    OutcomeInfo{preempted_too_often, failed, "preempted_too_often", true, kExitTryLater, 503},
    OutcomeInfo{model_unloaded, failed, "model_unloaded", true, kExitTryLater, 503},
    OutcomeInfo{out_of_memory, failed, "out_of_memory", true, kExitTryLater, 503},
    OutcomeInfo{internal, failed, "internal", false, kExitFailure, 500},
};

}  // namespace

std::span<const OutcomeInfo> outcomes() { return kOutcomes; }

std::size_t index_of(Outcome outcome) {
  const auto row = std::ranges::find(kOutcomes, outcome, &OutcomeInfo::outcome);
  TROUPE_ASSERT(row != kOutcomes.end());  // every enumerator has a row: tests/scheduler/outcome_test.cpp
  return static_cast<std::size_t>(row - kOutcomes.begin());
}

const OutcomeInfo& info(Outcome outcome) { return kOutcomes[index_of(outcome)]; }

std::optional<Outcome> outcome_from_number(std::uint32_t number) {
  for (const OutcomeInfo& row : kOutcomes)
    if (static_cast<std::uint32_t>(row.outcome) == number) return row.outcome;
  return std::nullopt;
}

std::optional<std::uint64_t> retry_ms(const Refusal& refusal) {
  if (!refusal.retry_after) return info(refusal.outcome).retryable ? std::optional(kRetryMsIfUnknown) : std::nullopt;
  if (!std::isfinite(*refusal.retry_after)) return std::nullopt;
  return static_cast<std::uint64_t>(std::max(1.0, std::ceil(*refusal.retry_after * 1000)));
}

Refusal invalid(std::string field, std::string message) {
  return {.outcome = invalid_argument, .message = std::move(message), .field = std::move(field)};
}

Refusal above(Outcome outcome, std::string field, std::string_view what, std::uint64_t value, std::uint64_t limit) {
  return {.outcome = outcome,
          .message = fmt::format("{} is {}; at most {} is served", what, value, limit),
          .field = std::move(field),
          .limit = limit};
}

Refusal server_drains() {
  return {.outcome = draining, .message = "this server is shutting down: it finishes what runs and takes nothing new"};
}

}  // namespace troupe::scheduler
