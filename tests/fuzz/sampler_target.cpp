// Sampling parameters and logits of any bits: refused by field, or a token of the vocabulary, twice the same.
#include <cmath>
#include <vector>

#include "engine/sampling/sampler.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine {
namespace {

constexpr std::uint32_t kVocabSize = 257;  // no multiple of any vector

SamplingParams read_params(fuzz::Input& in) {
  SamplingParams params;
  params.temperature = in.number<float>();
  params.top_k = in.number<std::int32_t>();
  params.top_p = in.number<float>();
  params.min_p = in.number<float>();
  params.repeat_penalty = in.number<float>();
  params.presence_penalty = in.number<float>();
  params.frequency_penalty = in.number<float>();
  params.repeat_last_n = in.number<std::int16_t>();
  params.seed = in.number<std::uint64_t>();
  params.num_logprobs = in.number<std::int8_t>();
  params.ignore_eos = in.byte() % 2 == 1;
  for (std::size_t count = in.byte() % 8; count > 0; --count) {
    const TokenId id = in.number<std::int16_t>();
    params.logit_bias.emplace_back(id, in.number<float>());
  }
  for (std::size_t count = in.byte() % 8; count > 0; --count) params.stop_ids.push_back(in.number<std::int16_t>());
  return params;
}

bool is_token(TokenId id) { return id >= 0 && static_cast<std::uint32_t>(id) < kVocabSize; }

void check_sample(const SampledToken& token, const SamplingParams& params) {
  TROUPE_ASSERT(is_token(token.id));
  TROUPE_ASSERT(!std::isnan(token.logprob) && token.logprob <= 0.0f);
  const std::int32_t wanted = std::max(params.num_logprobs, 0);
  TROUPE_ASSERT(token.top.size() == static_cast<std::size_t>(wanted));
  for (std::size_t i = 0; i < token.top.size(); ++i) {
    TROUPE_ASSERT(is_token(token.top[i].id));
    TROUPE_ASSERT(i == 0 || token.top[i - 1].logprob >= token.top[i].logprob);
  }
}

}  // namespace
}  // namespace troupe::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine;
  fuzz::Input in(data, size);
  const SamplingParams params = read_params(in);
  if (const auto wrong = validate(params, kVocabSize)) {
    TROUPE_ASSERT(!wrong->field.empty());
    fuzz::check_message(wrong->message);
    return 0;
  }
  for (const auto& [id, bias] : params.logit_bias) TROUPE_ASSERT(is_token(id));
  for (const TokenId id : params.stop_ids) TROUPE_ASSERT(is_token(id));
  const std::vector<TokenId> end_ids = {2, 256};
  Sampler sampler(*kernels::find_table("scalar"), params, end_ids), twin = sampler;
  std::vector<TokenId> history;
  for (std::uint64_t position = 0; position < 4; ++position) {
    std::vector<float> logits(kVocabSize);
    // The last bytes of an input are the first logits; the others are near one another.
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = i % 2 == 0 && !in.empty() ? in.number<float>() : static_cast<float>(i % 7);
    }
    std::vector<float> again = logits;
    const SampledToken token = sampler.sample(logits, position);
    const SampledToken same = twin.sample(again, position);
    check_sample(token, params);
    TROUPE_ASSERT(token.id == same.id);
    for (Sampler* one : {&sampler, &twin}) one->accept(token.id);
    history.push_back(token.id);
  }
  sampler.retract(history.size());
  return 0;
}
