#include "engine/constraints/answer_grammar.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/token_filter.h"
#include "engine/tokenizers/answer_beginning.h"
#include "engine/tokenizers/reasoning_limit.h"

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

struct AnswerGrammar::Shared {
  Shared(Grammar grammar, std::shared_ptr<const TokenTrie> vocabulary, std::shared_ptr<const Tokenizer> texts)
      : tokenizer(std::move(texts)), trie(std::move(vocabulary)), machine(std::move(grammar)), filter(machine, trie) {}

  std::optional<TokenId> forced_token(StateId state, const TokenMask& mask);
  void count_bytes() { bytes_used = machine.bytes_used() + filter.bytes_used(); }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
  std::mutex mutex;
  std::atomic<std::size_t> bytes_used{0};  // of machine and filter, after each mask
  Machine machine;                         // with `mutex` held
  TokenFilter filter;                      // the same
};

// The longest of the tokens that may follow, if the others are its beginnings and nothing else can be written.
std::optional<TokenId> AnswerGrammar::Shared::forced_token(StateId state, const TokenMask& mask) {
  if (mask.count() > kMaxForcedCandidates) return std::nullopt;
  TokenId longest = 0;
  std::string text;
  for (std::size_t word = 0; word < mask.words().size(); ++word)
    for (std::uint64_t left = mask.words()[word]; left != 0; left &= left - 1) {
      const auto id = static_cast<TokenId>(word * 64 + static_cast<std::size_t>(std::countr_zero(left)));
      if (std::string piece = tokenizer->piece(id); piece.size() > text.size()) {
        longest = id;
        text = std::move(piece);
      }
    }
  for (const char each : text) {
    const std::optional<std::uint8_t> only = only_byte(machine, state);
    if (only != static_cast<std::uint8_t>(each)) return std::nullopt;
    state = machine.next(state, *only);
  }
  return longest;
}

class AnswerGrammar::Reader final : public AnswerReader {
 public:
  Reader(std::shared_ptr<Shared> shared, std::size_t least_tokens, std::span<const TokenId> prompt,
         const ReasoningMarkers& markers)
      : shared_(std::move(shared)),
        least_tokens_(least_tokens),
        mask_(shared_->trie->num_tokens()),
        states_{shared_->machine.begin()} {
    if (!ends_with_opening(*shared_->tokenizer, markers, prompt)) return;
    close_ = encode_inside(*shared_->tokenizer, markers.close);
    gap_ = encode_inside(*shared_->tokenizer, "\n\n");
  }

  NextTokens next(std::span<const TokenId> answer, std::size_t tokens_left) override {
    if (!close_.empty()) {
      const auto close = std::search(answer.begin(), answer.end(), close_.begin(), close_.end());
      if (close == answer.end()) return in_reasoning(answer, tokens_left);
      answer = answer.subspan(static_cast<std::size_t>(close - answer.begin()) + close_.size());
      if (answer.size() < gap_.size()) return {.kind = NextTokens::Kind::forced, .forced = gap_[answer.size()]};
      answer = answer.subspan(gap_.size());
    }
    // It is asked for twice, as what follows a token and when that is drawn. The second time would not meet the limit
    // of work where the first did.
    if (answer.size() == told_size_ && tokens_left == told_left_) return told_;
    told_ = {.kind = NextTokens::Kind::failed};
    told_size_ = answer.size();
    told_left_ = tokens_left;
    const std::scoped_lock lock(shared_->mutex);
    try {
      told_ = behind(answer, tokens_left);
    } catch (const ConstraintLimit&) {
    }
    shared_->count_bytes();
    return told_;
  }

  // What was read of the answer is read again.
  void truncate(std::size_t) override {
    states_.resize(1);
    told_size_ = kNothingTold;
  }

 private:
  // Reasoning ends where the rest is needed for the shortest answer.
  NextTokens in_reasoning(std::span<const TokenId> answer, std::size_t tokens_left) const {
    std::size_t written = std::min(close_.size() - 1, answer.size());
    while (written > 0 && !std::ranges::equal(answer.last(written), std::span(close_).first(written))) --written;
    if (tokens_left > close_.size() - written + gap_.size() + least_tokens_) return {};
    return {.kind = NextTokens::Kind::forced, .forced = close_[written]};
  }

  NextTokens behind(std::span<const TokenId> answer, std::size_t tokens_left) {
    Machine& machine = shared_->machine;
    if (states_.size() > answer.size() + 1) states_.resize(answer.size() + 1);
    while (states_.size() <= answer.size()) {
      machine.pool().limit_work(kMaxMaskWork);  // of each token, so that a long answer can be read from its begin
      states_.push_back(machine.after(states_.back(), shared_->tokenizer->piece(answer[states_.size() - 1])));
    }
    machine.pool().limit_work(kMaxMaskWork);
    const StateId state = states_.back();
    if (state == kStuck) return {.kind = NextTokens::Kind::failed};
    shared_->filter.fill(state, mask_, tokens_left);
    const bool may_end = machine.may_end(state);
    if (mask_.count() == 0) return {.kind = may_end ? NextTokens::Kind::complete : NextTokens::Kind::failed};
    if (!may_end)
      if (const auto forced = shared_->forced_token(state, mask_))
        return {.kind = NextTokens::Kind::forced, .forced = *forced};
    return {.kind = NextTokens::Kind::some, .allowed = mask_.words(), .may_end = may_end};
  }

  std::shared_ptr<Shared> shared_;
  std::size_t least_tokens_;
  TokenMask mask_;
  std::vector<StateId> states_;  // after each token of the answer behind the reasoning, the first before any
  std::vector<TokenId> close_;   // of the reasoning in which the answer begins; empty: in none
  std::vector<TokenId> gap_;     // behind it
  // The last that was told: behind so many tokens of the answer, with so many left.
  static constexpr std::size_t kNothingTold = SIZE_MAX;
  NextTokens told_;
  std::size_t told_size_ = kNothingTold, told_left_ = 0;
};

AnswerGrammar::~AnswerGrammar() = default;

Result<std::shared_ptr<const AnswerGrammar>> AnswerGrammar::make(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                                                 std::shared_ptr<const Tokenizer> tokenizer) {
  if (!trie->has_every_byte())
    return Error{ErrorCode::unsupported,
                 "the model's vocabulary has no token for some bytes, so that its answers cannot be held to a form"};
  try {
    std::shared_ptr<AnswerGrammar> made(new AnswerGrammar());
    made->shared_ = std::make_shared<Shared>(std::move(grammar), std::move(trie), std::move(tokenizer));
    made->least_tokens_ = made->shared_->filter.tokens_to_end(made->shared_->machine.begin());
    made->shared_->count_bytes();
    return std::shared_ptr<const AnswerGrammar>(std::move(made));
  } catch (const ConstraintLimit& limit) {
    return Error{ErrorCode::unsupported, limit.what()};
  }
}

std::size_t AnswerGrammar::bytes_used() const { return shared_->bytes_used; }

std::unique_ptr<AnswerReader> AnswerGrammar::read(std::span<const TokenId> prompt,
                                                  const ReasoningMarkers& markers) const {
  return std::make_unique<Reader>(shared_, least_tokens_, prompt, markers);
}

}  // namespace troupe::engine::constraints
