#include "engine/constraints/mark_tokens.h"

#include <algorithm>

namespace troupe::engine::constraints {

MarkTokens::MarkTokens(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    std::string text = tokenizer.raw_piece(id);
    if (text.empty()) continue;
    if (tokenizer.is_end_of_generation(id))
      ends_.push_back(std::move(text));
    else if (marks_.size() < kMost)
      marks_.push_back({id, std::move(text), {}});
  }
  std::ranges::sort(marks_, [](const Mark& a, const Mark& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  for (std::size_t at = 0; at < marks_.size(); ++at)
    marks_[at].bytes = {kFirstByte, static_cast<char>(static_cast<unsigned char>(at + 1))};
}

MarkTokens MarkTokens::among(std::span<const TokenId> ids) const {
  MarkTokens some = *this;
  std::erase_if(some.marks_, [&](const Mark& each) { return std::ranges::find(ids, each.id) == ids.end(); });
  return some;
}

std::string MarkTokens::written(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const auto mark = std::ranges::find_if(marks_, [&](const Mark& each) { return text.starts_with(each.text); });
    if (mark == marks_.end())
      out += text.front();
    else
      out += mark->bytes;
    text.remove_prefix(mark == marks_.end() ? 1 : mark->text.size());
  }
  return out;
}

bool MarkTokens::ends_answer(std::string_view text) const { return std::ranges::find(ends_, text) != ends_.end(); }

std::string MarkTokens::piece(const Tokenizer& tokenizer, TokenId id) const {
  const auto mark = std::ranges::find(marks_, id, &Mark::id);
  return mark == marks_.end() ? tokenizer.piece(id) : mark->bytes;
}

}  // namespace troupe::engine::constraints
