#include "engine/constraints/grammar_tokens.h"

#include <bit>

namespace troupe::engine::constraints {
namespace {

// Where more tokens than this may follow, none is looked for that all others begin.
constexpr std::size_t kMaxForcedCandidates = 24;

// The only byte that can follow; nothing if there are several, or the text may end.
std::optional<std::uint8_t> only_byte(Machine& machine, StateId state) {
  if (machine.may_end(state)) return std::nullopt;
  std::optional<std::uint8_t> only;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (machine.next(state, static_cast<std::uint8_t>(byte)) == kStuck) continue;
    if (only) return std::nullopt;
    only = static_cast<std::uint8_t>(byte);
  }
  return only;
}

}  // namespace

// The longest of the tokens that may follow, if the others are its beginnings and nothing else can be written.
std::optional<TokenId> GrammarTokens::forced_token(StateId state, const TokenMask& mask) {
  if (mask.count() > kMaxForcedCandidates) return std::nullopt;
  TokenId longest = 0;
  std::string text;
  for (std::size_t word = 0; word < mask.words().size(); ++word)
    for (std::uint64_t left = mask.words()[word]; left != 0; left &= left - 1) {
      const auto id = static_cast<TokenId>(word * 64 + static_cast<std::size_t>(std::countr_zero(left)));
      if (std::string each = piece(id); each.size() > text.size()) {
        longest = id;
        text = std::move(each);
      }
    }
  for (const char each : text) {
    const std::optional<std::uint8_t> only = only_byte(machine_, state);
    if (only != static_cast<std::uint8_t>(each)) return std::nullopt;
    state = machine_.next(state, *only);
  }
  return longest;
}

NextTokens GrammarTokens::next(StateId state, TokenMask& mask, std::size_t tokens_left) {
  if (state == kStuck) return {.kind = NextTokens::Kind::failed};
  filter_.fill(state, mask, tokens_left);
  const bool may_end = machine_.may_end(state);
  if (mask.count() == 0) return {.kind = may_end ? NextTokens::Kind::complete : NextTokens::Kind::failed};
  if (!may_end)
    if (const auto forced = forced_token(state, mask)) return {.kind = NextTokens::Kind::forced, .forced = *forced};
  return {.kind = NextTokens::Kind::some, .allowed = mask.words(), .may_end = may_end};
}

}  // namespace troupe::engine::constraints
