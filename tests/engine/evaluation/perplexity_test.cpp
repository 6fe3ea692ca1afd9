// Perplexity and the comparison of two runs: the arithmetic by hand, the passages, and the embedded model on a text.
#include "engine/evaluation/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "engine/evaluation/eval.h"
#include "engine/evaluation/model_comparison.h"
#include "engine/evaluation/passage_logits.h"
#include "tests/engine/model_harness.h"
#include "tests/support/shared_data.h"

namespace troupe::test {
namespace {

using engine::cut_passages;
using engine::Passage;

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kDraft = TROUPE_MODELS "/tales-draft-q8_0.gguf";

// Stories written for this test: not part of the model's training data.
std::vector<TokenId> story_tokens(const engine::LoadedModel& model) {
  std::ifstream file(TROUPE_TEST_DATA "/stories.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  REQUIRE(text.size() > 5000);
  return model.tokenizer()->encode(text.substr(0, text.size() - 1), {});  // as llama-perplexity reads it
}

engine::PerplexityOptions passages_of(std::uint32_t length, const engine::LoadedModel& model) {
  engine::PerplexityOptions options;
  options.length = length;
  options.begin_token = model.tokenizer()->bos();
  return options;
}

double perplexity_of(const std::string& kernels, const engine::PerplexityOptions& options) {
  engine::Team team(2);
  const auto model = load_model(kModel, kernels, kernels::KvType::f16);
  const auto report = engine::measure_perplexity(*model, team, story_tokens(*model), options);
  REQUIRE(report);
  return report->scored.perplexity();
}

// All kernels but the reference, which is slow.
std::vector<std::string> fast_variants() {
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : variants_to_try())
    if (table->name != "reference") names.emplace_back(table->name);
  return names;
}

std::vector<std::vector<TokenId>> story_passages(const engine::LoadedModel& model, std::size_t length,
                                                 std::size_t count) {
  const std::vector<TokenId> tokens = story_tokens(model);
  std::vector<std::vector<TokenId>> passages;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * length);
    passages.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length));
    passages.back()[0] = *model.tokenizer()->bos();
  }
  return passages;
}

TEST_CASE("a negative log likelihood is that of the softmax, however large the logits") {
  const std::vector<float> logits{0.0f, std::log(3.0f)};
  CHECK(engine::negative_log_likelihood(logits, 0) == Approx(std::log(4.0)));
  CHECK(engine::negative_log_likelihood(logits, 1) == Approx(std::log(4.0 / 3)));
  CHECK(engine::negative_log_likelihood(std::vector<float>{1000.0f, 0.0f}, 0) == 0.0);
  CHECK(engine::negative_log_likelihood(std::vector<float>{1000.0f, 0.0f}, 1) == 1000.0);
  CHECK(engine::negative_log_likelihood(std::vector<float>(50'000, -7.5f), 49'999) == Approx(std::log(50'000.0)));
}

TEST_CASE("mean, standard error and perplexity of scored tokens") {
  engine::LogLikelihood tokens;
  CHECK(tokens.mean() == 0);
  CHECK(tokens.standard_error() == 0);
  for (const double nll : {1.0, 2.0, 3.0, 6.0}) tokens.add(nll);
  CHECK(tokens.count() == 4);
  CHECK(tokens.mean() == 3.0);
  // The variance is (4 + 1 + 0 + 9) / 4; llama-perplexity divides it by one fewer than there are tokens.
  CHECK(tokens.standard_error() == Approx(std::sqrt(3.5 / 3)));
  CHECK(tokens.perplexity() == Approx(std::exp(3.0)));
  CHECK(tokens.perplexity_error() == Approx(std::exp(3.0) * std::sqrt(3.5 / 3)));
}

TEST_CASE("passages are adjacent, and each is scored after its middle") {
  const auto passages = cut_passages(50, {.length = 16});
  REQUIRE(passages);
  CHECK(*passages == std::vector<Passage>{{0, 16, 8}, {16, 16, 8}, {32, 16, 8}});
  CHECK(cut_passages(47, {.length = 16})->size() == 2);
  CHECK(cut_passages(50, {.length = 16, .max_passages = 2})->size() == 2);
  CHECK(cut_passages(50, {.length = 16, .max_passages = 9})->size() == 3);
  CHECK((*cut_passages(14, {.length = 7}))[1] == Passage{7, 7, 3});
}

TEST_CASE("with a stride passages overlap, and each token after the first context is scored once") {
  for (const std::size_t num_tokens : {40u, 41u, 47u, 48u, 49u, 100u}) {
    const auto passages = cut_passages(num_tokens, {.length = 16, .stride = 8});
    REQUIRE(passages);
    std::size_t next = (*passages)[0].first_row + 1;
    for (const Passage& passage : *passages) {
      CHECK(passage.length == 20);
      CHECK(passage.begin + passage.first_row + 1 == next);
      next = passage.begin + passage.length;
      CHECK(next <= num_tokens);
    }
    CHECK(next + 8 >= num_tokens);
  }
}

TEST_CASE("impossible passages are refused with the numbers") {
  CHECK(cut_passages(31, {.length = 16}).error().message ==
        "the text has 31 tokens, fewer than two passages of 16; use a longer text or a smaller -c");
  CHECK(cut_passages(32, {.length = 16}));
  CHECK(cut_passages(39, {.length = 16, .stride = 8}).error().message ==
        "the text has 39 tokens, fewer than two passages of 20; use a longer text or a smaller -c");
  CHECK(cut_passages(9000, {.length = 16, .stride = 32}).error().message ==
        "a stride of 32 leaves no context in passages of 32 tokens; use a smaller --stride");
  CHECK_FALSE(cut_passages(9000, {.length = 3}));
}

TEST_CASE("perplexity is computed from the logits of each passage, to the bit") {
  engine::Team team(2);
  const auto model = load_model(kModel, "", kernels::KvType::f16);
  const std::vector<TokenId> tokens = story_tokens(*model);
  const std::size_t vocab = model->info().vocab_size;
  for (const std::uint32_t stride : {0u, 40u}) {
    engine::PerplexityOptions options = passages_of(100, *model);
    options.stride = stride;
    options.max_passages = 4;
    const auto report = engine::measure_perplexity(*model, team, tokens, options);
    REQUIRE(report);
    engine::LogLikelihood expected;
    std::vector<double> running;
    const auto passages = cut_passages(tokens.size(), options);
    REQUIRE(passages);
    for (const Passage& passage : *passages) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(passage.begin);
      std::vector<TokenId> text(begin, begin + passage.length);
      if (stride == 0) text[0] = 1;  // <s>
      const auto logits = engine::evaluate(*model, team, text);
      REQUIRE(logits);
      for (std::uint32_t row = passage.first_row; row + 1 < passage.length; ++row)
        expected.add(engine::negative_log_likelihood(std::span(*logits).subspan(row * vocab, vocab), text[row + 1]));
      running.push_back(expected.perplexity());
    }
    CHECK(report->scored.count() == 4 * (stride ? 40 : 49));
    CHECK(report->scored.mean() == expected.mean());
    CHECK(report->running == running);
  }
}

TEST_CASE("models with windows, with states and with experts give the same perplexity in a batch and alone") {
  engine::Team team(2);
  for (const char* name : {"gemma2-F32", "gemma3-F32", "mamba-F32", "rwkv7-F32", "olmoe-F32"}) {
    const auto path = shared_file(std::string("golden/") + name + ".gguf");
    if (!path) return;
    INFO(name);
    const auto model = load_model(*path, "", kernels::KvType::f16, 40, 200);
    const std::size_t vocab = model->info().vocab_size;
    const std::vector<TokenId> tokens = random_tokens(4 * 150, model->info().vocab_size, 7);
    const auto report = engine::measure_perplexity(*model, team, tokens, {.length = 150});
    REQUIRE(report);
    engine::LogLikelihood expected;
    for (std::size_t begin = 0; begin < tokens.size(); begin += 150) {
      const std::span text = std::span(tokens).subspan(begin, 150);
      const auto logits = engine::evaluate(*model, team, text);
      REQUIRE(logits);
      for (std::size_t row = 75; row + 1 < 150; ++row)
        expected.add(engine::negative_log_likelihood(std::span(*logits).subspan(row * vocab, vocab), text[row + 1]));
    }
    CHECK(report->scored.mean() == expected.mean());
  }
}

TEST_CASE("perplexity does not depend on threads, nor on how many passages are computed at once") {
  std::vector<double> means;
  for (const std::uint32_t threads : {1u, 2u, 3u}) {
    for (const std::uint32_t num_blocks : {3u, 100u}) {  // of one passage, and of many
      engine::Team team(threads);
      const auto model = load_model(kModel, "", kernels::KvType::f16, num_blocks, 96);
      engine::PerplexityOptions options = passages_of(70, *model);
      options.max_passages = 7;
      std::vector<std::size_t> done;
      const auto report =
          engine::measure_perplexity(*model, team, story_tokens(*model), options,
                                     [&](std::size_t passages, std::size_t total, const engine::LogLikelihood&) {
                                       CHECK(total == 7);
                                       done.push_back(passages);
                                     });
      REQUIRE(report);
      CHECK(done == std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7});
      means.push_back(report->scored.mean());
    }
  }
  CHECK(means == std::vector<double>(means.size(), means[0]));
}

TEST_CASE("by position: every predicted token is in one bucket, and the later half adds up to the score") {
  engine::Team team(2);
  const auto model = load_model(kModel, "", kernels::KvType::f16);
  engine::PerplexityOptions options = passages_of(65, *model);  // 64 predicted tokens, four in a bucket
  options.max_passages = 5;
  const double score = engine::measure_perplexity(*model, team, story_tokens(*model), options)->scored.mean();
  options.by_position = true;
  const auto report = engine::measure_perplexity(*model, team, story_tokens(*model), options);
  REQUIRE(report);
  CHECK(report->scored.mean() == score);
  REQUIRE(report->by_position.size() == 16);
  std::uint32_t next = 1;
  double sum = 0;
  std::uint64_t count = 0;
  for (const engine::PositionBucket& bucket : report->by_position) {
    CHECK(bucket.first == next);
    CHECK(bucket.tokens.count() == 5 * (bucket.last - bucket.first + 1));
    next = bucket.last + 1;
    if (bucket.first >= 33) {  // the first scored token
      sum += bucket.tokens.mean() * static_cast<double>(bucket.tokens.count());
      count += bucket.tokens.count();
    }
  }
  CHECK(next == 65);
  CHECK(count == report->scored.count());
  CHECK(sum / static_cast<double>(count) == Approx(score).epsilon(1e-12));
}

TEST_CASE("measuring refuses ids outside the vocabulary and passages longer than the context") {
  engine::Team team(1);
  const auto model = load_model(kModel, "", kernels::KvType::f16, 8, 64);
  CHECK(engine::measure_perplexity(*model, team, std::vector<TokenId>(100, 2048), {.length = 32}).error().message ==
        "token 0 is 2048; ids go from 0 to 2047");
  const auto longer = engine::measure_perplexity(*model, team, std::vector<TokenId>(400, 5), {.length = 96});
  REQUIRE_FALSE(longer);
  CHECK(longer.error().message == "96 tokens do not fit a context of 64; use a larger -c");
}

// Of the reference kernels, passages of 128 tokens, all twelve. The variants that round activations to eight bits lie
// within 0.1 % of it (scalar -0.10, avx2 -0.08, avx512vnni -0.04, amx +0.09): of 756 tokens that is chance.
TEST_CASE("the embedded model's perplexity of a text is the stored one") {
  constexpr double kStored = 17.3936;
  for (const std::string& kernels : fast_variants()) {
    const auto model = load_model(kModel, kernels);
    INFO(kernels);
    CHECK(perplexity_of(kernels, passages_of(128, *model)) == Approx(kStored).epsilon(0.002));
  }
}

TEST_CASE("ternary weights with integer products predict a text as well as in float32") {
  engine::PerplexityOptions options = passages_of(128, *load_model(kModel, "scalar"));
  options.max_passages = 4;
  const double exact = perplexity_of("reference", options);
  for (const std::string& kernels : fast_variants()) {
    INFO(kernels);
    CHECK(perplexity_of(kernels, options) == Approx(exact).epsilon(0.01));
  }
}

TEST_CASE("the difference of two rows of logits") {
  // p = (1/4, 3/4), q = (1/2, 1/2)
  const std::vector<float> p{0.0f, std::log(3.0f)}, q{2.0f, 2.0f};
  const auto row = engine::compare_rows(p, q);
  CHECK(row.kl_divergence == Approx(0.25 * std::log(0.5) + 0.75 * std::log(1.5)));
  CHECK(row.squares == Approx(4 + std::pow(2 - std::log(3.0), 2)));
  CHECK(row.max_abs == 2.0);
  CHECK(row.spread == Approx(std::pow(std::log(3.0), 2) / 2));
  CHECK_FALSE(row.same_top);  // among equal logits it is the lowest id
  CHECK(engine::compare_rows(q, p).kl_divergence == Approx(0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3)));
  // Logits that differ by a constant make the same distribution.
  const auto shifted = engine::compare_rows(p, std::vector<float>{5.0f, 5.0f + std::log(3.0f)});
  CHECK(shifted.kl_divergence < 1e-12);
  CHECK(shifted.same_top);
  CHECK(engine::compare_rows(p, p).kl_divergence == 0);
}

TEST_CASE("rows of differences are summed up") {
  std::vector<engine::RowDifference> rows(200);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].kl_divergence = static_cast<double>(200 - i);
    rows[i].squares = 8;
    rows[i].spread = 32;
    rows[i].max_abs = i == 7 ? 3 : 1;
    rows[i].same_top = i % 4 == 0;
  }
  const auto sum = engine::summarise(rows, 2);
  CHECK(sum.num_positions == 200);
  CHECK(sum.mean_kl_divergence == 100.5);
  CHECK(sum.median_kl_divergence == 100);
  CHECK(sum.p99_kl_divergence == 198);
  CHECK(sum.max_kl_divergence == 200);
  CHECK(sum.same_top == 0.25);
  CHECK(sum.rms == 2);
  CHECK(sum.relative_rms == 0.5);
  CHECK(sum.max_abs == 3);
  CHECK(engine::summarise({}, 2).num_positions == 0);
}

// Of the embedded model most of it, 6e-4, is also between f32 and f16: a value of K that differs in its last bit
// becomes another of the 255 activations that ternary products see.
TEST_CASE("an int8 KV cache changes what a model predicts by at most 1e-3 nats per token") {
  engine::Team team(2);
  const auto check = [&](const std::string& path, const std::string& kernels, std::size_t count) {
    const auto f16 = load_model(path, kernels, kernels::KvType::f16),
               i8 = load_model(path, kernels, kernels::KvType::i8);
    const auto result = engine::compare_models(*f16, *i8, team, story_passages(*f16, 256, count));
    REQUIRE(result);
    INFO(path << ", " << kernels << ": mean " << result->mean_kl_divergence << ", 99 % " << result->p99_kl_divergence);
    CHECK(result->num_positions == count * 256);
    CHECK(result->mean_kl_divergence > 0);
    CHECK(result->mean_kl_divergence <= 1e-3);
    CHECK(result->same_top > 0.95);
    CHECK(result->second.perplexity() == Approx(result->first.perplexity()).epsilon(0.005));
  };
  for (const std::string& kernels : fast_variants()) check(kModel, kernels, kernels == "scalar" ? 1 : 4);
  check(kDraft, "", 4);
}

TEST_CASE("a comparison covers every position and equals the difference of the logits; equal runs differ by nothing") {
  engine::Team team(2);
  const auto scalar = load_model(kModel, "scalar"), reference = load_model(kModel, "reference");
  const auto passages = story_passages(*scalar, 24, 2);
  const auto result = engine::compare_models(*scalar, *reference, team, passages);
  REQUIRE(result);
  std::vector<engine::RowDifference> rows;
  const std::size_t vocab = scalar->info().vocab_size;
  for (const std::vector<TokenId>& passage : passages) {
    const auto a = engine::evaluate(*scalar, team, passage), b = engine::evaluate(*reference, team, passage);
    REQUIRE((a && b));
    for (std::size_t i = 0; i < passage.size(); ++i)
      rows.push_back(
          engine::compare_rows(std::span(*a).subspan(i * vocab, vocab), std::span(*b).subspan(i * vocab, vocab)));
  }
  const auto expected = engine::summarise(rows, vocab);
  CHECK(result->num_positions == 48);
  CHECK(result->mean_kl_divergence == expected.mean_kl_divergence);
  CHECK(result->max_kl_divergence == expected.max_kl_divergence);
  CHECK(result->rms == expected.rms);
  CHECK(result->same_top == expected.same_top);
  CHECK(result->first.count() == 46);  // the last token of each passage is followed by none

  const auto same = engine::compare_models(*scalar, *scalar, team, passages);
  REQUIRE(same);
  CHECK(same->max_kl_divergence == 0);
  CHECK(same->max_abs == 0);
  CHECK(same->same_top == 1);
  CHECK(same->first.mean() == same->second.mean());
}

TEST_CASE("models with different vocabularies are not compared") {
  const auto other = shared_file("golden/llama-Q8_0.gguf");
  if (!other) return;
  engine::Team team(1);
  const auto model = load_model(kModel, "scalar"), golden = load_model(*other, "scalar");
  const std::vector<std::vector<TokenId>> passages{{1, 2, 3}};
  CHECK(engine::compare_models(*model, *golden, team, passages).error().message ==
        "the two models have vocabularies of 2048 and 512 tokens: their logits do not compare");
  CHECK_FALSE(engine::compare_models(*model, *model, team, {}));
  const std::vector<std::vector<TokenId>> outside{{1, 2048}};
  CHECK(engine::compare_models(*model, *model, team, outside).error().message ==
        "token 1 is 2048; ids go from 0 to 2047");
}

}  // namespace
}  // namespace troupe::test
