// Counts of drafts, by what drafted them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::actors {

// Drafts that steps verified.
struct DraftCounts {
  std::uint64_t drafts = 0;
  std::uint64_t tokens = 0;    // of these drafts
  std::uint64_t accepted = 0;  // of these tokens
};

// Where a draft comes from: the draft model, the sequence's own text, that or earlier answers, the request, which
// proposes its answer, or the answer's form, which leaves no choice.
enum class Drafter : std::uint8_t { draft, ngram, suffix, request, form };

inline constexpr std::array<std::string_view, 5> kDrafterNames{"draft", "ngram", "suffix", "request", "form"};

using DraftCountsByDrafter = std::array<DraftCounts, kDrafterNames.size()>;

}  // namespace troupe::actors
