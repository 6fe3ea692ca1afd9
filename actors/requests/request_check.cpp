#include "actors/requests/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/requests/answer_form.h"
#include "config/printable.h"
#include "engine/sampling/sampler.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

End wrong_argument(std::string field, std::string message, std::optional<std::uint64_t> limit = std::nullopt) {
  return refusal(Outcome::invalid_argument, std::move(field), std::move(message), limit);
}

// field: the name of these ids in the request, as "token_ids".
std::optional<End> check_ids(const std::vector<TokenId>& ids, const std::string& field, std::uint32_t vocab_size) {
  const auto unknown = engine::find_unknown_id(ids, vocab_size);
  if (!unknown) return std::nullopt;
  return wrong_argument(field.substr(0, field.find('[')),
                        fmt::format("{}[{}] is {}; this model's vocabulary has the ids 0 to {}", field, *unknown,
                                    ids[*unknown], vocab_size - 1),
                        vocab_size);
}

std::string embed_field(const EmbedInputs& embed) {
  return std::holds_alternative<std::vector<std::string>>(embed.texts) ? "texts" : "token_ids";
}

std::optional<End> check_embed_for_model(const Request& request, const ServingLimits& limits) {
  const auto* const inputs = std::get_if<EmbedIds>(&request.embed->texts);
  if (!inputs) {
    if (limits.has_vocabulary) return std::nullopt;
    return refusal(Outcome::unsupported, "texts", "this model has no vocabulary; send token_ids");
  }
  for (std::size_t i = 0; i < inputs->size(); ++i) {
    if (auto wrong = check_ids((*inputs)[i], fmt::format("token_ids[{}]", i), limits.vocab_size)) return wrong;
  }
  return request.embed->truncate.value_or(false) ? std::nullopt : check_lengths(request, *inputs, limits);
}

}  // namespace

std::optional<End> check_for_model(const Request& request, const ServingLimits& limits) {
  if (!request.model.empty() && request.model != limits.model) return unknown_model(request.model, {limits.model});
  if (request.embed) return check_embed_for_model(request, limits);
  if (!limits.generates) {
    return refusal(Outcome::unsupported, "generate",
                   "this server's model is an encoder: it makes vectors of texts (Embed) and continues none");
  }
  if (auto wrong = engine::validate(request.sampling, limits.vocab_size))
    return wrong_argument(wrong->field, wrong->message);
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    if (auto wrong = check_ids(*ids, "token_ids", limits.vocab_size)) return wrong;
  } else if (!limits.has_vocabulary) {
    return refusal(Outcome::unsupported, "text", "this model has no vocabulary; send the prompt as token_ids");
  } else if (std::holds_alternative<ChatPrompt>(request.prompt) && !limits.chat_problem.empty()) {
    return refusal(Outcome::unsupported, "messages", limits.chat_problem);
  }
  if (auto wrong = check_ids(request.proposal, "proposal", limits.vocab_size)) return wrong;
  if (auto wrong = check_ids(request.shown_ids, "shown_ids", limits.vocab_size)) return wrong;
  if (!request.begins_with.empty() && !limits.has_vocabulary) {
    return refusal(Outcome::unsupported, "begins_with",
                   "this model has no vocabulary, so no text can be what its answer begins with; send it as a part of "
                   "the prompt's ids");
  }
  if (request.speculation.source == engine::DraftSource::draft && !limits.has_draft_model)
    return refusal(Outcome::unsupported, "speculation.type",
                   "this server has no draft model; choose ngram, suffix or auto, or have it started with --draft");
  if (request.form && !limits.has_vocabulary)
    return refusal(Outcome::unsupported, request.form->field(),
                   "this model has no vocabulary, so that its answers cannot be held to a form");
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
                                 .max_tokens = request.sampling.max_tokens,
                                 .limits = request.tenant.limits()};
  auto fit = scheduler::check_fit(demand, limits.capacity);
  if (auto* no = std::get_if<scheduler::Refusal>(&fit)) return refused(std::move(*no));
  const std::size_t most = std::get<scheduler::Fits>(fit).max_known - prompt_tokens;
  const auto form = form_of(request);
  const std::size_t least = form ? form->least_tokens() : 0;
  if (least <= most) return std::nullopt;
  const bool is_call = form->constraint().kind == engine::constraints::Constraint::Kind::calls;
  return refusal(Outcome::invalid_argument, "sampling.max_tokens",
                 fmt::format("the shortest {} has {} tokens, and there is room for {}; raise max_tokens or shorten "
                             "the prompt",
                             is_call ? "call that is demanded" : "answer of the form that is asked for", least, most),
                 most);
}

std::uint32_t cut_inputs(const Request& request, EmbedIds& inputs, const ServingLimits& limits,
                         std::optional<TokenId> end_token) {
  if (!request.embed->truncate.value_or(false)) return 0;
  const std::size_t most = std::min({request.embed->most_tokens, limits.max_embed_tokens,
                                     request.tenant.limits().max_context.value_or(scheduler::kUnlimitedTokens)});
  std::uint32_t cut = 0;
  for (std::vector<TokenId>& ids : inputs) {
    if (ids.size() <= most) continue;
    cut += static_cast<std::uint32_t>(ids.size() - most);
    const bool is_ended = end_token && ids.back() == *end_token;
    ids.resize(most);
    if (is_ended) ids.back() = *end_token;
  }
  return cut;
}

std::optional<End> check_lengths(const Request& request, const EmbedIds& inputs, const ServingLimits& limits) {
  const std::string field = embed_field(*request.embed);
  const std::uint32_t max_context = request.tenant.limits().max_context.value_or(scheduler::kUnlimitedTokens);
  const std::size_t most = std::min(limits.max_embed_tokens, max_context);
  constexpr std::size_t kMostNamed = 16;
  std::string too_long;
  std::size_t num_too_long = 0, longest = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) return wrong_argument(field, fmt::format("{}[{}] has no tokens", field, i));
    longest = std::max(longest, inputs[i].size());
    if (inputs[i].size() <= most || ++num_too_long > kMostNamed) continue;
    too_long += fmt::format("{}{}[{}] has {} tokens", too_long.empty() ? "" : ", ", field, i, inputs[i].size());
  }
  if (num_too_long == 0) return std::nullopt;
  if (num_too_long > kMostNamed) too_long += fmt::format(", and {} more are too long", num_too_long - kMostNamed);
  if (longest > limits.max_embed_tokens)
    return refusal(Outcome::too_long, field,
                   fmt::format("{}; this model reads at most {}: shorten them, or have them cut (truncate)", too_long,
                               limits.max_embed_tokens),
                   limits.max_embed_tokens);
  return refusal(Outcome::too_long, "max-context",
                 fmt::format("{}, and this tenant's texts may have {} each (max-context): shorten them, or have them "
                             "cut (truncate)",
                             too_long, max_context),
                 max_context);
}

End unknown_model(const std::string& name, const std::vector<std::string>& known) {
  const std::string none = name.empty() ? "there is no model for you here"
                                        : fmt::format("there is no model \"{}\" here", Printable(name).text());
  return refusal(Outcome::unknown_model, "model",
                 known.empty() ? none : fmt::format("{}; this server has \"{}\"", none, fmt::join(known, "\", \"")));
}

End not_served(const std::string& model, const Error& why) {
  return ended_as(Outcome::model_unloaded,
                  fmt::format("model \"{}\" is not served: {}", Printable(model).text(), why.message));
}

End being_unloaded(const std::string& model) {
  return ended_as(Outcome::model_unloaded, fmt::format("the model \"{}\" is being unloaded", Printable(model).text()));
}

End refusal(Outcome outcome, std::string field, std::string message, std::optional<std::uint64_t> limit) {
  return refused({.outcome = outcome, .message = std::move(message), .field = std::move(field), .limit = limit});
}

End ended_as(Outcome outcome, std::string message) {
  End end;
  end.outcome = outcome;
  end.message = std::move(message);
  if (scheduler::info(outcome).retryable) end.retry_after = std::chrono::milliseconds(scheduler::kRetryMsIfUnknown);
  return end;
}

End given_up(const Failure& why, const std::string& doing) {
  if (why.out_of_memory) {
    return ended_as(Outcome::out_of_memory,
                    fmt::format("there was not enough memory {}, {} times; try again later, or with a shorter prompt",
                                doing, kMaxFaults));
  }
  return ended_as(
      Outcome::quarantined,
      fmt::format(
          "the attempt {} broke {} times ({}), so this request is given up; others go on. Sent again it will do "
          "the same: change it, and tell whoever runs this server",
          doing, kMaxFaults, why.what));
}

End refused(scheduler::Refusal refusal) {
  End end;
  end.outcome = refusal.outcome;
  if (const auto ms = scheduler::retry_ms(refusal)) end.retry_after = std::chrono::milliseconds(*ms);
  end.message = std::move(refusal.message);
  end.field = std::move(refusal.field);
  end.limit = refusal.limit;
  end.overflow = refusal.overflow;
  return end;
}

}  // namespace troupe::actors
