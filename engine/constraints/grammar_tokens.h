// The tokens that may follow in the texts of a grammar, for the readers of a rule.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/mark_tokens.h"
#include "engine/constraints/token_filter.h"
#include "engine/constraints/token_trie.h"
#include "engine/sampling/answer_rule.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// Expressions that are derived and states that are made for one mask, or to read one token, some microseconds each.
// More than that and the answer fails, so that no grammar keeps a step from its end. What was made for an earlier mask
// of the request, its other choices included, is not made again. Other requests count nowhere: each reads with a copy
// of what was compiled, so whether a form was compiled before, and what others read with it, changes no answer.
inline constexpr std::size_t kMaxMaskWork = 5'000;

// What a reader was told last: behind so many tokens of the answer, with so many left. It is asked for twice, as what
// follows a token and when that is drawn, and the second time would not meet the limit of work where the first did.
struct ToldTokens {
  static constexpr std::size_t kNothing = SIZE_MAX;
  std::size_t answer_size = kNothing, tokens_left = 0;
  NextTokens next{};
};

// One machine for all readers of a rule, one after another: what one has read the others need not derive again. Where
// nothing else is said, one thread at a time (tell()), and ConstraintLimit is thrown.
class GrammarTokens {
 public:
  // trie: of the vocabulary with these marks.
  GrammarTokens(Grammar grammar, std::shared_ptr<const TokenTrie> trie, std::shared_ptr<const Tokenizer> tokenizer,
                MarkTokens marks)
      : tokenizer_(std::move(tokenizer)),
        trie_(std::move(trie)),
        marks_(std::move(marks)),
        machine_(std::move(grammar)),
        filter_(machine_, trie_) {
    count_bytes();
  }

  // What read() says, or failed where it takes too much work; what was told stays told. Any thread; throws nothing.
  template <class Read>
  [[nodiscard]] NextTokens tell(ToldTokens& told, std::size_t answer_size, std::size_t tokens_left, const Read& read) {
    if (told.answer_size == answer_size && told.tokens_left == tokens_left) return told.next;
    told = {answer_size, tokens_left, {.kind = NextTokens::Kind::failed}};
    const std::scoped_lock lock(mutex_);
    try {
      told.next = read();
    } catch (const ConstraintLimit&) {
    }
    count_bytes();
    return told.next;
  }
  // Allows so much work until the next call.
  void limit_work(std::size_t work = kMaxMaskWork) { machine_.pool().limit_work(work); }

  StateId begin() const { return machine_.begin(); }
  [[nodiscard]] StateId after(StateId state, std::string_view text) { return machine_.after(state, text); }
  [[nodiscard]] StateId after(StateId state, TokenId token) { return machine_.after(state, piece(token)); }
  bool may_end(StateId state) const { return machine_.may_end(state); }
  [[nodiscard]] std::size_t tokens_to_end(StateId state) { return filter_.tokens_to_end(state); }
  // What may follow, in `mask`, which is of the vocabulary's size.
  [[nodiscard]] NextTokens next(StateId state, TokenMask& mask, std::size_t tokens_left);

  // Any thread.
  std::size_t bytes_used() const { return bytes_used_; }  // of memory: what was made of the grammar so far
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const MarkTokens& marks() const { return marks_; }
  std::size_t num_tokens() const { return trie_->num_tokens(); }
  // The bytes of a token in the grammar's texts.
  std::string piece(TokenId token) const { return marks_.piece(*tokenizer_, token); }

 private:
  void count_bytes() { bytes_used_ = machine_.bytes_used() + filter_.bytes_used(); }
  std::optional<TokenId> forced_token(StateId state, const TokenMask& mask);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const TokenTrie> trie_;
  const MarkTokens marks_;
  std::atomic<std::size_t> bytes_used_{0};
  std::mutex mutex_;
  Machine machine_;
  TokenFilter filter_;
};

}  // namespace troupe::engine::constraints
