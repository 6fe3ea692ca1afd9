#include "actors/request_check.h"

#include <chrono>
#include <utility>

#include "actors/serving/stream_table.h"
#include "config/printable.h"
#include "engine/sampling/check_ids.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr std::chrono::milliseconds kRetryAfter{1000};

std::optional<End> check_stop_strings(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStopStrings) {
    return refusal(Outcome::invalid_argument, "stop",
                   std::to_string(stops.size()) + " stop strings were given; at most " +
                       std::to_string(kMaxStopStrings) + " are allowed",
                   kMaxStopStrings);
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return refusal(Outcome::invalid_argument, "stop", "a stop string is empty; leave it out");
    if (stop.size() > kMaxStopStringBytes) {
      return refusal(Outcome::invalid_argument, "stop",
                     "a stop string has " + std::to_string(stop.size()) + " bytes; at most " +
                         std::to_string(kMaxStopStringBytes) + " are allowed",
                     kMaxStopStringBytes);
    }
  }
  return std::nullopt;
}

std::optional<End> check_ids(const std::vector<TokenId>& ids, std::uint32_t vocab_size) {
  const auto unknown = engine::find_unknown_id(ids, vocab_size);
  if (!unknown) return std::nullopt;
  return refusal(Outcome::invalid_argument, "token_ids",
                 "token_ids[" + std::to_string(*unknown) + "] is " + std::to_string(ids[*unknown]) +
                     "; this model's vocabulary has the ids 0 to " + std::to_string(vocab_size - 1),
                 vocab_size);
}

}  // namespace

std::optional<End> check_shape(const Request& request) {
  const std::string* text = std::get_if<std::string>(&request.prompt);
  const std::size_t bytes =
      text ? text->size() : std::get<std::vector<TokenId>>(request.prompt).size() * sizeof(TokenId);
  if (bytes > kMaxPromptBytes) {
    return refusal(
        Outcome::invalid_argument, text ? "text" : "token_ids",
        "the prompt has " + std::to_string(bytes) + " bytes; at most " + std::to_string(kMaxPromptBytes) + " are taken",
        kMaxPromptBytes);
  }
  if (auto wrong = check_stop_strings(request.stop_strings)) return wrong;
  if (request.cache_scope.size() > kMaxScopeBytes) {
    return refusal(Outcome::invalid_argument, "cache_scope",
                   "cache_scope has " + std::to_string(request.cache_scope.size()) + " bytes; at most " +
                       std::to_string(kMaxScopeBytes) + " are allowed",
                   kMaxScopeBytes);
  }
  if (request.deadline && request.deadline->count() <= 0) {
    return refusal(Outcome::invalid_argument, "deadline_ms", "the deadline must be at least 1 ms");
  }
  return std::nullopt;
}

std::optional<End> check_for_model(const Request& request, const ServingLimits& limits) {
  if (!request.model.empty() && request.model != limits.model) {
    return refusal(
        Outcome::unknown_model, "model",
        "there is no model \"" + Printable(request.model) + "\" here; this server has \"" + limits.model + "\"");
  }
  if (auto wrong = engine::validate(request.sampling, limits.vocab_size)) {
    return refusal(Outcome::invalid_argument, wrong->field, wrong->message);
  }
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    if (auto wrong = check_ids(*ids, limits.vocab_size)) return wrong;
  } else if (!limits.has_vocabulary) {
    return refusal(Outcome::unsupported, "text", "this model has no vocabulary; send the prompt as token_ids");
  }
  if (!request.stop_strings.empty() && !limits.has_vocabulary) {
    return refusal(Outcome::unsupported, "stop",
                   "this model has no vocabulary, so its answers have no text to stop at; use stop ids");
  }
  return std::nullopt;
}

std::optional<End> check_length(const Request& request, std::size_t prompt_tokens, const ServingLimits& limits) {
  const scheduler::Demand demand{.tenant = request.tenant.id,
                                 .priority = request.priority,
                                 .arrival = 0,
                                 .prompt_tokens = static_cast<std::uint32_t>(prompt_tokens),
                                 .max_tokens = request.sampling.max_tokens};
  auto fit = scheduler::check_fit(demand, limits.capacity);
  if (auto* no = std::get_if<scheduler::Refusal>(&fit)) return refused(std::move(*no));
  return std::nullopt;
}

End refusal(Outcome outcome, std::string field, std::string message, std::optional<std::uint64_t> limit) {
  return refused({.outcome = outcome, .message = std::move(message), .field = std::move(field), .limit = limit});
}

End ended_as(Outcome outcome, std::string message) {
  End end;
  end.outcome = outcome;
  end.message = std::move(message);
  if (scheduler::info(outcome).retryable) end.retry_after = kRetryAfter;
  return end;
}

End given_up(const Failure& why, const std::string& doing) {
  const std::string times = std::to_string(kMaxFaults) + " times";
  if (why.out_of_memory) {
    return ended_as(Outcome::out_of_memory, "there was not enough memory " + doing + ", " + times +
                                                "; try again later, or with a shorter prompt");
  }
  return ended_as(Outcome::quarantined, "the attempt " + doing + " broke " + times + " (" + why.what +
                                            "), so this request is given up; others go on. Sent again it will do the "
                                            "same: change it, and tell whoever runs this server");
}

End queue_full(std::string what, std::string field, std::uint64_t limit) {
  return refused({.outcome = Outcome::queue_full,
                  .message = std::move(what) + "; try again later",
                  .field = std::move(field),
                  .limit = limit});
}

End refused(scheduler::Refusal refusal) {
  End end = ended_as(refusal.outcome, std::move(refusal.message));
  end.field = std::move(refusal.field);
  end.limit = refusal.limit;
  return end;
}

}  // namespace troupe::actors
