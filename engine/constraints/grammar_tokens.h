// The tokens that may follow in the texts of a grammar, for the readers of a rule.
#pragma once

#include <cstddef>
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

// Expressions that are derived and states that are made for one mask, some microseconds each. More than that and the
// answer fails, so that no grammar keeps a step from its end.
inline constexpr std::size_t kMaxMaskWork = 5'000;

// What a reader was told last: it is asked for twice, as what follows a token, and when that is drawn.
struct ToldTokens {
  StateId state = kStuck;  // kStuck: nothing yet
  std::size_t tokens_left = 0;
  NextTokens next{};
};

// One machine for all readers of a rule, one after another: what one has read the others need not derive again. All
// but lock() with the lock held, and throws ConstraintLimit.
class GrammarTokens {
 public:
  // trie: of the vocabulary with these marks.
  GrammarTokens(Grammar grammar, std::shared_ptr<const TokenTrie> trie, std::shared_ptr<const Tokenizer> tokenizer,
                MarkTokens marks)
      : tokenizer_(std::move(tokenizer)),
        trie_(std::move(trie)),
        marks_(std::move(marks)),
        machine_(std::move(grammar)),
        filter_(machine_, trie_) {}

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // Allows so much work until the next call.
  void limit_work(std::size_t work = kMaxMaskWork) { machine_.pool().limit_work(work); }

  StateId begin() const { return machine_.begin(); }
  [[nodiscard]] StateId after(StateId state, std::string_view text) { return machine_.after(state, text); }
  [[nodiscard]] StateId after(StateId state, TokenId token) { return machine_.after(state, piece(token)); }
  bool may_end(StateId state) const { return machine_.may_end(state); }
  [[nodiscard]] std::size_t tokens_to_end(StateId state) { return filter_.tokens_to_end(state); }
  // What may follow, in `mask`, which is of the vocabulary's size. `mask` and `told` are of one reader.
  [[nodiscard]] NextTokens next(StateId state, TokenMask& mask, std::size_t tokens_left, ToldTokens& told);

  // Any thread, without the lock.
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const MarkTokens& marks() const { return marks_; }
  std::size_t num_tokens() const { return trie_->num_tokens(); }
  // The bytes of a token in the grammar's texts.
  std::string piece(TokenId token) const { return marks_.piece(*tokenizer_, token); }

 private:
  NextTokens allowed_in(StateId state, TokenMask& mask, std::size_t tokens_left);
  std::optional<TokenId> forced_token(StateId state, const TokenMask& mask);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const TokenTrie> trie_;
  const MarkTokens marks_;
  std::mutex mutex_;
  Machine machine_;
  TokenFilter filter_;
};

}  // namespace troupe::engine::constraints
