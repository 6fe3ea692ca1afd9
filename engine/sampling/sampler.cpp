#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "config/assert.h"
#include "config/sampling/sampling_numbers.h"
#include "engine/sampling/philox.h"

namespace troupe::engine {
namespace {

// Logits are clamped to +-kMaxLogit, so that no later difference or product overflows; NaN counts as the smallest.
// Excluded tokens get this value, below the range.
constexpr float kExcluded = -2e30f;

// So many allowed tokens are chosen among by themselves, and not within the whole vocabulary.
constexpr std::size_t kFewTokens = 1024;

float clamp_logit(float logit) {
  if (!(logit > -kMaxLogit)) return -kMaxLogit;  // also NaN
  return logit < kMaxLogit ? logit : kMaxLogit;
}

// `what` follows the field's name.
FieldError bad_field(std::string_view field, std::string_view what) {
  return {fmt::format("sampling.{}", field), fmt::format("{} {}", field, what)};
}

template <class T>
FieldError out_of_range(std::string_view field, T value, std::string_view range) {
  if constexpr (std::is_floating_point_v<T>)
    return bad_field(field, fmt::format("is {:g}; it must be {}", value, range));
  return bad_field(field, fmt::format("is {}; it must be {}", value, range));
}

std::optional<FieldError> validate_ids(const SamplingParams& params, std::uint32_t vocab_size) {
  const auto unknown = [&](TokenId id) { return find_unknown_id(std::span(&id, 1), vocab_size).has_value(); };
  const std::string range = fmt::format("an id from 0 to {}, as the vocabulary has", vocab_size - 1);
  const auto too_many = [](std::string_view field, std::size_t count, std::size_t most) {
    return bad_field(field, fmt::format("has {} entries; it must have at most {}", count, most));
  };
  if (params.logit_bias.size() > kMaxLogitBias) return too_many("logit_bias", params.logit_bias.size(), kMaxLogitBias);
  for (const auto& [id, bias] : params.logit_bias) {
    if (unknown(id)) return bad_field("logit_bias", fmt::format("names token {}; it must be {}", id, range));
    if (std::isnan(bias) || bias > kMaxLogitBiasValue)
      return bad_field(
          "logit_bias",
          fmt::format("of token {} is {:f}; it must be a number up to 1e6 (-inf bans the token)", id, bias));
  }
  if (params.stop_ids.size() > kMaxStopIds) return too_many("stop_ids", params.stop_ids.size(), kMaxStopIds);
  for (const TokenId id : params.stop_ids)
    if (unknown(id)) return bad_field("stop_ids", fmt::format("has token {}; it must be {}", id, range));
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> find_unknown_id(std::span<const TokenId> ids, std::uint32_t vocab_size) {
  const auto found = std::find_if(ids.begin(), ids.end(),
                                  [&](TokenId id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocab_size; });
  if (found == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(found - ids.begin());
}

std::optional<FieldError> validate(const SamplingParams& params, std::uint32_t vocab_size) {
  std::optional<FieldError> wrong;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) {
        if (!wrong && !config::is_in_range(number, value)) wrong = out_of_range(number.name, value, number.range);
      },
      params);
  if (wrong) return wrong;
  if (params.max_tokens == 0) return out_of_range("max_tokens", params.max_tokens, "at least 1");
  if (params.min_tokens > params.max_tokens)
    return out_of_range("min_tokens", params.min_tokens, fmt::format("at most max_tokens, {}", params.max_tokens));
  if (params.num_logprobs < -1 || params.num_logprobs > kMaxLogprobs)
    return out_of_range("num_logprobs", params.num_logprobs, "from -1 (none) to 20");
  return validate_ids(params, vocab_size);
}

Sampler::Sampler(const kernels::KernelTable& kernels, SamplingParams params, std::vector<TokenId> end_ids)
    : kernels_(&kernels), params_(std::move(params)), end_ids_(std::move(end_ids)), candidates_(kernels) {
  has_repeat_penalty_ = params_.repeat_last_n != 0 && params_.repeat_penalty != 1;
  has_penalties_ = has_repeat_penalty_ || params_.presence_penalty != 0 || params_.frequency_penalty != 0;
}

bool Sampler::is_plain_greedy(std::uint64_t position) const {
  return params_.is_greedy() && params_.num_logprobs < 0 && params_.logit_bias.empty() && !has_penalties_ &&
         !params_.ignore_eos && !params_.ruled && !is_too_short(position);
}

void Sampler::reserve(std::size_t num_tokens) {
  if (has_penalties_) history_.reserve(num_tokens);
}

void Sampler::accept(TokenId id) {
  if (has_penalties_) history_.push_back(id);
}

void Sampler::retract(std::size_t count) {
  if (!has_penalties_) return;
  TROUPE_ASSERT(count <= history_.size());
  history_.resize(history_.size() - count);
}

SampledToken Sampler::sample(std::span<float> logits, std::uint64_t position) {
  TROUPE_ASSERT(!logits.empty());
  kernels_->clamp(logits.data(), kMaxLogit, logits.size());
  const bool wants_logprobs = params_.num_logprobs >= 0;
  if (wants_logprobs) raw_logits_.assign(logits.begin(), logits.end());

  apply_bias(logits);
  apply_penalties(logits);
  const bool too_short = is_too_short(position);
  if (too_short || params_.ignore_eos) exclude(end_ids_, logits);
  if (too_short) exclude(params_.stop_ids, logits);

  SampledToken token;
  token.id = forced_ ? *forced_ : allowed_.empty() ? choose(logits, position) : choose_allowed(logits, position);
  if (wants_logprobs) add_logprobs(raw_logits_, token);
  return token;
}

// Calls visit(id) for the tokens that may follow, ascending but for those that end the answer.
template <class Visit>
void Sampler::for_each_allowed(Visit visit) const {
  for (std::size_t word = 0; word < allowed_.size(); ++word)
    for (std::uint64_t left = allowed_[word]; left != 0; left &= left - 1)
      visit(static_cast<TokenId>(word * 64 + static_cast<std::size_t>(std::countr_zero(left))));
  if (!may_end_) return;
  for (const TokenId id : end_ids_) visit(id);
  for (const TokenId id : params_.stop_ids) visit(id);
}

TokenId Sampler::choose_allowed(std::span<float> logits, std::uint64_t position) {
  std::size_t count = 0;
  for (const std::uint64_t word : allowed_) count += static_cast<std::size_t>(std::popcount(word));
  return count <= kFewTokens ? choose_of_few(logits, position) : choose_of_many(logits, position);
}

TokenId Sampler::choose_of_few(std::span<const float> logits, std::uint64_t position) {
  few_ids_.clear();
  for_each_allowed([&](TokenId id) { few_ids_.push_back(id); });
  std::ranges::sort(few_ids_);
  few_ids_.erase(std::unique(few_ids_.begin(), few_ids_.end()), few_ids_.end());
  if (few_ids_.empty()) return 0;
  few_logits_.clear();
  for (const TokenId id : few_ids_) few_logits_.push_back(logits[static_cast<std::size_t>(id)]);
  const auto chosen = static_cast<std::size_t>(choose(few_logits_, position));
  return few_logits_[chosen] > kExcluded ? few_ids_[chosen] : few_ids_.front();
}

TokenId Sampler::choose_of_many(std::span<float> logits, std::uint64_t position) {
  std::vector<std::pair<TokenId, float>> ends;
  if (may_end_)
    for (const std::vector<TokenId>* const ids : {&end_ids_, &params_.stop_ids})
      for (const TokenId id : *ids) ends.emplace_back(id, logits[static_cast<std::size_t>(id)]);
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::uint64_t word = begin / 64 < allowed_.size() ? allowed_[begin / 64] : 0;
    const std::span<float> some = logits.subspan(begin, std::min<std::size_t>(64, logits.size() - begin));
    if (word == 0) {
      std::ranges::fill(some, kExcluded);
    } else {
      for (std::uint64_t left = ~word; left != 0; left &= left - 1)
        if (const auto at = static_cast<std::size_t>(std::countr_zero(left)); at < some.size()) some[at] = kExcluded;
    }
  }
  for (const auto& [id, logit] : ends) logits[static_cast<std::size_t>(id)] = logit;
  const TokenId chosen = choose(logits, position);
  if (logits[static_cast<std::size_t>(chosen)] > kExcluded) return chosen;
  TokenId lowest = std::numeric_limits<TokenId>::max();
  for_each_allowed([&](TokenId id) { lowest = std::min(lowest, id); });
  return lowest;
}

SampledToken Sampler::score(std::span<float> logits, TokenId id) const {
  kernels_->clamp(logits.data(), kMaxLogit, logits.size());
  SampledToken token;
  token.id = id;
  add_logprobs(logits, token);
  return token;
}

void Sampler::exclude(const std::vector<TokenId>& ids, std::span<float> logits) const {
  for (const TokenId id : ids) logits[static_cast<std::size_t>(id)] = kExcluded;
}

void Sampler::apply_bias(std::span<float> logits) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = logits[static_cast<std::size_t>(id)];
    if (bias < -kMaxLogit)
      logit = kExcluded;
    else if (logit != kExcluded)  // a ban wins over other biases of the token
      logit = clamp_logit(logit + bias);
  }
}

// Counts tokens, then visits them again and takes each one's count at its first occurrence, which resets the counters
// to zero for the next call: O(tokens), and retract() has no counters to update.
template <class Change>
void Sampler::for_each_count(std::span<const TokenId> tokens, std::span<float> logits, Change change) {
  counts_.resize(logits.size());
  for (const TokenId id : tokens) ++counts_[static_cast<std::size_t>(id)];
  for (const TokenId id : tokens) {
    const std::uint32_t count = std::exchange(counts_[static_cast<std::size_t>(id)], 0);
    float& logit = logits[static_cast<std::size_t>(id)];
    if (count != 0 && logit != kExcluded) logit = clamp_logit(change(logit, static_cast<float>(count)));
  }
}

// The repeat penalty is llama.cpp's, over the last tokens, the prompt's among them. The other two are OpenAI's and
// vLLM's, over all tokens of the answer.
void Sampler::apply_penalties(std::span<float> logits) {
  if (has_repeat_penalty_) {
    const std::size_t window = params_.repeat_last_n < 0
                                   ? history_.size()
                                   : std::min(history_.size(), static_cast<std::size_t>(params_.repeat_last_n));
    for_each_count(std::span(history_).last(window), logits, [&](float logit, float) {
      return logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    });
  }
  if (params_.presence_penalty == 0 && params_.frequency_penalty == 0) return;
  for_each_count(
      std::span(history_).subspan(std::min(num_prompt_, history_.size())), logits,
      [&](float logit, float count) { return logit - (params_.presence_penalty + count * params_.frequency_penalty); });
}

TokenId Sampler::choose(std::span<const float> logits, std::uint64_t position) {
  if (params_.is_greedy()) return static_cast<TokenId>(kernels_->arg_max(logits.data(), logits.size()).index);
  if (params_.top_k > 0)
    candidates_.assign_top_k(logits, static_cast<std::size_t>(params_.top_k));
  else
    candidates_.assign(logits);
  candidates_.to_weights(1.0f / params_.temperature);
  if (params_.top_p < 1) candidates_.keep_top_p(params_.top_p);
  if (params_.min_p > 0) candidates_.keep_min_p(params_.min_p);
  return candidates_.draw(uniform_draw(params_.seed, position, params_.choice, DrawPurpose::token));
}

void Sampler::add_logprobs(std::span<const float> raw, SampledToken& token) const {
  const float max = kernels_->arg_max(raw.data(), raw.size()).value;
  alignas(64) std::array<float, kernels::kSoftmaxTile> tile;
  float sum = 0;
  for (std::size_t begin = 0; begin < raw.size(); begin += kernels::kSoftmaxTile) {
    const std::size_t count = std::min(kernels::kSoftmaxTile, raw.size() - begin);
    sum += kernels_->exp_tile(raw.data() + begin, max, 1.0f, tile.data(), count);
  }
  const float log_sum = kernels::log_positive(sum);
  const auto logprob = [&](TokenId id) { return (raw[static_cast<std::size_t>(id)] - max) - log_sum; };
  token.logprob = logprob(token.id);

  // Selects the likeliest tokens: ids ascend, so a later one must be strictly larger to come before an earlier one.
  const std::size_t wanted = std::min(raw.size(), static_cast<std::size_t>(params_.num_logprobs));
  if (wanted == 0) return;
  std::vector<TokenLogprob>& top = token.top;
  top.reserve(wanted + 1);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (top.size() == wanted && raw[i] <= raw[static_cast<std::size_t>(top.back().id)]) continue;
    const auto place = std::find_if(top.begin(), top.end(), [&](const TokenLogprob& other) {
      return raw[static_cast<std::size_t>(other.id)] < raw[i];
    });
    top.insert(place, {static_cast<TokenId>(i), 0});
    if (top.size() > wanted) top.pop_back();
  }
  for (TokenLogprob& entry : top) entry.logprob = logprob(entry.id);
}

}  // namespace troupe::engine
