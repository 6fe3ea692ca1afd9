// The K and V of a sequence: viewed, truncated, forked, written to a file and read back.
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/evaluation/eval.h"
#include "engine/model/sequence_file.h"
#include "engine/model/sequence_view.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::Executor;
using engine::SequenceFile;
using engine::SequenceView;

const std::string kModel = TROUPE_MODELS "/tales-draft-q8_0.gguf";
constexpr std::uint32_t kNumBlocks = 64;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Directory {
  const TempFolder folder;
  const fs::path path = folder.path();
};

// A model, and a sequence of 75 tokens of which the first 70 are computed: two full blocks and a part of a third.
struct Stopped {
  explicit Stopped(const std::string& kernels = "", kernels::KvType kv_type = kernels::KvType::f16)
      : model(load_model(kModel, kernels, kv_type, kNumBlocks, 512)),
        tokens(random_tokens(75, model->info().vocab_size, 11)) {
    expected = *engine::evaluate(*model, team, tokens);
    runner.emplace(executor, 1, tokens, some_blocks(4, 8, 3));
    engine::StepResult result;
    executor.step({.items = {runner->next(70)}}, result);
  }
  std::span<const float> expected_tail(std::uint32_t from) const {
    return std::span(expected).subspan(std::size_t{from} * model->info().vocab_size);
  }

  std::shared_ptr<engine::LoadedModel> model;
  engine::Team team{2};
  Executor executor{*model, team};
  std::vector<TokenId> tokens;
  std::vector<float> expected;  // logits of all tokens, never stopped
  std::optional<SequenceRunner> runner;
  Directory directory;
  std::string path = directory.path / "sequence.state";
};

// Logits of the uncomputed tokens of a sequence that is open already.
std::vector<float> go_on(Executor& executor, SequenceId id) {
  const std::uint32_t left = executor.num_known(id) - executor.num_computed(id);
  engine::StepResult result;
  executor.step(
      {.items = {{.sequence = id, .num_tokens = left, .output = engine::Output::all_logits, .new_blocks = {}}}},
      result);
  return result.items[0].logits;
}

// Whether `action` ends its process by an assertion.
template <class Action>
bool asserts(Action action) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // not Catch's handler, which would print a report
    action();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

template <class Check>
void for_all_variants(Check check) {
  for (const kernels::KernelTable* table : variants_here()) {
    for (const auto kv_type : {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8}) {
      INFO(table->name << " with KV in " << kernels::name(kv_type));
      check(std::string(table->name), kv_type);
    }
  }
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// --- the view ---

TEST_CASE("a view shows the K and V that every kernel variant computes, in all KV types") {
  Stopped reference("reference", kernels::KvType::f32);
  SequenceView expected(*reference.model, reference.executor, 1);
  const std::uint32_t last_layer = reference.model->info().num_layers - 1;
  for_all_variants([&](const std::string& kernels, kernels::KvType kv_type) {
    Stopped s(kernels, kv_type);
    SequenceView view(*s.model, s.executor, 1);
    REQUIRE(view.length() == 70);
    REQUIRE(view.capacity() == 128);
    for (const std::uint32_t layer : {0u, last_layer}) {
      for (const bool keys : {true, false}) {
        const auto is = keys ? view.keys(layer) : view.values(layer);
        const auto should = keys ? expected.keys(layer) : expected.values(layer);
        REQUIRE(is.size() == std::size_t{70} * s.model->info().num_kv_heads * s.model->info().head_dim);
        REQUIRE(is.size() == should.size());
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < is.size(); ++i) {
          error += (is[i] - should[i]) * (is[i] - should[i]);
          norm += should[i] * should[i];
        }
        // Rounded activations and float16: a percent or so. A slot or head mixed up would be an error of 100 %.
        CHECK(error <= 0.05 * 0.05 * norm);
      }
    }
  });
}

TEST_CASE("a view returns the stored K and V, element by element") {
  for (const auto kv_type : {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8}) {
    Stopped s("", kv_type);
    const kernels::KvShape shape = engine::kv_shape_of(*s.model);
    const std::size_t dim = std::size_t{shape.num_kv_heads} * shape.head_dim;
    // Small integers, of which each head has one of 127: exact in all types.
    std::vector<float> k(dim), v(dim);
    for (std::size_t i = 0; i < dim; ++i) {
      k[i] = i % shape.head_dim == 3 ? 127.0f : static_cast<float>(i % 101);
      v[i] = i % shape.head_dim == 7 ? -127.0f : -static_cast<float>(i % 103 + 1);
    }
    const BlockId block = s.executor.block_table(1)[1];
    s.model->kernels().store_kv(shape, s.model->arena()->block(block) + shape.layer_bytes(), 5, k.data(), v.data());
    SequenceView view(*s.model, s.executor, 1);
    const auto keys = view.keys(1), values = view.values(1);
    CHECK(same_bits(std::span(keys).subspan(37 * dim, dim), k));
    CHECK(same_bits(std::span(values).subspan(37 * dim, dim), v));
  }
}

TEST_CASE("a truncated or cleared sequence computes the dropped positions again, to the same bits") {
  Stopped s;
  SequenceView view(*s.model, s.executor, 1);
  view.truncate(33);
  CHECK(view.length() == 33);
  CHECK(view.tokens().size() == 75);
  CHECK(same_bits(go_on(s.executor, 1), s.expected_tail(33)));
  CHECK(view.length() == 75);
  view.clear();
  CHECK(view.length() == 0);
  CHECK(view.capacity() == 128);
  CHECK(same_bits(go_on(s.executor, 1), s.expected));
}

// --- forks ---

TEST_CASE("a fork goes on from a copy of the last block, and does not change its parent") {
  for_all_variants([](const std::string& kernels, kernels::KvType kv_type) {
    Stopped s(kernels, kv_type);
    const std::vector<BlockId> table(s.executor.block_table(1).begin(), s.executor.block_table(1).end());
    auto other_tokens = s.tokens;
    for (std::size_t i = 70; i < 75; ++i) other_tokens[i] = (other_tokens[i] + 1) % 100;
    engine::SequenceSpec spec;
    spec.id = 2;
    spec.tokens = other_tokens;
    spec.num_cached = 70;
    spec.tables = {{table[0], table[1], 40}};
    spec.copy_from = {table[2]};
    s.executor.open(spec);
    CHECK(same_bits(go_on(s.executor, 2), std::span<const float>(*engine::evaluate(*s.model, s.team, other_tokens))
                                              .subspan(std::size_t{70} * s.model->info().vocab_size)));
    CHECK(same_bits(go_on(s.executor, 1), s.expected_tail(70)));
  });
}

// --- files ---

TEST_CASE("an imported sequence goes on with the bits it would have had, in every variant and KV type") {
  for_all_variants([](const std::string& kernels, kernels::KvType kv_type) {
    Stopped s(kernels, kv_type);
    REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
    const auto again = load_model(kModel, kernels, kv_type, kNumBlocks, 512);  // another process, as good as
    Executor executor(*again, s.team);
    auto file = SequenceFile::open(s.path, *again);
    if (!file) FAIL(file.error().message);
    CHECK(file->tokens() == s.tokens);
    CHECK(file->num_computed() == 70);
    CHECK(file->num_prompt_tokens() == 75);
    CHECK(file->anchors() == cache::anchors_of(s.tokens));
    REQUIRE(file->num_blocks() == 3);
    const BlockTables tables = {{20, 7, 33}};
    REQUIRE(file->read_blocks(*again, tables));
    executor.open(file->spec(9, tables, {}));
    CHECK(executor.num_computed(9) == 70);
    CHECK(same_bits(go_on(executor, 9), s.expected_tail(70)));
    CHECK(same_bits(go_on(s.executor, 1), s.expected_tail(70)));
  });
}

TEST_CASE("blocks that are cached already need not be read") {
  Stopped s;
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  const std::vector<BlockId> before(s.executor.block_table(1).begin(), s.executor.block_table(1).end());
  auto file = SequenceFile::open(s.path, *s.model);
  REQUIRE(file);
  REQUIRE(file->read_blocks(*s.model, {{kNoBlock, kNoBlock, 50}}));
  s.executor.open(file->spec(2, {{before[0], before[1], 50}}, {}));
  CHECK(same_bits(go_on(s.executor, 2), s.expected_tail(70)));
}

TEST_CASE("a file that replaces an opened one is not read") {
  Stopped s;
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  auto file = SequenceFile::open(s.path, *s.model);
  REQUIRE(file);
  SequenceRunner runner(s.executor, 2, random_tokens(75, s.model->info().vocab_size, 12), {40, 41, 42});
  engine::StepResult result;
  s.executor.step({.items = {runner.next(70)}}, result);
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 2));  // as long, with a checksum of its own
  REQUIRE(file->read_blocks(*s.model, {{50, 51, 52}}));
  s.executor.open(file->spec(3, {{50, 51, 52}}, {}));
  CHECK(same_bits(go_on(s.executor, 3), s.expected_tail(70)));
}

TEST_CASE("a sequence that was made under a context on the other side of the window is foreign, not damaged") {
  GgufWriter w = TinyLlama{.context = 160}.writer();
  w.add("llama.attention.sliding_window", 32u);
  const TemporaryFile model_file(w.bytes());
  const auto narrow = load_model(model_file.path(), "", kernels::KvType::f32, 8, 32);
  const auto wide = load_model(model_file.path(), "", kernels::KvType::f32, 8, 160);
  REQUIRE(narrow->numerics_id() == wide->numerics_id());
  REQUIRE((narrow->arenas().size() == 1 && wide->arenas().size() == 2));
  engine::Team team(1);
  const Directory directory;
  const std::string path = directory.path / "sequence.state";
  for (const auto& [from, to] : {std::pair{narrow, wide}, {wide, narrow}}) {
    Executor executor(*from, team);
    SequenceRunner runner(executor, 1, random_tokens(20, 48, 3), {0});
    engine::StepResult result;
    executor.step({.items = {runner.next(10)}}, result);
    REQUIRE(engine::export_sequence(path, *from, executor, 1));
    CHECK(SequenceFile::open(path, *from));
    const auto other = SequenceFile::open(path, *to);
    REQUIRE_FALSE(other);
    INFO(other.error().message);
    CHECK(other.error().code == ErrorCode::unsupported);
    CHECK(other.error().message.find("a -c on the other side of the window") != std::string::npos);
  }
}

TEST_CASE("a sequence can be rewound as far as the blocks of its window are there, and no further") {
  GgufWriter w = TinyLlama{.context = 160}.writer();
  w.add("llama.attention.sliding_window", 32u);
  const TemporaryFile model_file(w.bytes());
  const auto model = load_model(model_file.path(), "", kernels::KvType::f32, 8, 160);
  const auto tokens = random_tokens(150, 48, 3);
  const auto step_after = [&](std::uint32_t position) {
    engine::Team team(1);
    Executor executor(*model, team);
    SequenceRunner runner(executor, 1, tokens, some_blocks(5, 0, 1));
    engine::StepResult result;
    executor.step({.items = {runner.next(100)}}, result);
    executor.step({.items = {runner.next(20)}},
                  result);  // rows from 100 on attend to 69 and later: two blocks are given back
    SequenceView(*model, executor, 1).truncate(position);
    (void)go_on(executor, 1);
  };
  step_after(96);
  CHECK_FALSE(asserts([&] { step_after(95); }));  // attends to 64, the first of its block
  CHECK(asserts([&] { step_after(94); }));
  CHECK(asserts([&] { step_after(0); }));
}

TEST_CASE("a sequence that was computed to its end computes its last token again") {
  Stopped s;
  (void)go_on(s.executor, 1);
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  auto file = SequenceFile::open(s.path, *s.model);
  REQUIRE(file);
  CHECK(file->num_computed() == 75);
  REQUIRE(file->read_blocks(*s.model, {{50, 51, 52}}));
  s.executor.open(file->spec(2, {{50, 51, 52}}, {}));
  CHECK(same_bits(go_on(s.executor, 2), s.expected_tail(74)));
}

TEST_CASE("a file is private, replaces the old one whole, and leaves nothing beside it") {
  Stopped s;
  spill(s.path, "old");
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  CHECK(SequenceFile::open(s.path, *s.model));
  CHECK(std::distance(fs::directory_iterator(s.directory.path), fs::directory_iterator()) == 1);
  struct stat info {};
  REQUIRE(::stat(s.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);

  const auto failed = engine::export_sequence(s.directory.path / "no/such/place", *s.model, s.executor, 1);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == ErrorCode::io);
  CHECK(failed.error().message.find("No such file") != std::string::npos);
  // A directory cannot be replaced by a file: the temporary one goes.
  fs::create_directories(s.directory.path / "taken");
  CHECK_FALSE(engine::export_sequence(s.directory.path / "taken", *s.model, s.executor, 1));
  CHECK(std::distance(fs::directory_iterator(s.directory.path), fs::directory_iterator()) == 2);
}

TEST_CASE("contents that another sequence left in unused slots are not exported") {
  Stopped s;
  for (BlockId block = 40; block < 44; ++block)
    std::memset(s.model->arena()->block(block), 0x5a, s.model->arena()->bytes_per_block());
  SequenceRunner runner(s.executor, 2, s.tokens, {40, 41, 42});
  engine::StepResult result;
  s.executor.step({.items = {runner.next(70)}}, result);
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 2));
  const std::string dirty = slurp(s.path);
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  CHECK(slurp(s.path) == dirty);  // the same sequence in blocks that were zero
  auto file = SequenceFile::open(s.path, *s.model);
  REQUIRE(file);
  REQUIRE(file->read_blocks(*s.model, {{50, 51, 52}}));
  s.executor.open(file->spec(3, {{50, 51, 52}}, {}));
  CHECK(same_bits(go_on(s.executor, 3), s.expected_tail(70)));
}

// Opens a changed file and reads its blocks; the message of the first error.
std::string refusal(const Stopped& s, const std::string& bytes, const engine::LoadedModel& model) {
  spill(s.path, bytes);
  auto file = SequenceFile::open(s.path, model);
  if (!file) return file.error().message;
  const auto read = file->read_blocks(model, {{50, 51, 52}});
  return read ? "" : read.error().message;
}

TEST_CASE("foreign, newer, truncated and damaged files are refused by name") {
  Stopped s;
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  const std::string good = slurp(s.path);
  REQUIRE(refusal(s, good, *s.model).empty());
  const auto says = [&](const std::string& bytes, const std::string& words) {
    const std::string message = refusal(s, bytes, *s.model);
    INFO(message);
    return message.find(s.path) == 0 && message.find(words) != std::string::npos;
  };
  const auto with = [&](std::size_t at, std::uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  CHECK(says("GGUF" + good.substr(4), "not an exported sequence"));
  CHECK(says(with(8, 3), "version 3 of the format is newer than this program, which reads version 2"));
  CHECK(says(with(8, 1), "version 1 of the format is older than this program, which reads version 2; compute the"));
  CHECK(says(with(8, 0), "its version is 0"));
  CHECK(says(with(12, 1u << 31), "the length of numerics_id is 2147483648, and can be 256 at most"));
  CHECK(says(with(40, 0xffffffffu), "the number of tokens is 4294967295, and can be 16777216 at most"));
  CHECK(says(with(40, 1u << 24), "anchors do not fit"));
  CHECK(says(with(40, 0), "it has no tokens"));
  CHECK(says(with(44, 76), "the prompt's length is 76, and can be 75 at most"));
  CHECK(says(with(48, 76), "the number of computed tokens is 76, and can be 75 at most"));
  CHECK(says(with(48, 5), "the checksum of its header is wrong"));
  CHECK(says(with(52, 3), "3 anchors do not fit 75 tokens"));
  CHECK(says(good + "x", "1 bytes follow its end"));
  CHECK(says("", "truncated: it has 0 bytes of 56"));

  const auto model_f32 = load_model(kModel, "", kernels::KvType::f32, kNumBlocks, 512);
  CHECK(refusal(s, good, *model_f32).find("foreign: it was made under numerics " + s.model->numerics_id()) !=
        std::string::npos);
  const auto other_model = load_model(TROUPE_MODELS "/tales-5m-tq2_0.gguf", "", kernels::KvType::f16, kNumBlocks, 512);
  CHECK(refusal(s, good, *other_model).find("foreign") != std::string::npos);
  const auto short_model = load_model(kModel, "", kernels::KvType::f16, kNumBlocks, 64);
  CHECK(refusal(s, good, *short_model).find("75 tokens are more than the context of 64; use a larger -c") !=
        std::string::npos);
  CHECK(SequenceFile::open(s.path + ".none", *s.model).error().message.find("No such file") != std::string::npos);
  CHECK(SequenceFile::open(s.directory.path, *s.model).error().message.find("not a regular file") != std::string::npos);
}

TEST_CASE("a file that contradicts itself is refused although its checksum is right") {
  Stopped s;
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  const std::string good = slurp(s.path);
  const std::size_t tokens_at = 56 + s.model->numerics_id().size(), anchors_at = tokens_at + 75 * 4;
  const std::size_t sum_at = anchors_at + 2 * 12;
  const auto with = [&](std::size_t at, std::uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const auto sum = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), sum_at));
    std::memcpy(bytes.data() + sum_at, &sum, sizeof sum);
    return bytes;
  };
  const auto says = [&](const std::string& bytes, const std::string& words) {
    const std::string message = refusal(s, bytes, *s.model);
    INFO(message);
    return message.find(words) != std::string::npos;
  };
  CHECK(with(44, 75) == good);
  for (const std::size_t at : {16u, 24u, 28u, 32u}) CHECK(says(with(at, 7), "contradict its numerics"));
  const std::uint32_t vocab_size = s.model->info().vocab_size;
  for (const std::size_t i : {0u, 74u}) {
    CHECK(says(with(tokens_at + 4 * i, 0xffffffffu), "token -1 is not in the vocabulary"));
    CHECK(says(with(tokens_at + 4 * i, vocab_size), "token " + std::to_string(vocab_size) + " is not in the vocab"));
  }
  CHECK(says(with(tokens_at, (static_cast<std::uint32_t>(s.tokens[0]) + 1) % 100), "its anchors are not those of its"));
  CHECK(says(with(anchors_at + 4, 7), "its anchors are not those of its tokens"));

  REQUIRE(refusal(s, with(44, 60), *s.model).empty());  // a shorter prompt is another sequence
  auto file = SequenceFile::open(s.path, *s.model);
  REQUIRE(file);
  s.executor.open(file->spec(2, {{50, 51, 52}}, {}));
  CHECK(s.executor.num_prompt_tokens(2) == 60);
}

TEST_CASE("every truncation and every flipped bit is detected") {
  Stopped s;
  REQUIRE(engine::export_sequence(s.path, *s.model, s.executor, 1));
  const std::string good = slurp(s.path);
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::size_t length = i < 100 ? static_cast<std::size_t>(i) * 5 : random() % good.size();
    const std::string message = refusal(s, good.substr(0, length), *s.model);
    INFO("cut to " << length << ": " << message);
    REQUIRE(message.find("truncated") != std::string::npos);
  }
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    const std::size_t at = i < 150 ? random() % 700 : random() % good.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    INFO("byte " << at);
    REQUIRE_FALSE(refusal(s, bytes, *s.model).empty());
  }
}

}  // namespace
}  // namespace troupe::test
