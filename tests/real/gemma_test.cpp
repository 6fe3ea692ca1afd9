// Gemma 3 270M, base, Q4_K_M: what it makes of a text, and of the beginnings of sentences.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/builtin_templates.h"
#include "engine/evaluation/eval.h"
#include "engine/evaluation/perplexity.h"
#include "tests/engine/model_harness.h"
#include "tests/real/f32_copy.h"
#include "tests/real/real_file.h"

namespace troupe::test {
namespace {

const std::string kGemma = "gemma-3-270m-q4_k_m.gguf";
constexpr double kAvx2F32 = 10.7294, kAvx2Int8 = 10.7885;

std::string stories() {
  std::ifstream file(TROUPE_TEST_DATA "/stories.txt");
  return {std::istreambuf_iterator<char>(file), {}};
}

double story_perplexity(const engine::LoadedModel& model) {
  engine::Team team(2);
  engine::PerplexityOptions options{.length = 256, .max_passages = 3, .begin_token = model.tokenizer()->bos()};
  const auto report = engine::measure_perplexity(model, team, model.tokenizer()->encode(stories(), {}), options);
  REQUIRE(report);
  CHECK(report->scored.count() > 300);
  return report->scored.perplexity();
}

// As measured when this was written. Bits differ between recipes and K/V types, and with them how some 400 tokens are
// predicted, by up to 0.4 %; with one of each they are always the same.
TEST_CASE("real: Gemma's perplexity of a text is what it was, with each type of K and V and each kernel variant") {
  const auto path = real_file(kGemma);
  if (!path) return;
  const auto perplexity = [&](std::string_view kernels, kernels::KvType kv_type) {
    return story_perplexity(*load_model(*path, std::string(kernels), kv_type, 64, 512));
  };
  const std::map<std::string_view, double> f16{
      {"avx2", 10.6966}, {"avxvnni", 10.6966}, {"avx512", 10.7237}, {"avx512vnni", 10.7237}};
  for (const kernels::KernelTable* table : variants_to_try()) {
    if (table->name == "reference" || table->name == "scalar") continue;  // slow
    INFO(table->name);
    const auto stored = f16.find(table->name);
    const bool is_known = stored != f16.end();
    CHECK(perplexity(table->name, kernels::KvType::f16) ==
          Approx(is_known ? stored->second : 10.7).epsilon(is_known ? 1e-4 : 5e-3));
    if (table->name != "avx2") continue;
    CHECK(perplexity(table->name, kernels::KvType::f32) == Approx(kAvx2F32).epsilon(1e-4));
    CHECK(perplexity(table->name, kernels::KvType::i8) == Approx(kAvx2Int8).epsilon(1e-4));
  }
}

// The logits of some tokens: [tokens, vocabulary].
std::vector<float> logits_of(const std::string& path, std::string_view kernels, kernels::KvType kv_type,
                             const std::vector<TokenId>& tokens) {
  engine::LoadOptions options;
  options.kernels = kernels;
  options.kv_type = kv_type;
  options.num_blocks = 16;
  options.context = 256;
  options.memory = std::uint64_t{2} << 30;
  const auto model = engine::LoadedModel::load(path, options);
  if (!model) FAIL(model.error().message);
  engine::Team team(2);
  auto logits = engine::evaluate(**model, team, tokens);
  if (!logits) FAIL(logits.error().message);
  return *std::move(logits);
}

// The mean over the positions of the Kullback-Leibler divergence of what `other` predicts from what `exact` predicts.
double mean_divergence(const std::vector<float>& exact, const std::vector<float>& other, std::size_t vocab_size) {
  REQUIRE(exact.size() == other.size());
  double sum = 0;
  for (std::size_t row = 0; row < exact.size(); row += vocab_size) {
    const std::span p(exact.data() + row, vocab_size), q(other.data() + row, vocab_size);
    const double log_sum_p = engine::Normaliser(p).log_sum, log_sum_q = engine::Normaliser(q).log_sum;
    for (std::size_t i = 0; i < vocab_size; ++i)
      sum += std::exp(p[i] - log_sum_p) * ((p[i] - log_sum_p) - (q[i] - log_sum_q));
  }
  return sum / static_cast<double>(exact.size() / vocab_size);
}

TEST_CASE("real: Gemma's weights in F32 give the logits of transformers, and the file's own types predict the same") {
  const auto path = real_file(kGemma);
  if (!path) return;
  const TempFolder folder;
  const std::string f32 = f32_copy(*path, folder);
  const auto expected = nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/gemma_logits.json"));
  const auto tokens = expected.at("ids").get<std::vector<TokenId>>();
  for (const kernels::KernelTable* table : variants_to_try()) {
    if (table->name == "reference" || table->name == "scalar") continue;  // slow
    INFO(table->name);
    const std::vector<float> exact = logits_of(f32, table->name, kernels::KvType::f32, tokens);
    const std::size_t vocab_size = exact.size() / tokens.size();
    double largest = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto& row = expected.at("positions").at(i);
      for (std::size_t j = 0; j < row.at("ids").size(); ++j) {
        const double difference =
            exact[i * vocab_size + row.at("ids").at(j).get<std::size_t>()] - row.at("logits").at(j).get<double>();
        largest = std::max(largest, std::abs(difference));
      }
    }
    // The goal is 3e-3; a bound for variants that were not measured when this was written is looser.
    const bool is_known = table->name == "avx2" || table->name == "avxvnni";
    CHECK(largest < (is_known ? 5e-4 : 5e-2));
    CHECK(mean_divergence(exact, logits_of(*path, table->name, kernels::KvType::f16, tokens), vocab_size) <
          (is_known ? 3e-3 : 6e-3));
  }
}

TEST_CASE("real: Gemma without a chat template is known for one of the template gemma") {
  const auto path = real_file(kGemma);
  if (!path) return;
  const auto model = load_model(*path, "", kernels::KvType::f16, 64, 512);
  CHECK(model->chat_templates().empty());
  CHECK(engine::chat::likely_template(model->info().family, model->tokenizer().get()) == "gemma");
}

TEST_CASE("real: Gemma goes on as a person would") {
  const auto path = real_file(kGemma);
  if (!path) return;
  const auto model = load_model(*path, "", kernels::KvType::f16, 64, 512);
  engine::Team team(2);
  const std::vector<std::pair<std::string, std::string>> sentences{
      {"The capital of Japan is the city of", " Tokyo"},
      {"Paris is the capital of", " France"},
      {"Two plus two is", " four"},
      {"The chemical symbol for gold is", " Au"},
      {"Water is made of hydrogen and", " oxygen"},
      {"The opposite of hot is", " cold"},
      {"Monday, Tuesday, Wednesday, Thursday,", " Friday, Saturday, Sunday"},
      {"January, February, March,", " April, May, June, July"},
      {"1, 2, 3, 4, 5, 6,", " 7, 8, 9, 10"},
      {"A, B, C, D, E,", " F, G, H, I, J"},
      {"One, two, three, four,", " five, six, seven"},
      {"The author of Romeo and Juliet is William", " Shakespeare"},
      {"The Earth orbits the", " Sun"},
      {"Roses are red, violets are", " blue"},
      {"The first president of the United States was George", " Washington"},
      {"To be, or not to be, that is the", " question"},
      {"Bonjour means hello in", " French"},
      {"An apple a day keeps the doctor", " away"},
      {"The quick brown fox jumps over the lazy", " dog"},
      {"The speed of light is about 300,000 kilometers per", " second"},
      {"def fibonacci(n):\n    if n < 2:\n        return n\n    return", " fibonacci(n-1) + fibonacci(n-2)"},
  };
  for (const auto& [begun, end] : sentences) {
    const auto ids = engine::greedy(*model, team, model->tokenizer()->encode(begun, {}), 16);
    REQUIRE(ids);
    const std::string text = model->tokenizer()->decode(*ids);
    INFO(begun << text);
    CHECK(text.substr(0, end.size()) == end);
  }
}

}  // namespace
}  // namespace troupe::test
