// Gemma 3 270M, base, Q4_K_M: what it makes of a text, and of the beginnings of sentences.
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/builtin_templates.h"
#include "engine/evaluation/eval.h"
#include "engine/evaluation/perplexity.h"
#include "tests/engine/model_harness.h"
#include "tests/real/real_file.h"

namespace troupe::test {
namespace {

const std::string kGemma = "gemma-3-270m-q4_k_m.gguf";
constexpr double kAvx2F32 = 10.7294, kAvx2Int8 = 10.7885;

double story_perplexity(const engine::LoadedModel& model) {
  std::ifstream file(TROUPE_TEST_DATA "/stories.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  engine::Team team(2);
  engine::PerplexityOptions options{.length = 256, .max_passages = 3, .begin_token = model.tokenizer()->bos()};
  const auto report = engine::measure_perplexity(model, team, model.tokenizer()->encode(text, {}), options);
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
