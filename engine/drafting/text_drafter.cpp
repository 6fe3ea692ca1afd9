#include "engine/drafting/text_drafter.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace troupe::engine {

TextDrafter::TextDrafter(const LoadedModel& draft, const LoadedModel& target, Team& team)
    : draft_(draft), target_(*target.tokenizer()), drafter_(draft, team) {}

void TextDrafter::close(std::uint64_t request) {
  sequences_.erase(request);
  drafter_.close(request);
}

// Null: it does not have the tokens before those of the ask.
TextDrafter::Sequence* TextDrafter::find(const DraftAsk& ask) {
  if (ask.first == 0) {
    sequences_.erase(ask.request);
    sequences_.emplace(ask.request, Sequence{.text = {target_, *draft_.tokenizer()}});
  }
  const auto found = sequences_.find(ask.request);
  return found == sequences_.end() || found->second.num_known != ask.first ? nullptr : &found->second;
}

std::vector<TokenId> TextDrafter::to_target(const std::vector<TokenId>& drafted, std::uint32_t most) const {
  std::string text;
  for (const TokenId id : drafted) {
    const std::string piece = draft_.tokenizer()->piece(id);
    if (piece.empty()) break;  // a control token
    text += piece;
  }
  std::vector<TokenId> ids = encode_continuation(target_, text);
  if (ids.size() > most) ids.resize(most);
  return ids;
}

void TextDrafter::propose(const std::vector<DraftAsk>& asks, DraftReply& reply) {
  const auto begin = std::chrono::steady_clock::now();
  reply = {};
  std::vector<DraftAsk> own;
  std::vector<std::size_t> places;  // of these among `asks`
  for (const DraftAsk& ask : asks) {
    reply.answers.push_back({.request = ask.request, .is_lost = false, .tokens = {}});
    Sequence* sequence = find(ask);
    if (!sequence) {
      reply.answers.back().is_lost = true;
      continue;
    }
    const std::uint32_t context = draft_.info().context;
    sequence->num_known += static_cast<std::uint32_t>(ask.tokens.size());
    const bool is_far_too_long = sequence->num_known / kMostPerToken > context;
    const std::uint32_t stayed = is_far_too_long ? 0 : std::min(sequence->text.append(ask.tokens), sequence->num_told);
    const std::vector<TokenId>& tokens = sequence->text.tokens();
    if (is_far_too_long || tokens.empty() || tokens.size() + ask.num_draft >= context) {
      drafter_.close(ask.request);
      sequence->num_told = 0;
      continue;
    }
    const auto first = std::min(stayed, static_cast<std::uint32_t>(tokens.size()) - 1);
    sequence->num_told = static_cast<std::uint32_t>(tokens.size());
    own.push_back({.request = ask.request,
                   .first = first,
                   .tokens = {tokens.begin() + first, tokens.end()},
                   .num_draft = ask.num_draft,
                   .p_min = ask.p_min,
                   .sampling = {.temperature = 0, .ignore_eos = false}});
    places.push_back(reply.answers.size() - 1);
  }
  DraftReply drafted;
  drafter_.propose(own, drafted);
  for (std::size_t i = 0; i < own.size(); ++i) {
    DraftAnswer& answer = reply.answers[places[i]];
    answer.is_lost = drafted.answers[i].is_lost;
    if (answer.is_lost)
      sequences_.erase(answer.request);
    else
      answer.tokens = to_target(drafted.answers[i].tokens, own[i].num_draft);
  }
  reply.num_passes = drafted.num_passes;
  reply.draft_seconds = drafted.draft_seconds;
  reply.num_draft_passes = drafted.num_draft_passes;
  reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace troupe::engine
