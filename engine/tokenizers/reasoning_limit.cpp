#include "engine/tokenizers/reasoning_limit.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/tokenizers/answer_beginning.h"

namespace troupe::engine {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr std::size_t kMaxTailTokens = 32;  // of a prompt, among which its opening marker is looked for

}  // namespace

bool ends_with_opening(const Tokenizer& tokenizer, const ReasoningMarkers& markers, std::span<const TokenId> prompt) {
  const std::string tail = raw_text(tokenizer, prompt.last(std::min(prompt.size(), kMaxTailTokens)));
  return std::string_view(tail).substr(0, tail.find_last_not_of(kWhiteSpace) + 1).ends_with(markers.open);
}

ReasoningLimit::ReasoningLimit(std::shared_ptr<const Tokenizer> tokenizer, ReasoningBudget budget,
                               std::span<const TokenId> prompt)
    : tokenizer_(std::move(tokenizer)), budget_(std::move(budget)) {
  close_ = encode_inside(*tokenizer_, budget_.markers.close);
  begins_open_ = ends_with_opening(*tokenizer_, budget_.markers, prompt);
}

std::optional<std::size_t> ReasoningLimit::begin_of(std::span<const TokenId> answer) const {
  if (begins_open_) return 0;
  std::string text;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    text += tokenizer_->raw_piece(answer[i]);
    const std::size_t begin = text.find_first_not_of(kWhiteSpace);
    if (begin == std::string::npos) continue;
    const std::string_view rest = std::string_view(text).substr(begin);
    if (rest.starts_with(budget_.markers.open)) return i + 1;
    if (!std::string_view(budget_.markers.open).starts_with(rest)) break;
  }
  return std::nullopt;
}

std::optional<TokenId> ReasoningLimit::next(std::span<const TokenId> answer) const {
  if (answer.size() < budget_.num_tokens) return std::nullopt;
  const auto begin = begin_of(answer);
  if (!begin || answer.size() - *begin < budget_.num_tokens) return std::nullopt;
  const auto reasoning = answer.subspan(*begin, budget_.num_tokens),
             after = answer.subspan(*begin + budget_.num_tokens);
  if (after.size() >= close_.size() || !std::equal(after.begin(), after.end(), close_.begin())) return std::nullopt;
  if (raw_text(*tokenizer_, reasoning).find(budget_.markers.close) != std::string::npos) return std::nullopt;
  return close_[after.size()];
}

}  // namespace troupe::engine
