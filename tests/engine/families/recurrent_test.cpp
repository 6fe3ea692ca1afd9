// Recurrent families: published logits of a small RWKV, long texts, and states that are saved, restored, rounded,
// forgotten and written to files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/evaluation/eval.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"
#include "tests/engine/saved_sequence.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::Executor;
using engine::LoadedModel;
using engine::Team;

const std::vector<std::string> kReferences = {"mamba-F32", "mamba2-F32", "rwkv6-F32", "rwkv7-F32", "falcon-h1-F32"};
const std::vector<std::string> kFamilies = {"mamba-F32",  "mamba2-F32",    "rwkv6-F32",   "rwkv7-F32",
                                            "lfm2-F32",   "falcon-h1-F32", "lfm2moe-F32", "qwen3next-F32",
                                            "qwen35-F32", "qwen35moe-F32"};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::shared_ptr<LoadedModel> load(const std::string& path, engine::LoadOptions options) {
  options.memory = std::uint64_t{1} << 30;
  auto model = LoadedModel::load(path, options);
  if (!model) FAIL(model.error().message);
  return *model;
}

TEST_CASE("a small trained RWKV-7 gives the logits that its authors and llama.cpp publish") {
  const auto path = shared_file("thirdparty/rwkv/tiny-rwkv-7v0-834K-F32.json");
  if (!path) return;
  const auto json = nlohmann::json::parse(std::ifstream(*path));
  const std::string folder = path->substr(0, path->rfind('/') + 1);
  const auto prompt = json.at("prompt").get<std::vector<TokenId>>();
  const auto expected = read_floats(folder + "tiny-rwkv-7v0-834K-F32.logits.f32");
  const auto& upstream = json.at("upstream");
  const auto three = upstream.at("tokens").get<std::vector<TokenId>>();
  const auto expected_after_three = read_floats(folder + upstream.at("file").get<std::string>());
  const auto& allowed = json.at("tolerance").at("f32_vs_logits");
  Team team(2);
  for (const kernels::KernelTable* table : variants_to_try()) {
    INFO(table->name);
    const auto model = load(folder + "tiny-rwkv-7v0-834K-F32.gguf", {.kernels = std::string(table->name)});
    const auto logits = engine::evaluate(*model, team, prompt);
    REQUIRE(logits);
    const Difference all = difference(*logits, expected);
    INFO("max " << all.max_abs << ", RMS " << all.rms);
    CHECK(all.max_abs <= allowed.at("max_abs").get<double>());
    CHECK(all.rms <= allowed.at("rms").get<double>());
    const auto after_three = engine::evaluate(*model, team, three);
    REQUIRE(after_three);
    const std::vector<float> last(after_three->end() - model->info().vocab_size, after_three->end());
    CHECK(difference(last, expected_after_three).max_abs <= allowed.at("max_abs").get<double>());
  }
}

// The logits of the last 16 of many tokens.
std::vector<float> last_logits(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens) {
  constexpr std::uint32_t kLast = 16;
  Executor executor(model, team);
  const auto count = static_cast<std::uint32_t>(tokens.size());
  SequenceRunner runner(executor, 1, tokens, some_blocks(blocks_for(count), 0, 1));
  engine::StepResult result;
  while (runner.left() > kLast) {
    engine::StepBatch batch{.items = {runner.next(std::min(512u, runner.left() - kLast))}};
    batch.items[0].output = engine::Output::none;
    executor.step(batch, result);
  }
  return runner.run(kLast);
}

TEST_CASE("over 8,192 tokens states stay finite, and the last logits are those of the reference kernels") {
  constexpr std::uint32_t kTokens = kSanitized ? 1024 : 8192;
  for (const std::string& name : kReferences) {
    const auto golden = load_golden(name);
    if (!golden) return;
    const Tolerance allowed = golden->tolerance("f32_vs_logits");
    Team team(2);
    std::vector<float> expected;
    const std::vector<std::string> tables = {"reference", "scalar", std::string(kernels::best_table().name)};
    for (const std::string& kernels : tables) {
      INFO(name << ", " << kernels);
      const auto model =
          load(golden->model_path, {.kernels = kernels, .kv_type = kernels::KvType::f32, .context = kTokens});
      const auto logits = last_logits(*model, team, random_tokens(kTokens, model->info().vocab_size, 5));
      CHECK(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
      if (expected.empty()) {
        expected = logits;
        continue;
      }
      const Difference actual = difference(logits, expected);
      INFO("max " << actual.max_abs << ", RMS " << actual.rms);
      CHECK(actual.max_abs <= allowed.max_abs);
      CHECK(actual.rms <= allowed.rms);
    }
  }
}

// The logits of tokens from `from` on, by a sequence that begins with a snapshot of another one's state there.
std::vector<float> after_restore(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens,
                                 std::uint32_t from, std::uint32_t chunk) {
  Executor executor(model, team);
  const auto count = static_cast<std::uint32_t>(tokens.size());
  const auto blocks = some_blocks(blocks_for(count), 0, 1);
  SequenceRunner first(executor, 1, tokens, blocks);
  engine::StepResult result;
  for (std::uint32_t computed = 0; computed < from;) {
    const std::uint32_t now = std::min(chunk, from - computed);
    engine::StepBatch batch{.items = {first.next(now)}};
    computed += now;
    if (computed == from) batch.items[0].save = 3;
    executor.step(batch, result);
  }
  (void)first.run(chunk);
  SequenceRunner second(executor, 2, tokens, blocks, from, 3);
  return second.run(chunk);
}

TEST_CASE("states kept as f16 are rounded at fixed positions: the same bits in any chunks and after a restore") {
  constexpr std::uint32_t kTokens = 150, kEvery = 64;
  for (const std::string& name : kFamilies) {
    const auto path = golden_model(name);
    if (!path) return;
    Team team(2);
    for (const kernels::KernelTable* table : variants_to_try()) {
      INFO(name << ", " << table->name);
      engine::LoadOptions options{.kernels = std::string(table->name)};
      const auto exact = load(*path, options);
      options.state_type = engine::StateType::f16;
      options.snapshot_every = kEvery;
      const auto model = load(*path, options);
      CHECK(model->numerics_id().ends_with("-s64"));
      // LFM2 keeps the last inputs of its convolutions alone, which are never rounded.
      const bool rounds = model->cache_spec().state.large_floats != 0;
      CHECK((model->snapshots()->bytes_per_snapshot() < exact->snapshots()->bytes_per_snapshot()) == rounds);
      const auto tokens = random_tokens(kTokens, model->info().vocab_size, 8);
      const auto whole = *engine::evaluate(*model, team, tokens);
      for (const std::uint32_t chunk : {1u, 33u, 64u}) {
        INFO("in chunks of " << chunk);
        CHECK(same_bits(*engine::evaluate(*model, team, tokens, chunk), whole));
        const auto tail = std::span(whole).subspan(std::size_t{2 * kEvery} * model->info().vocab_size);
        CHECK(same_bits(after_restore(*model, team, tokens, 2 * kEvery, chunk), tail));
      }
      const auto unrounded = *engine::evaluate(*exact, team, tokens);
      const std::size_t before = std::size_t{kEvery} * model->info().vocab_size;
      CHECK(same_bits(std::span(whole).first(before), std::span(unrounded).first(before)));
      CHECK(same_bits(whole, unrounded) == !rounds);
      CHECK(difference(whole, unrounded).rms <= 2e-3);  // measured: at most 7e-4, of logits around 3
    }
  }
}

TEST_CASE("a step of many rows gives the bits of small steps, wherever its passes cut the sequences") {
  std::vector<std::string> names = kFamilies;
  names.insert(names.end(), {"gemma3-F32", "olmoe-F32"});  // a window, and experts
  for (const std::string& name : names) {
    const auto path = golden_model(name);
    if (!path) return;
    INFO(name);
    Team team(2);
    const auto model = load(*path, {.context = 1024, .num_blocks = 64});
    const std::uint32_t vocab = model->info().vocab_size;
    const auto first = random_tokens(300, vocab, 1), middle = random_tokens(740, vocab, 2);
    const auto last = random_tokens(100, vocab, 3);
    const auto alone = [&](const std::vector<TokenId>& tokens) { return *engine::evaluate(*model, team, tokens, 90); };
    const auto of_first = alone(first), of_middle = alone(middle), of_last = alone(last);
    Executor executor(*model, team);
    SequenceRunner a(executor, 1, first, some_blocks(10, 0, 1));
    SequenceRunner b(executor, 2, middle, some_blocks(24, 10, 2));
    SequenceRunner c(executor, 3, last, some_blocks(4, 34, 3));
    engine::StepResult result;
    engine::StepBatch batch{.items = {a.next(300), b.next(690), c.next(100)}};  // rows 512 and 1,024 lie within two
    batch.items[1].output = engine::Output::none;
    executor.step(batch, result);
    CHECK(same_bits(result.items[0].logits, of_first));
    CHECK(same_bits(result.items[2].logits, of_last));
    CHECK(same_bits(b.run(50), std::span(of_middle).last(std::size_t{50} * vocab)));
  }
}

TEST_CASE("a truncated sequence with a state is computed again from the beginning, to the same bits") {
  for (const std::string& name : kFamilies) {
    const auto path = golden_model(name);
    if (!path) return;
    INFO(name);
    Team team(2);
    const auto model = load(*path, {});
    const auto tokens = random_tokens(75, model->info().vocab_size, 4);
    const auto expected = *engine::evaluate(*model, team, tokens);
    Executor executor(*model, team);
    SequenceRunner runner(executor, 1, tokens, some_blocks(3, 0, 2));
    (void)runner.run(20);
    executor.truncate(1, 50);
    CHECK(executor.num_computed(1) == 0);
    engine::StepResult result;
    executor.step(
        {.items = {{.sequence = 1, .num_tokens = 50, .output = engine::Output::all_logits, .new_blocks = {}}}}, result);
    CHECK(same_bits(result.items[0].logits, std::span(expected).first(result.items[0].logits.size())));
  }
}

TEST_CASE("a sequence with a state or a window that went through a file gives the same bits") {
  const TempFolder folder;
  const std::string path = folder.path("sequence.state");
  std::vector<std::string> names = kFamilies;
  names.insert(names.end(), {"gemma3-F32", "deci-F32"});  // a window; layers of several sizes
  for (const std::string& name : names) {
    const auto source = golden_model(name);
    if (!source) break;
    INFO(name);
    Team team(2);
    const auto model = load(*source, {});
    const auto tokens = random_tokens(75, model->info().vocab_size, 4);
    const auto expected = *engine::evaluate(*model, team, tokens);
    Executor executor(*model, team);
    SequenceRunner runner(executor, 1, tokens, some_blocks(3, 8, 2));
    engine::StepResult result;
    executor.step({.items = {runner.next(70)}}, result);
    REQUIRE(save_sequence(path, *model, executor, 1));
    auto file = open_sequence(path, *model);
    if (!file) FAIL(file.error().message);
    CHECK(file->num_computed() == 70);
    BlockTables tables;
    for (const engine::CacheGroup& group : model->cache_spec().groups)
      cache::leave_window_behind(tables.emplace_back(BlockTable{20, 7, 33}), file->num_computed(), group.window);
    REQUIRE(continue_sequence(*file, *model, executor, 2, tables));
    executor.step({.items = {{.sequence = 2, .num_tokens = 5, .output = engine::Output::all_logits, .new_blocks = {}}}},
                  result);
    CHECK(same_bits(result.items[0].logits, std::span(expected).last(result.items[0].logits.size())));

    // Computed to its end: it goes on with further tokens.
    executor.step({.items = {runner.next(5)}}, result);
    REQUIRE(save_sequence(path, *model, executor, 1));
    file = open_sequence(path, *model);
    if (!file) FAIL(file.error().message);
    CHECK(file->num_computed() == 75);
    auto longer = tokens;
    for (const TokenId more : {5, 6, 7}) longer.push_back(more);
    const auto whole = *engine::evaluate(*model, team, longer);
    executor.close(2);
    REQUIRE(continue_sequence(*file, *model, executor, 2, tables, {5, 6, 7}));
    executor.step({.items = {{.sequence = 2, .num_tokens = 3, .output = engine::Output::all_logits, .new_blocks = {}}}},
                  result);
    CHECK(same_bits(result.items[0].logits, std::span(whole).last(result.items[0].logits.size())));

    // A flipped bit of the state or of a window's last block does not get through.
    REQUIRE(save_sequence(path, *model, executor, 2));
    std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-9, std::ios::end);
    const char old = static_cast<char>(bytes.get());
    bytes.seekp(-9, std::ios::end);
    bytes.put(static_cast<char>(old ^ 4));
    bytes.close();
    file = open_sequence(path, *model);
    REQUIRE(file);
    engine::SequenceImage image(*model, file->num_computed());
    CHECK_FALSE(file->read(image));
  }
}

TEST_CASE("Falcon-Mamba norms time steps, b and c; Mamba does not") {
  std::vector<TokenId> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((i * 7 + 3) % 48);
  // The results of llama.cpp (d32676d77) for the same files: the first logits of the tokens 5 and 39.
  struct Expected {
    bool norms;
    std::vector<float> of_5, of_39;
  };
  const Expected both[] = {
      {false,
       {-1.539383f, -2.277735f, -0.927402f, -0.249600f, 4.168049f, 2.488011f, -0.833191f, -4.355662f},
       {3.228252f, 2.129857f, -3.361447f, 3.486231f, 1.114285f, -0.614898f, -2.607446f, 2.485048f}},
      {true,
       {-0.968251f, -2.051842f, -0.412123f, -0.696997f, 4.145597f, 2.600225f, -0.234069f, -4.792821f},
       {0.361652f, 4.458922f, 2.857594f, -0.558518f, 4.947632f, -1.580409f, -2.377214f, 1.168953f}}};
  for (const Expected& expected : both) {
    const TemporaryFile file(TinyMamba{.norms = expected.norms}.writer().bytes());
    for (const kernels::KernelTable* table : variants_to_try()) {
      INFO(table->name << (expected.norms ? ", norms" : ""));
      Team team(2);
      const auto model = load(file.path(), {.kernels = std::string(table->name)});
      const auto logits = engine::evaluate(*model, team, tokens);
      REQUIRE(logits);
      for (const auto& [row, values] : {std::pair{5, expected.of_5}, {39, expected.of_39}})
        CHECK(difference({logits->begin() + row * 48, logits->begin() + row * 48 + 8}, values).max_abs < 2e-4);
      for (const std::uint32_t chunk : {1u, 19u})
        CHECK(same_bits(*engine::evaluate(*model, team, tokens, chunk), *logits));
    }
  }
}

TEST_CASE("the matrices after the states of a recurrent model's last layer are counted for output rows only") {
  const TemporaryFile file(TinyMamba{}.writer().bytes());
  const auto model = load(file.path(), {});
  std::uint64_t everywhere = 0, outputs = 0;
  for (const engine::MatrixWork& matrix : model->info().matrices)
    (matrix.outputs_only ? outputs : everywhere) += matrix.multiply_adds;
  CHECK(outputs == 32 * 16 + 48 * 16);  // ssm_out and the head
  CHECK(everywhere == 2 * (16 * 64 + 32 * 20 + 4 * 32) + 32 * 16);
}

TEST_CASE("falcon-h1: so are the output matrices of its last layer's mixer") {
  const auto path = golden_model("falcon-h1-F32");
  if (!path) return;
  const auto model = load(*path, {});
  const engine::ModelInfo& info = model->info();
  const auto file = engine::open_gguf(*path);
  const std::uint64_t inner = (*file)->find_tensor("blk.0.ssm_out.weight")->columns();
  std::uint64_t outputs = 0;
  for (const engine::MatrixWork& matrix : info.matrices) outputs += matrix.outputs_only ? matrix.multiply_adds : 0;
  CHECK(outputs == info.dim * (inner + info.num_heads * info.head_dim + 3 * info.ffn_dim + info.vocab_size));
}

TEST_CASE("snapshots and blocks that were asked for by number fit the memory, or the model is refused") {
  const TemporaryFile file(TinyMamba{}.writer().bytes());
  const auto refusal = [&](engine::LoadOptions options) {
    options.memory = 64u << 20;
    const auto model = LoadedModel::load(file.path(), options);
    return model ? "loaded" : model.error().code == ErrorCode::out_of_memory ? model.error().message : "another error";
  };
  using Catch::Matchers::Contains;
  CHECK(refusal({.num_snapshots = 1000}) == "loaded");
  CHECK_THAT(refusal({.num_snapshots = 0xfffffff0}), Contains("4294967280 snapshots of 1 MiB each do not fit"));
  CHECK(refusal({.num_blocks = 100'000}) == "loaded");
  CHECK_THAT(refusal({.num_blocks = 900'000'000}), Contains("the names of 900000000 KV blocks take 171662 MiB"));
}

TEST_CASE("a recurrent model that does not fit the memory is refused") {
  const auto path = golden_model("mamba-F32");
  if (!path) return;
  const auto too_small = LoadedModel::load(*path, {.memory = 1 << 16});
  REQUIRE_FALSE(too_small);
  CHECK(too_small.error().code == ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace troupe::test
