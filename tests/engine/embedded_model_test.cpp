// The model that ships with the project, against llama.cpp's greedy continuations of three prompts.
#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "engine/evaluation/eval.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kDraft = TROUPE_MODELS "/tales-draft-q8_0.gguf";

// A margin above this is no coin toss: eight-bit activations move a logit by some hundredths, and so does
// the embedding, which is Q8_0 here and was F32 in the run with float activations.
constexpr double kClearMargin = 0.1;

TEST_CASE("the embedded model chooses the expected tokens wherever the choice is clear") {
  const auto expected = nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/tales_expected.json"));
  engine::Team team(2);
  for (const kernels::KernelTable* table : variants_here()) {
    const auto model = load_model(kModel, std::string(table->name));
    const bool is_reference = table->name == "reference";
    for (const auto& example : expected.at("cases")) {
      const auto prompt = example.at("prompt").get<std::vector<TokenId>>();
      CHECK(model->tokenizer()->encode(example.at("text").get<std::string>(), {}) == prompt);
      const auto& answer = example.at(is_reference ? "f32_activations" : "tq2_0");
      const auto greedy = answer.at("greedy").get<std::vector<TokenId>>();
      const auto margin = answer.at("margin").get<std::vector<double>>();
      std::vector<TokenId> tokens = prompt;
      tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
      const auto logits = engine::evaluate(*model, team, tokens);
      REQUIRE(logits);
      const std::size_t vocab = model->info().vocab_size;
      for (std::size_t i = 0; i < greedy.size(); ++i) {
        if (margin[i] <= kClearMargin) continue;
        const auto row = logits->begin() + static_cast<std::ptrdiff_t>((prompt.size() - 1 + i) * vocab);
        INFO(table->name << ", " << example.at("text") << ", token " << i);
        CHECK(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row == greedy[i]);
      }
    }
  }
}

TEST_CASE("the embedded model's own answer is the expected one up to the first unclear choice") {
  const auto expected = nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/tales_expected.json"));
  engine::Team team(2);
  for (const kernels::KernelTable* table : variants_here()) {
    const auto model = load_model(kModel, std::string(table->name));
    for (const auto& example : expected.at("cases")) {
      const auto& answer = example.at(table->name == "reference" ? "f32_activations" : "tq2_0");
      const auto greedy = answer.at("greedy").get<std::vector<TokenId>>();
      const auto margin = answer.at("margin").get<std::vector<double>>();
      const auto clear = std::find_if(margin.begin(), margin.end(), [](double m) { return m <= kClearMargin; });
      const auto count = clear - margin.begin();
      const auto tokens = engine::greedy(*model, team, example.at("prompt").get<std::vector<TokenId>>(),
                                         static_cast<std::uint32_t>(count));
      REQUIRE(tokens);
      INFO(table->name << ", " << example.at("text"));
      CHECK(*tokens == std::vector<TokenId>(greedy.begin(), greedy.begin() + count));
    }
  }
}

TEST_CASE("the embedded model describes itself") {
  const auto model = load_model(kModel, "scalar", kernels::KvType::f16);
  const engine::ModelInfo& info = model->info();
  CHECK(info.name == "troupe tales 5M");
  CHECK(info.family == "bitnet");
  CHECK(info.weight_types == "TQ2_0 x 42, F32 x 25, Q8_0 x 1");
  CHECK(info.num_layers == 6);
  CHECK(info.dim == 256);
  CHECK(info.ffn_dim == 768);
  CHECK(info.num_heads == 4);
  CHECK(info.num_kv_heads == 2);
  CHECK(info.head_dim == 64);
  CHECK(info.vocab_size == 2048);
  CHECK(info.trained_context == 1024);
  CHECK(info.context == 1024);
  CHECK(info.num_parameters == 5252352);
  // 6 layers x 2 kv heads x 64 elements x (K and V) x 2 bytes
  CHECK(model->cache_spec().bytes_per_token() == 3072);
  CHECK(model->end_ids() == std::vector<TokenId>{2});
  CHECK(model->numerics_id().starts_with(std::to_string(kernels::kRecipeVersion) + "-scalar-f16-"));
}

TEST_CASE("numerics ids differ where the bits may differ, and only there") {
  const auto model = load_model(kModel, "scalar", kernels::KvType::f16);
  CHECK(load_model(kModel, "scalar", kernels::KvType::f16, 40, 512)->numerics_id() == model->numerics_id());
  CHECK(load_model(kModel, "scalar", kernels::KvType::f32)->numerics_id() != model->numerics_id());
  CHECK(load_model(kModel, "reference", kernels::KvType::f16)->numerics_id() != model->numerics_id());
  CHECK(load_model(kDraft, "scalar", kernels::KvType::f16)->numerics_id() != model->numerics_id());
}

}  // namespace
}  // namespace troupe::test
