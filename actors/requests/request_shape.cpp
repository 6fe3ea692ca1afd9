#include "actors/requests/request_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "actors/requests/answer_form.h"

namespace troupe::actors {
namespace {

using scheduler::above;
using scheduler::invalid;
using scheduler::Outcome;
using scheduler::Refusal;

Refusal too_many(const char* field, const char* what, std::uint64_t value, std::uint64_t most) {
  return above(Outcome::invalid_argument, field, what, value, most);
}

std::optional<Refusal> check_embed(const EmbedInputs& embed) {
  if (embed.count() == 0) return invalid("texts", "there is no text to embed");
  if (embed.count() <= kMaxEmbedInputs) return std::nullopt;
  const bool are_texts = std::holds_alternative<std::vector<std::string>>(embed.texts);
  return too_many(are_texts ? "texts" : "token_ids", "the number of inputs", embed.count(), kMaxEmbedInputs);
}

std::optional<Refusal> check_choices(const Request& request) {
  if (request.num_choices == 0) return invalid("n", "n is 0; ask for at least 1 answer");
  if (request.num_choices > kMaxChoices) return too_many("n", "n", request.num_choices, kMaxChoices);
  if (!request.proposal.empty() && request.num_choices != 1)
    return invalid("proposal",
                   fmt::format("a proposal is for one answer, and n is {}; send one request for each answer",
                               request.num_choices));
  if (request.first_choice > kMaxChoices - request.num_choices)
    return too_many("first_choice", "first_choice", request.first_choice, kMaxChoices - request.num_choices);
  return std::nullopt;
}

std::optional<Refusal> check_ids(const std::vector<TokenId>& ids) {
  const auto negative = std::ranges::find_if(ids, [](TokenId id) { return id < 0; });
  if (negative == ids.end()) return std::nullopt;
  return invalid("token_ids", fmt::format("token id {} is below 0", *negative));
}

std::optional<Refusal> check_chat(const ChatPrompt& chat) {
  if (chat.messages.empty()) return invalid("messages", "there is no message; send at least one");
  if (const std::size_t count = chat.messages.size() - chat.added.messages; count > kMaxChatMessages)
    return too_many("messages", "the number of messages", count, kMaxChatMessages);
  if (const std::uint64_t bytes = chat.variables.size() - chat.added.variable_bytes; bytes > kMaxChatVariableBytes)
    return too_many("template_variables", "the size of the template's variables in bytes", bytes,
                    kMaxChatVariableBytes);
  if (chat.tools.size() > engine::chat::kMaxToolBytes)
    return too_many("tools", "the size of the tools in bytes", chat.tools.size(), engine::chat::kMaxToolBytes);
  for (std::size_t i = 0; i < chat.messages.size(); ++i)
    if (chat.messages[i].role.empty()) return invalid("messages", fmt::format("messages[{}] has no role", i));
  return std::nullopt;
}

std::optional<Refusal> check_stop_strings(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) return invalid("stop", "a stop string is empty; leave it out");
    if (stop.size() > kMaxStopStringBytes)
      return too_many("stop", "the size of a stop string in bytes", stop.size(), kMaxStopStringBytes);
  }
  return std::nullopt;
}

std::optional<Refusal> check_beginning(const Request& request) {
  if (request.begins_with.size() > kMaxBeginningBytes)
    return too_many("begins_with", "the size of begins_with in bytes", request.begins_with.size(), kMaxBeginningBytes);
  if (!request.begins_with.empty() && request.tools && request.tools->must_call)
    return invalid(
        "begins_with",
        "begins_with and a tool_choice that demands a call both say how the answer begins; send one of them");
  if (request.shown_ids.size() > kMaxShownIds)
    return too_many("shown_ids", "the number of shown ids", request.shown_ids.size(), kMaxShownIds);
  return std::nullopt;
}

std::optional<Refusal> check_speculation(const engine::SpeculationChoice& choice) {
  const auto above_most = [](const char* field, const char* name, std::uint32_t value) {
    Refusal refusal =
        invalid(field, fmt::format("{} is {}; a draft has at most {} tokens", name, value, kMaxDraftTokens));
    refusal.limit = kMaxDraftTokens;
    return refusal;
  };
  if (choice.n_max && *choice.n_max > kMaxDraftTokens) return above_most("speculation.n_max", "n_max", *choice.n_max);
  if (choice.n_min && *choice.n_min > kMaxDraftTokens) return above_most("speculation.n_min", "n_min", *choice.n_min);
  if (choice.p_min && !(*choice.p_min >= 0 && *choice.p_min <= 1))
    return invalid("speculation.p_min", "p_min is a probability: it must be 0 to 1");
  return std::nullopt;
}

// What cannot stand beside a form of the answer.
std::optional<Refusal> check_beside_form(const Request& request) {
  if (request.tools)
    return invalid(request.form->field(),
                   "a form of the answer beside tools that it may call is not supported; leave out one of "
                   "them, or set tool_choice to none");
  // Proofs of answers with calls ask for what stood beside their tools.
  const engine::constraints::Constraint& form = request.form->constraint();
  const bool is_calls = form.kind == engine::constraints::Constraint::Kind::calls;
  if (is_calls && !form.calls.must_call) return std::nullopt;
  if (!request.begins_with.empty())
    return invalid("begins_with", "begins_with beside a form of the answer is not supported; leave out one of them");
  if (request.sampling.ignore_eos && !is_calls)
    return invalid("ignore_eos",
                   "ignore_eos beside a form of the answer, which says where it ends; leave out one of them");
  return std::nullopt;
}

std::optional<Refusal> check_deadline(std::chrono::milliseconds deadline) {
  if (deadline.count() <= 0) return invalid("deadline_ms", "the deadline must be at least 1 ms");
  const auto ms = static_cast<std::uint64_t>(deadline.count());
  if (ms <= kMaxDeadlineMs) return std::nullopt;
  return too_many("deadline_ms", "deadline_ms", ms, kMaxDeadlineMs);
}

}  // namespace

std::optional<Refusal> check_input_bytes(const Request& request, std::uint64_t bytes, std::uint64_t most) {
  if (bytes <= most) return std::nullopt;
  const auto refuse = [&](const char* field, const char* what) {
    return above(Outcome::too_long, field, what, bytes, most);
  };
  if (request.embed) {
    const bool are_texts = std::holds_alternative<std::vector<std::string>>(request.embed->texts);
    return refuse(are_texts ? "texts" : "token_ids", "the inputs' size in bytes");
  }
  if (std::holds_alternative<std::string>(request.prompt)) return refuse("text", "the prompt's size in bytes");
  if (std::holds_alternative<ChatPrompt>(request.prompt)) return refuse("messages", "the messages' size in bytes");
  return refuse("token_ids", "the prompt's size in bytes, 4 for each id,");
}

std::optional<Refusal> check_text(std::string_view text, std::uint64_t max_prompt_bytes) {
  if (text.size() <= max_prompt_bytes) return std::nullopt;
  return above(Outcome::too_long, "text", "the text's size in bytes", text.size(), max_prompt_bytes);
}

std::optional<Refusal> check_shape(const Request& request, std::uint64_t max_prompt_bytes) {
  std::uint64_t bytes = input_bytes(request);
  if (const auto* const chat = std::get_if<ChatPrompt>(&request.prompt))
    bytes -= chat->added.message_bytes + chat->added.variable_bytes;
  if (auto wrong = check_input_bytes(request, bytes, max_prompt_bytes)) return wrong;
  if (request.embed) return check_embed(*request.embed);
  if (auto wrong = check_choices(request)) return wrong;
  if (const std::uint64_t bytes = request.proposal.size() * sizeof(TokenId); bytes > max_prompt_bytes)
    return above(Outcome::too_long, "proposal", "the proposal's size in bytes, 4 for each id,", bytes,
                 max_prompt_bytes);
  if (request.session_recompute && request.session.empty())
    return invalid("session_recompute", "session_recompute without a session; name one, or leave it out");
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    if (auto wrong = check_ids(*ids)) return wrong;
  } else if (const auto* const chat = std::get_if<ChatPrompt>(&request.prompt)) {
    if (auto wrong = check_chat(*chat)) return wrong;
  }
  if (auto wrong = check_stop_strings(request.stop_strings)) return wrong;
  if (request.form)
    if (auto wrong = check_beside_form(request)) return wrong;
  if (auto wrong = check_beginning(request)) return wrong;
  if (auto wrong = check_speculation(request.speculation)) return wrong;
  if (request.cache_scope.size() > kMaxScopeBytes)
    return too_many("cache_scope", "the size of cache_scope in bytes", request.cache_scope.size(), kMaxScopeBytes);
  if (request.deadline)
    if (auto wrong = check_deadline(*request.deadline)) return wrong;
  if (const std::int32_t top = request.sampling.num_logprobs; top > engine::kMaxLogprobs)
    return too_many("logprobs", "logprobs", static_cast<std::uint64_t>(top), engine::kMaxLogprobs);
  return std::nullopt;
}

}  // namespace troupe::actors
