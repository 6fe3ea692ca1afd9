#include "ipc/request_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/sampling/sampler.h"
#include "scheduler/shares/priority.h"

namespace troupe::ipc {
namespace {

using scheduler::above;
using scheduler::Outcome;
using scheduler::Refusal;

// The size of the prompt, or of the inputs of an Embed, and ids below 0.
std::optional<Refusal> check_prompt(const actors::Request& request, std::uint64_t most) {
  const std::uint64_t bytes = actors::input_bytes(request);
  const auto refuse = [&](const char* field, const char* what) {
    return above(Outcome::too_long, field, what, bytes, most);
  };
  if (request.embed) {
    if (bytes <= most) return std::nullopt;
    const bool are_texts = std::holds_alternative<std::vector<std::string>>(request.embed->texts);
    return refuse(are_texts ? "texts" : "token_ids", "the inputs' size in bytes");
  }
  const auto* const ids = std::get_if<std::vector<TokenId>>(&request.prompt);
  if (bytes > most) {
    if (ids != nullptr) return refuse("token_ids", "the prompt's size in bytes, 4 for each id,");
    const bool is_text = std::holds_alternative<std::string>(request.prompt);
    return is_text ? refuse("text", "the prompt's size in bytes") : refuse("messages", "the messages' size in bytes");
  }
  if (ids == nullptr) return std::nullopt;
  const auto negative = std::ranges::find_if(*ids, [](TokenId id) { return id < 0; });
  if (negative == ids->end()) return std::nullopt;
  return scheduler::invalid("token_ids", fmt::format("token id {} is below 0", *negative));
}

}  // namespace

std::optional<Refusal> apply_rules(actors::Request& request, std::uint64_t max_prompt_bytes) {
  if (request.embed) return check_prompt(request, max_prompt_bytes);
  if (request.num_choices == 0) return scheduler::invalid("n", "n is 0; ask for at least 1 answer");
  if (request.num_choices > actors::kMaxChoices)
    return above(Outcome::invalid_argument, "n", "n", request.num_choices, actors::kMaxChoices);
  if (!request.proposal.empty() && request.num_choices != 1)
    return scheduler::invalid("proposal", fmt::format("a proposal is for one answer, and n is {}; send one request for "
                                                      "each answer",
                                                      request.num_choices));
  if (request.first_choice > actors::kMaxChoices - request.num_choices)
    return above(Outcome::invalid_argument, "first_choice", "first_choice", request.first_choice,
                 actors::kMaxChoices - request.num_choices);
  if (const std::uint64_t bytes = request.proposal.size() * sizeof(TokenId); bytes > max_prompt_bytes)
    return above(Outcome::too_long, "proposal", "the proposal's size in bytes, 4 for each id,", bytes,
                 max_prompt_bytes);
  if (request.session_recompute && request.session.empty())
    return scheduler::invalid("session_recompute", "session_recompute without a session; name one, or leave it out");
  if (auto refusal = check_prompt(request, max_prompt_bytes)) return refusal;
  if (request.deadline)
    if (const auto ms = static_cast<std::uint64_t>(request.deadline->count()); ms > kMaxDeadlineMs)
      return above(Outcome::invalid_argument, "deadline_ms", "deadline_ms", ms, kMaxDeadlineMs);
  if (const std::int32_t top = request.sampling.num_logprobs; top > engine::kMaxLogprobs)
    return above(Outcome::invalid_argument, "logprobs", "logprobs", static_cast<std::uint64_t>(top),
                 engine::kMaxLogprobs);
  auto priority = scheduler::priority_for(request.priority, request.tenant);
  if (auto* const refused = std::get_if<Refusal>(&priority)) return std::move(*refused);
  request.priority = std::get<std::int32_t>(priority);
  const auto& policy = request.tenant.policy;
  if (request.cache_scope.empty() && policy && policy->public_cache) request.cache_scope = "public";
  request.credit = std::min(request.credit, kMaxCredit);
  return std::nullopt;
}

}  // namespace troupe::ipc
