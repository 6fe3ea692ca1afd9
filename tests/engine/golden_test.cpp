// Every weight format and family against logits of llama.cpp, by every variant this CPU has.
#include <algorithm>
#include <map>

#include "engine/evaluation/eval.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::Team;

const std::vector<std::uint32_t> kChunks = {1, 7, 31, 32, 33};

constexpr SequenceId kNumStrangers = 15;

std::string differences(const Difference& actual, const Tolerance& allowed) {
  return "max " + std::to_string(actual.max_abs) + " (allowed " + std::to_string(allowed.max_abs) + "), RMS " +
         std::to_string(actual.rms) + " (allowed " + std::to_string(allowed.rms) + ")";
}

void require_within(const std::vector<float>& logits, const std::vector<float>& expected, const Tolerance& tolerance) {
  const Difference actual = difference(logits, expected);
  INFO(differences(actual, tolerance));
  CHECK(actual.max_abs <= tolerance.max_abs);
  CHECK(actual.rms <= tolerance.rms);
}

// The logits of `tokens` in the last position of a step with other sequences.
std::vector<float> with_strangers(const engine::LoadedModel& model, Team& team, const std::vector<TokenId>& tokens) {
  engine::Executor executor(model, team);
  engine::StepBatch batch;
  BlockId next_block = 0;
  for (SequenceId id = 1; id <= kNumStrangers; ++id) {
    const auto strangers = random_tokens(1 + (id * 13) % 50, model.info().vocab_size, id);
    const std::uint32_t blocks = blocks_for(static_cast<std::uint32_t>(strangers.size()));
    SequenceRunner runner(executor, id, strangers, some_blocks(blocks, next_block, id));
    next_block += blocks;
    batch.items.push_back(runner.next(100));
  }
  const std::uint32_t blocks = blocks_for(static_cast<std::uint32_t>(tokens.size()));
  SequenceRunner ours(executor, 99, tokens, some_blocks(blocks, next_block, 99));
  batch.items.push_back(ours.next(static_cast<std::uint32_t>(tokens.size())));
  engine::StepResult result;
  executor.step(batch, result);
  return result.items.back().logits;
}

// With the expected tokens fed, each choice is the expected one where the margin leaves no doubt. That must be so often
// enough: with the tolerances and margins of these files it is at 8 of 24 tokens or more, and at all of F32 files'.
void require_greedy(const engine::LoadedModel& model, Team& team, const GoldenPrompt& prompt, double min_margin) {
  constexpr std::size_t kMinChecked = 8;
  std::vector<TokenId> tokens = prompt.tokens;
  tokens.insert(tokens.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
  const auto logits = engine::evaluate(model, team, tokens);
  REQUIRE(logits);
  const std::size_t vocab = model.info().vocab_size;
  std::size_t num_checked = 0;
  for (std::size_t i = 0; i < prompt.greedy.size(); ++i) {
    if (prompt.greedy_margin[i] <= min_margin) continue;
    ++num_checked;
    const auto row = logits->begin() + static_cast<std::ptrdiff_t>((prompt.tokens.size() - 1 + i) * vocab);
    INFO("greedy token " << i);
    CHECK(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row == prompt.greedy[i]);
  }
  CHECK(num_checked >= kMinChecked);
}

void check_prompt(const engine::LoadedModel& model, Team& team, const GoldenPrompt& prompt, const Tolerance& tolerance,
                  const std::vector<float>& expected) {
  const auto whole = engine::evaluate(model, team, prompt.tokens);
  REQUIRE(whole);
  require_within(*whole, expected, tolerance);
  for (const std::uint32_t chunk : kChunks) {
    INFO("in chunks of " << chunk);
    const auto chunked = engine::evaluate(model, team, prompt.tokens, chunk);
    REQUIRE(chunked);
    require_within(*chunked, expected, tolerance);
  }
  INFO("in a batch with strangers");
  require_within(with_strangers(model, team, prompt.tokens), expected, tolerance);
}

void check_model(const std::string& name) {
  const auto golden = load_golden(name);
  if (!golden) return;
  Team team(2);
  const GoldenPrompt first = golden->prompt("");
  const GoldenPrompt second = golden->prompt("second_");
  Tolerance float_tolerance = golden->tolerance(golden->has_exact ? "f32_vs_exact" : "f32_vs_logits");
  // Sharper than the file asks, but for Mamba: plain C++ has no fused multiply-adds, and its scans multiply errors.
  // Measured: 1.14e-4.
  if (!golden->has_exact && !name.starts_with("mamba"))
    float_tolerance.max_abs = std::min(float_tolerance.max_abs, 1e-4);
  const Tolerance rounded_tolerance =
      golden->quantised ? golden->tolerance("rounded_activations_vs_exact") : float_tolerance;

  // F32 files have llama.cpp's logits of both prompts, and those are the reference. Of quantised files, and of Gemma,
  // whose GELU llama.cpp takes from a table of float16, the exact logits of the second prompt are not among the data:
  // the reference kernels, held to the exact ones of the first prompt, stand in for them. llama.cpp's own logits lie
  // within the rounded tolerance of exact ones, and so must all others: any two within it are at most twice as
  // far apart.
  const Tolerance to_theirs = golden->quantised   ? rounded_tolerance
                              : golden->has_exact ? golden->tolerance("f32_gelu_vs_logits")
                                                  : float_tolerance;
  const Tolerance from_rounded{2 * to_theirs.max_abs, 2 * to_theirs.rms};
  std::vector<float> second_expected = golden->has_exact ? std::vector<float>() : second.logits;
  for (const kernels::KernelTable* table : variants_to_try()) {
    INFO(name << ", " << table->name);
    const auto model = load_model(golden->model_path, std::string(table->name));
    const bool is_reference = table->name == "reference";
    const Tolerance& tolerance = is_reference ? float_tolerance : rounded_tolerance;
    check_prompt(*model, team, first, tolerance, first.logits);
    require_greedy(*model, team, first, 4 * tolerance.rms);
    if (golden->has_exact) {
      const auto logits = engine::evaluate(*model, team, second.tokens);
      REQUIRE(logits);
      require_within(*logits, second.logits, is_reference || !golden->quantised ? to_theirs : from_rounded);
      if (is_reference) second_expected = *logits;
    }
    check_prompt(*model, team, second, tolerance, second_expected);
    require_greedy(*model, team, second, 4 * tolerance.rms);
  }
}

TEST_CASE("golden models give the expected logits and choices, whole, in chunks and in a batch") {
  for (const std::string& name : golden_names()) check_model(name);
}

TEST_CASE("golden models: 550 random tokens agree with the reference kernels") {
  constexpr std::uint32_t kTokens = 550;
  for (const std::string& name : golden_names()) {
    const auto golden = load_golden(name);
    if (!golden) return;
    Tolerance rounded = golden->tolerance(golden->quantised   ? "rounded_activations_vs_exact"
                                          : golden->has_exact ? "f32_vs_exact"
                                                              : "f32_vs_logits");
    // The tolerance was taken from 43 positions; the largest difference of 550 is a rarer one. Measured over 1,100: at
    // most 0.69 of the tolerance in every file but bitnet-scale-TQ2_0, where it is 1.004 of 0.99. The RMS needs no such
    // room. But for Mamba in plain C++, which has no fused multiply-adds: 1.2 of it, with an RMS of 0.4.
    rounded.max_abs *= name.starts_with("mamba") ? 1.5 : 1.1;
    Team team(2);
    std::vector<float> reference;
    for (const kernels::KernelTable* table : variants_to_try()) {
      const auto model = load_model(golden->model_path, std::string(table->name), kernels::KvType::f32, 0, 1152);
      const auto logits = engine::evaluate(*model, team, random_tokens(kTokens, model->info().vocab_size, 7));
      REQUIRE(logits);
      if (reference.empty()) {
        REQUIRE(table->name == "reference");
        reference = *logits;
        continue;
      }
      INFO(name << ", " << table->name);
      require_within(*logits, reference, rounded);
    }
  }
}

// How much rounding K and V costs, per variant: the logits of F32 weights with f32 K and V against those with others.
// The matrix unit's products must not add to what the type itself costs.
TEST_CASE("golden models: f16 and int8 K and V change logits by no more than their tolerances, in every variant") {
  for (const std::string name : {"llama-F32", "llama3-rope-F32", "bitnet-F32"}) {
    const auto golden = load_golden(name);
    if (!golden) return;
    Team team(2);
    const GoldenPrompt prompt = golden->prompt("");
    double mean_square = 0;
    std::pair<double, double> exact;
    for (const float x : prompt.logits) mean_square += double{x} * x / static_cast<double>(prompt.logits.size());
    for (const kernels::KernelTable* table : variants_to_try()) {
      const auto rms = [&](kernels::KvType type) {
        const auto model = load_model(golden->model_path, std::string(table->name), type);
        const auto logits = engine::evaluate(*model, team, prompt.tokens);
        REQUIRE(logits);
        return difference(*logits, prompt.logits).rms / std::sqrt(mean_square);
      };
      INFO(name << ", " << table->name);
      const double f16 = rms(kernels::KvType::f16), i8 = rms(kernels::KvType::i8);
      INFO("relative RMS: f16 " << f16 << ", int8 " << i8);
      // Measured: 0.07 to 0.08 % and 1.7 to 1.8 %; heads of 16 dimensions.
      CHECK(f16 <= 1e-3);
      CHECK(i8 <= 2e-2);
      if (table->name == "reference") exact = {f16, i8};
      CHECK(f16 <= 1.02 * exact.first);
      CHECK(i8 <= 1.02 * exact.second);
    }
  }
}

TEST_CASE("stories260K: all 200 positions and the text are the expected ones") {
  const auto path = shared_file("thirdparty/stories260k/stories260K.json");
  if (!path) return;
  const auto json = nlohmann::json::parse(std::ifstream(*path));
  const std::string folder = path->substr(0, path->rfind('/') + 1);
  const std::vector<float> expected = read_floats(folder + "stories260K.logits.f32");
  const auto greedy = json.at("greedy").get<std::vector<TokenId>>();
  const auto prompt = json.at("prompt").get<std::vector<TokenId>>();
  Team team(2);
  for (const kernels::KernelTable* table : variants_to_try()) {
    INFO(table->name);
    const auto model = load_model(folder + "stories260K.gguf", std::string(table->name), kernels::KvType::f32, 0, 256);
    CHECK(model->info().trained_context == 128);
    CHECK(model->info().rope_base == 10000.0f);
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);
    const auto logits = engine::evaluate(*model, team, tokens);
    REQUIRE(logits);
    const auto& allowed = json.at("tolerance").at("f32_vs_logits");
    require_within(*logits, expected, {allowed.at("max_abs").get<double>(), allowed.at("rms").get<double>()});
    const auto generated = engine::greedy(*model, team, prompt, 200, /*ignore_eos=*/true);
    REQUIRE(generated);
    CHECK(*generated == greedy);
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), generated->begin(), generated->end());
    CHECK(model->tokenizer()->decode(all) == json.at("greedy_text").get<std::string>());
  }
}

}  // namespace
}  // namespace troupe::test
