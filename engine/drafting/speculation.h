// What drafts the tokens that a step verifies, and how many.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "config/draft_limit.h"

namespace troupe::engine {

// off: plain decoding. draft: the draft model. ngram: the sequence's own tokens (drafter.h). suffix: these, or earlier
// answers to the same tenant in the same scope (earlier_answers.h). automatic: the draft model where it is predicted to
// pay, else as suffix.
enum class DraftSource : std::uint8_t { off, automatic, draft, ngram, suffix };

inline constexpr std::array<std::string_view, 5> kDraftSourceNames{"off", "auto", "draft", "ngram", "suffix"};

[[nodiscard]] constexpr std::string_view name_of(DraftSource source) {
  return kDraftSourceNames[static_cast<std::size_t>(source)];
}
[[nodiscard]] constexpr std::optional<DraftSource> draft_source(std::string_view name) {
  for (std::size_t i = 0; i < kDraftSourceNames.size(); ++i)
    if (kDraftSourceNames[i] == name) return static_cast<DraftSource>(i);
  return std::nullopt;
}

// How a draft model drafts. By ids: it has the target's vocabulary, token by token. By text: text_drafter.h.
enum class Drafting : std::uint8_t { by_ids, by_text };

struct Speculation {
  DraftSource source = DraftSource::off;
  std::uint32_t n_max = kMaxDraftTokens;  // tokens of a draft, at most
  std::uint32_t n_min = 0;                // a shorter draft is not verified
  float p_min = 0;                        // a draft model's draft ends before a token that it gives a lower probability
};

// What a request asks for instead of the server's own.
struct SpeculationChoice {
  std::optional<DraftSource> source;
  std::optional<std::uint32_t> n_max, n_min;
  std::optional<float> p_min;

  [[nodiscard]] Speculation over(Speculation server) const {
    if (source) server.source = *source;
    if (n_max) server.n_max = *n_max;
    if (n_min) server.n_min = *n_min;
    if (p_min) server.p_min = *p_min;
    return server;
  }
};

}  // namespace troupe::engine
