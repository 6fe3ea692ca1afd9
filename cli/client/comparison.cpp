#include "cli/client/comparison.h"

#include <fmt/format.h>

#include <utility>

namespace troupe::cli {
namespace {

using scheduler::Outcome;

bool was_cut(const actors::Proof& proof) {
  return proof.outcome == Outcome::cancelled || proof.outcome == Outcome::deadline ||
         proof.outcome == Outcome::tool_call;
}

std::string shown(TokenId id, const std::function<std::string(TokenId)>& text_of) {
  const std::string text = text_of ? text_of(id) : std::string();
  return text.empty() ? fmt::format("{}", id) : fmt::format("{} (\"{}\")", id, text);
}

// "stop_string \"The end\""
std::string shown(Outcome outcome, std::string_view stop) {
  const std::string_view name = scheduler::info(outcome).name;
  return stop.empty() ? std::string(name) : fmt::format("{} \"{}\"", name, stop);
}

}  // namespace

Outcome provable_end(const actors::Proof& proof) { return was_cut(proof) ? Outcome::length : proof.outcome; }

std::uint32_t provable_tokens(const actors::Proof& proof) {
  return was_cut(proof) && !proof.form ? static_cast<std::uint32_t>(proof.ids.size()) : proof.sampling.max_tokens;
}

bool Comparison::is_over() const {
  return was_cut(proof_) && proof_.form && !difference_ && num_same_ == proof_.ids.size();
}

bool Comparison::take(std::span<const TokenId> ids, std::string_view text) {
  text_ += text;
  for (const TokenId id : ids) {
    if (difference_ || is_over()) break;
    if (num_same_ == proof_.ids.size() || proof_.ids[num_same_] != id)
      differs(num_same_, id);
    else
      ++num_same_;
  }
  return !difference_ && !is_over();
}

void Comparison::end(Outcome outcome, std::string_view stop) {
  ended_ = true;
  if (difference_) return;
  const Outcome expected = provable_end(proof_);
  if (num_same_ < proof_.ids.size()) return differs(num_same_, {}, shown(outcome, stop));
  if (!is_over() && (outcome != expected || stop != proof_.stop))
    return differs(num_same_, {},
                   fmt::format("its end is {}, the model's {}", shown(expected, proof_.stop), shown(outcome, stop)));
  // Text that was held back when an answer was cut is not in its receipt.
  const bool is_same = was_cut(proof_) ? std::string_view(text_).starts_with(proof_.text) : text_ == proof_.text;
  if (!is_same) differs(num_same_, {}, "its text is not that of its tokens");
}

void Comparison::differs(std::size_t position, std::optional<TokenId> right, std::string what) {
  difference_ = Difference{position, right, std::move(what)};
}

std::string Comparison::difference(const std::function<std::string(TokenId)>& text_of) const {
  if (!difference_) return {};
  const std::size_t at = difference_->position, count = proof_.ids.size();
  if (difference_->right && at == count)
    return fmt::format("it ends by {} after {} tokens, where the model gives {}",
                       shown(provable_end(proof_), proof_.stop), count, shown(*difference_->right, text_of));
  if (difference_->right)
    return fmt::format("token {} of {} is {}, the model gives {}", at + 1, count, shown(proof_.ids[at], text_of),
                       shown(*difference_->right, text_of));
  if (at < count)
    return fmt::format("token {} of {} is {}, where the model ends the answer by {}", at + 1, count,
                       shown(proof_.ids[at], text_of), difference_->what);
  return difference_->what;
}

std::optional<std::size_t> Comparison::position() const {
  return difference_ ? std::optional(difference_->position) : std::nullopt;
}

}  // namespace troupe::cli
