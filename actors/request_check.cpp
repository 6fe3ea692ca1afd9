#include "actors/request_check.h"

#include <chrono>
#include <utility>

#include "actors/serving/encoding.h"
#include "actors/serving/stream_table.h"
#include "config/printable.h"
#include "engine/sampling/sampler.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr std::chrono::milliseconds kRetryAfter{1000};

std::optional<End> check_stop_strings(const std::vector<std::string>& stops) {
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

// field: the name of these ids in the request, as "token_ids".
std::optional<End> check_ids(const std::vector<TokenId>& ids, const std::string& field, std::uint32_t vocab_size) {
  const auto unknown = engine::find_unknown_id(ids, vocab_size);
  if (!unknown) return std::nullopt;
  return refusal(Outcome::invalid_argument, "token_ids",
                 field + "[" + std::to_string(*unknown) + "] is " + std::to_string(ids[*unknown]) +
                     "; this model's vocabulary has the ids 0 to " + std::to_string(vocab_size - 1),
                 vocab_size);
}

std::string embed_field(const EmbedInputs& embed) {
  return std::holds_alternative<std::vector<std::string>>(embed.texts) ? "texts" : "token_ids";
}

std::optional<End> check_embed_shape(const EmbedInputs& embed) {
  if (embed.count() == 0) return refusal(Outcome::invalid_argument, "texts", "there is no text to embed");
  if (embed.count() <= kMaxEmbedInputs) return std::nullopt;
  return refusal(Outcome::invalid_argument, embed_field(embed),
                 std::to_string(embed.count()) + " texts were given; at most " + std::to_string(kMaxEmbedInputs) +
                     " are taken at once",
                 kMaxEmbedInputs);
}

std::optional<End> check_embed_for_model(const Request& request, const ServingLimits& limits) {
  const auto* const inputs = std::get_if<EmbedIds>(&request.embed->texts);
  if (!inputs) {
    if (limits.has_vocabulary) return std::nullopt;
    return refusal(Outcome::unsupported, "texts", "this model has no vocabulary; send token_ids");
  }
  for (std::size_t i = 0; i < inputs->size(); ++i) {
    if (auto wrong = check_ids((*inputs)[i], "token_ids[" + std::to_string(i) + "]", limits.vocab_size)) return wrong;
  }
  return check_lengths(request, *inputs, limits);
}

}  // namespace

std::optional<End> check_shape(const Request& request) {
  if (request.embed) return check_embed_shape(*request.embed);
  const bool is_text = std::holds_alternative<std::string>(request.prompt);
  const std::uint64_t bytes = input_bytes(request);
  if (bytes > kMaxPromptBytes) {
    return refusal(
        Outcome::invalid_argument, is_text ? "text" : "token_ids",
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
  if (!request.model.empty() && request.model != limits.model) return unknown_model(request.model, {limits.model});
  if (request.embed) return check_embed_for_model(request, limits);
  if (!limits.generates) {
    return refusal(Outcome::unsupported, "generate",
                   "this server's model is an encoder: it makes vectors of texts (Embed) and continues none");
  }
  if (auto wrong = engine::validate(request.sampling, limits.vocab_size)) {
    return refusal(Outcome::invalid_argument, wrong->field, wrong->message);
  }
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    if (auto wrong = check_ids(*ids, "token_ids", limits.vocab_size)) return wrong;
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

std::optional<End> check_lengths(const Request& request, const EmbedIds& inputs, const ServingLimits& limits) {
  const std::string field = embed_field(*request.embed);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = field + "[" + std::to_string(i) + "]";
    if (inputs[i].empty()) return refusal(Outcome::invalid_argument, field, name + " has no tokens");
    if (inputs[i].size() <= limits.max_embed_tokens) continue;
    return refusal(Outcome::too_long, field,
                   name + " has " + std::to_string(inputs[i].size()) + " tokens; this model reads at most " +
                       std::to_string(limits.max_embed_tokens),
                   limits.max_embed_tokens);
  }
  return std::nullopt;
}

End unknown_model(const std::string& name, const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& each : known) names += (names.empty() ? "\"" : ", \"") + each + "\"";
  return refusal(Outcome::unknown_model, "model",
                 "there is no model \"" + Printable(name) + "\" here; this server has " + names);
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
