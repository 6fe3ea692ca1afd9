// From logits to a token: filters in a fixed order, and a draw that depends only on the logits, the
// parameters, the seed and the position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "engine/sampling/answer_rule.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/reasoning_markers.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// How many tokens a model may write between its markers before its answer (tokenizers/reasoning_limit.h).
struct ReasoningBudget {
  std::uint32_t num_tokens = 0;
  ReasoningMarkers markers{};  // in a request: not set yet
};

// What an answer has to begin with, behind its reasoning (tokenizers/answer_beginning.h).
struct ForcedBeginning {
  std::string text;
  ReasoningMarkers markers{};
};

// The sampling parameters of a request. The defaults are neutral: the model's own distribution.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, the likeliest token (lowest id among equals)
  std::int32_t top_k = 0;           // keep the k likeliest; -1 and 0: all
  float top_p = 1.0f;               // keep the smallest set with at least this probability, (0, 1]
  float min_p = 0.0f;               // drop tokens below min_p times the largest probability, [0, 1]
  float repeat_penalty = 1.0f;      // divides (or multiplies, if negative) logits of repeated tokens
  float presence_penalty = 0.0f;    // subtracted once from each token that the answer has
  float frequency_penalty = 0.0f;   // subtracted for each time that the answer has a token
  std::int32_t repeat_last_n = 64;  // window of repeat_penalty, prompt included; -1: all, 0: off
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to raw logits; -inf bans a token
  std::uint64_t seed = 0;    // key of the draws; the caller draws one if the request has none
  std::uint32_t choice = 0;  // index among the n answers to one request: each has different draws
  std::uint32_t max_tokens = std::numeric_limits<std::uint32_t>::max();
  std::vector<TokenId> stop_ids = {};  // a sampled one ends the sequence; it is not emitted
  bool ignore_eos = false;             // end-of-generation tokens are never drawn
  std::uint32_t min_tokens = 0;  // end-of-generation tokens and stop_ids are not drawn before the answer has so many
  std::optional<ReasoningBudget> reasoning_budget{};  // none: as long as the model likes
  std::optional<ForcedBeginning> beginning{};         // set by the batch, of requests that demand a call
  std::optional<RuledAnswer> ruled{};                 // set by the batch, of requests that ask for a form
  std::int32_t num_logprobs = -1;                     // -1: none; n: of the chosen token and the n likeliest ones
  bool prompt_logprobs = false;                       // with num_logprobs >= 0: those of the prompt's tokens, too

  // Below this, 1 / temperature would make a softmax of one token anyway.
  static constexpr float kMinTemperature = 1e-4f;
  // Nothing is drawn: seed, choice, top_k, top_p and min_p have no part in the answer.
  [[nodiscard]] bool is_greedy() const { return temperature < kMinTemperature; }
};

inline constexpr std::int32_t kMaxLogprobs = 20;
inline constexpr std::size_t kMaxStopIds = 64;
inline constexpr std::size_t kMaxLogitBias = 1024;
inline constexpr float kMaxLogitBiasValue = 1e6f;
inline constexpr float kMaxLogit = 1e30f;  // larger logits, and infinities, are clamped to this

// The index of the first id outside a vocabulary of this size; nothing: all are inside.
[[nodiscard]] std::optional<std::size_t> find_unknown_id(std::span<const TokenId> ids, std::uint32_t vocab_size);

struct FieldError {
  std::string field;    // "sampling.top_p"
  std::string message;  // "top_p is 1.5; it must be above 0 and at most 1"
};

// The first field that is out of range (also NaN), or nothing.
[[nodiscard]] std::optional<FieldError> validate(const SamplingParams& params, std::uint32_t vocab_size);

struct TokenLogprob {
  TokenId id;
  float logprob;
};

struct SampledToken {
  TokenId id = 0;
  // Log-softmax of the raw logits; only if num_logprobs >= 0. NaN: nothing was before it (a prompt's first token).
  float logprob = 0;
  std::vector<TokenLogprob> top{};  // num_logprobs entries, likeliest first
};

// The sampler of one sequence: parameters and the token counts that penalties need. Not thread-safe. After the first
// call on a vocabulary size nothing is allocated (except for top logprobs, or if penalties need a longer history than
// reserve() made room for). O(vocabulary + repeat_last_n) per token.
class Sampler {
 public:
  // `end_ids` are the vocabulary's end-of-generation tokens (for ignore_eos).
  Sampler(const kernels::KernelTable& kernels, SamplingParams params, std::vector<TokenId> end_ids);

  // Makes room for the history of a sequence of `num_tokens` tokens, if penalties need one.
  void reserve(std::size_t num_tokens);
  // The first `num_tokens` tokens are the prompt, which presence and frequency penalties and min_tokens leave out.
  void set_prompt(std::size_t num_tokens) { num_prompt_ = num_tokens; }
  // Adds a token of the sequence to the history: prompt and sampled ones, in order.
  void accept(TokenId id);
  // Forgets the last `count` accepted tokens (a rejected draft).
  void retract(std::size_t count);

  // Draws the token for `position` (the number of tokens before it, so that a resumed sequence draws the same).
  // `logits` is used as scratch space; its contents are undefined afterwards. Does not call accept(). Never fails: NaN
  // counts as the smallest logit, infinities as +-1e30. All ids of the parameters and the history must be in the
  // vocabulary. Philox4x32-10 (Salmon et al., SC 2011), key = seed, counter = (position, choice, purpose).
  [[nodiscard]] SampledToken sample(std::span<float> logits, std::uint64_t position);
  // The token of the next draw, whatever is likely; nothing: it is drawn.
  void force(std::optional<TokenId> id) { forced_ = id; }
  // The tokens that the next draws are made among, a bit for each, and with may_end those that end the answer; empty:
  // all. Kept until the next call. Of tokens that are allowed and excluded otherwise, if there are no others, the
  // lowest is taken.
  void allow(std::span<const std::uint64_t> allowed, bool may_end) {
    allowed_ = allowed;
    may_end_ = may_end;
  }

  // What the model gives a token that is not drawn: its logprob and the likeliest ones, as sample() reports them.
  // `logits` are clamped. By several threads at once for different logits.
  [[nodiscard]] SampledToken score(std::span<float> logits, TokenId id) const;

  const SamplingParams& params() const { return params_; }
  // Whether the tokens from this position on are just the argmax of the raw logits, without logprobs: then sample()
  // need not be called.
  bool is_plain_greedy(std::uint64_t position) const;

 private:
  // Whether the answer must not end at this position.
  bool is_too_short(std::uint64_t position) const { return position < num_prompt_ + std::uint64_t{params_.min_tokens}; }
  void apply_bias(std::span<float> logits) const;
  void exclude(const std::vector<TokenId>& ids, std::span<float> logits) const;
  template <class Visit>
  void for_each_allowed(Visit visit) const;
  TokenId choose_allowed(std::span<float> logits, std::uint64_t position);
  TokenId choose_of_few(std::span<const float> logits, std::uint64_t position);
  TokenId choose_of_many(std::span<float> logits, std::uint64_t position);
  void apply_penalties(std::span<float> logits);
  template <class Change>
  void for_each_count(std::span<const TokenId> tokens, std::span<float> logits, Change change);
  TokenId choose(std::span<const float> logits, std::uint64_t position);
  void add_logprobs(std::span<const float> raw, SampledToken& token) const;

  const kernels::KernelTable* kernels_;
  SamplingParams params_;
  std::vector<TokenId> end_ids_;
  bool has_repeat_penalty_ = false, has_penalties_ = false;
  std::size_t num_prompt_ = 0;
  std::optional<TokenId> forced_;
  std::span<const std::uint64_t> allowed_;
  bool may_end_ = false;
  std::vector<TokenId> history_;  // only kept if penalties need it
  // Scratch, kept between calls.
  Candidates candidates_;
  std::vector<std::uint32_t> counts_;
  std::vector<float> raw_logits_;
  std::vector<TokenId> few_ids_;
  std::vector<float> few_logits_;
};

}  // namespace troupe::engine
