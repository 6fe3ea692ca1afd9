// Compares the answer that a receipt's request gets now with the one in the receipt.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "actors/requests/proof.h"
#include "cache/ids.h"
#include "scheduler/outcome.h"

namespace troupe::cli {

// The end that the model itself gives an answer: for one that was cancelled or met its deadline, that of its tokens.
[[nodiscard]] scheduler::Outcome provable_end(const actors::Proof& proof);
// The tokens that a request for it may have. Where the answer has a form these say how it is kept whole: then as many
// as at first, also for one that was cut, which goes on behind it.
[[nodiscard]] std::uint32_t provable_tokens(const actors::Proof& proof);

// How far the two are the same. Plain; not thread-safe.
class Comparison {
 public:
  // `proof` outlives it.
  explicit Comparison(const actors::Proof& proof) : proof_(proof) {}

  // More of the answer. False: it differs, now or before, or is_over(): the rest need not be computed.
  bool take(std::span<const TokenId> ids, std::string_view text);
  // Whether all tokens of an answer that was cut are the same, behind which the one computed now goes on.
  [[nodiscard]] bool is_over() const;
  // The answer's end, of kind done unless is_over(). A difference found before stays.
  void end(scheduler::Outcome outcome, std::string_view stop);

  // After end(), or once take() was false: whether all of it is the same.
  [[nodiscard]] bool is_proved() const { return ended_ && !difference_; }
  // What differs first, in words: "token 17 of 40 is 345 (" her"), the model gives 361 (" his")". text_of: of a token,
  // for people; may be null. Empty: nothing.
  [[nodiscard]] std::string difference(const std::function<std::string(TokenId)>& text_of) const;
  // The index of the first token that differs, or the number of tokens if the end does; none: nothing differs.
  [[nodiscard]] std::optional<std::size_t> position() const;

 private:
  struct Difference {
    std::size_t position = 0;
    std::optional<TokenId> right{};  // none: the answer ends there
    std::string what{};              // of an end or a text, in words
  };
  void differs(std::size_t position, std::optional<TokenId> right, std::string what = {});

  const actors::Proof& proof_;
  std::size_t num_same_ = 0;  // tokens
  std::string text_;
  bool ended_ = false;
  std::optional<Difference> difference_;
};

}  // namespace troupe::cli
