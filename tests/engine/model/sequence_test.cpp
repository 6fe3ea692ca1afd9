// The K and V of a sequence: truncated, forked, written to a file and read back.
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
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/engine/saved_sequence.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::Executor;
using engine::SequenceFile;

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
  explicit Stopped(const std::string& kernels = "", kernels::KvType kv_type = kernels::KvType::f16,
                   const std::string& file = kModel)
      : model(load_model(file, kernels, kv_type, kNumBlocks, 512)),
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

// --- truncation ---

TEST_CASE("a rewound sequence computes the dropped positions again, to the same bits") {
  Stopped s;
  s.executor.rewind(1, 33);
  CHECK(s.executor.num_computed(1) == 33);
  CHECK(s.executor.num_known(1) == 75);
  CHECK(same_bits(go_on(s.executor, 1), s.expected_tail(33)));
  CHECK(s.executor.num_computed(1) == 75);
  s.executor.rewind(1, 0);
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
    REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
    const auto again = load_model(kModel, kernels, kv_type, kNumBlocks, 512);  // another process, as good as
    Executor executor(*again, s.team);
    auto file = open_sequence(s.path, *again);
    if (!file) FAIL(file.error().message);
    CHECK(file->record().tokens == s.tokens);
    CHECK(file->record().created == 1'700'000'000);
    CHECK(file->record().num_answers == 3);
    CHECK(file->num_computed() == 70);
    CHECK(file->content_bytes() == 3 * again->arena()->bytes_per_block());
    CHECK(file->anchors() == cache::anchors_of(s.tokens));
    REQUIRE(continue_sequence(*file, *again, executor, 9, {{20, 7, 33}}));
    CHECK(executor.num_computed(9) == 70);
    CHECK(same_bits(go_on(executor, 9), s.expected_tail(70)));
    CHECK(same_bits(go_on(s.executor, 1), s.expected_tail(70)));
  });
}

TEST_CASE("blocks that are cached already are not written") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  const std::vector<BlockId> before(s.executor.block_table(1).begin(), s.executor.block_table(1).end());
  auto file = open_sequence(s.path, *s.model);
  REQUIRE(file);
  REQUIRE(continue_sequence(*file, *s.model, s.executor, 2, {{before[0], before[1], 50}}, {}, 64));
  CHECK(same_bits(go_on(s.executor, 2), s.expected_tail(70)));
}

TEST_CASE("a file that replaces an opened one is not read") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  auto file = open_sequence(s.path, *s.model);
  REQUIRE(file);
  SequenceRunner runner(s.executor, 2, random_tokens(75, s.model->info().vocab_size, 12), {40, 41, 42});
  engine::StepResult result;
  s.executor.step({.items = {runner.next(70)}}, result);
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 2));  // as long, with a checksum of its own
  REQUIRE(continue_sequence(*file, *s.model, s.executor, 3, {{50, 51, 52}}));
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
    REQUIRE(save_sequence(path, *from, executor, 1));
    CHECK(open_sequence(path, *from));
    const auto other = open_sequence(path, *to);
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
    executor.rewind(1, position);
    (void)go_on(executor, 1);
  };
  step_after(96);
  CHECK_FALSE(asserts([&] { step_after(95); }));  // attends to 64, the first of its block
  CHECK(asserts([&] { step_after(94); }));
  CHECK(asserts([&] { step_after(0); }));
}

TEST_CASE("a sequence that was computed to its end goes on with further tokens") {
  Stopped s;
  (void)go_on(s.executor, 1);
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  auto file = open_sequence(s.path, *s.model);
  REQUIRE(file);
  CHECK(file->num_computed() == 75);
  const std::vector<TokenId> more = {5, 6, 7};
  REQUIRE(continue_sequence(*file, *s.model, s.executor, 2, {{50, 51, 52}}, more));
  auto all = s.tokens;
  all.insert(all.end(), more.begin(), more.end());
  const auto whole = *engine::evaluate(*s.model, s.team, all);
  CHECK(same_bits(go_on(s.executor, 2), std::span(whole).subspan(std::size_t{75} * s.model->info().vocab_size)));
}

TEST_CASE("an image that was made in parts is the one that was made at once") {
  Stopped s;
  const engine::SequenceImage whole = image_of(*s.model, s.executor, 1);
  for (const std::uint32_t part : {1u, 31u, 32u, 33u, 69u}) {
    const engine::SequenceImage parts = image_of(*s.model, s.executor, 1, part);
    CHECK(std::ranges::equal(parts.bytes(), whole.bytes()));
  }
}

TEST_CASE("a file without contents has the tokens") {
  Stopped s;
  const PrivateDirectory directory = directory_of(s.path);
  const engine::SequenceRecord record{.numerics_id = "x", .model_hash = 1, .tokens = s.tokens};
  REQUIRE(engine::write_sequence(directory, "tokens", record, nullptr));
  const auto file = SequenceFile::open(directory, "tokens");
  REQUIRE(file);
  CHECK(file->record().tokens == s.tokens);
  CHECK(file->num_computed() == 0);
  CHECK(file->content_bytes() == 0);
  CHECK(file->file_bytes() == engine::sequence_file_bytes(record, 0));
  CHECK(file->file_bytes() == fs::file_size(s.directory.path / "tokens"));
}

TEST_CASE("a file of version 3 goes on, without the digests that it does not have") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  const auto file = open_sequence(s.path, *s.model);
  REQUIRE(file);
  CHECK(file->version() == 4);
  CHECK(file->record().vocabulary_digest == 5);
  CHECK(file->record().template_digest == 6);
  spill(s.path, as_version_3(slurp(s.path)));
  auto old = open_sequence(s.path, *s.model);
  if (!old) FAIL(old.error().message);
  CHECK(old->version() == 3);
  CHECK(old->record().vocabulary_digest == 0);
  CHECK(old->record().template_digest == 0);
  CHECK(old->record().tokens == file->record().tokens);
  CHECK(old->record().num_answers == 3);
  CHECK_FALSE(engine::is_other_version(directory_of(s.path), "sequence.state"));
  engine::SequenceImage image(*s.model, old->num_computed());
  REQUIRE(old->read(image));
  const engine::SequenceImage expected = image_of(*s.model, s.executor, 1);
  CHECK(std::ranges::equal(image.bytes(), expected.bytes()));
}

TEST_CASE("a file is private, replaces the old one whole, and leaves nothing beside it") {
  Stopped s;
  spill(s.path, "old");
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  CHECK(open_sequence(s.path, *s.model));
  CHECK(std::distance(fs::directory_iterator(s.directory.path), fs::directory_iterator()) == 1);
  struct stat info {};
  REQUIRE(::stat(s.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);

  // What a killed process left is replaced; a link in its place is not followed.
  spill(s.directory.path / ".sequence.state.tmp", "half");
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  spill(s.directory.path / "elsewhere", "kept");
  fs::create_symlink("elsewhere", s.directory.path / ".sequence.state.tmp");
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  CHECK(slurp(s.directory.path / "elsewhere") == "kept");
  fs::create_symlink("sequence.state", s.directory.path / "link");
  CHECK_FALSE(open_sequence(s.directory.path / "link", *s.model));
  fs::remove(s.directory.path / "link");
  fs::remove(s.directory.path / "elsewhere");
  // A directory cannot be replaced by a file: the temporary one goes.
  fs::create_directories(s.directory.path / "taken");
  CHECK_FALSE(save_sequence(s.directory.path / "taken", *s.model, s.executor, 1));
  CHECK(std::distance(fs::directory_iterator(s.directory.path), fs::directory_iterator()) == 2);
}

void require_unused_slots_empty(const std::string& model, kernels::KvType kv_type) {
  INFO(model << " with KV in " << kernels::name(kv_type));
  Stopped s("", kv_type, model);
  for (BlockId block = 40; block < 44; ++block)
    std::memset(s.model->arena()->block(block), 0x5a, s.model->arena()->bytes_per_block());
  SequenceRunner runner(s.executor, 2, s.tokens, {40, 41, 42});
  engine::StepResult result;
  s.executor.step({.items = {runner.next(70)}}, result);
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 2));
  const std::string dirty = slurp(s.path);
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  CHECK(slurp(s.path) == dirty);  // the same sequence in blocks that were zero
  auto file = open_sequence(s.path, *s.model);
  REQUIRE(file);
  REQUIRE(continue_sequence(*file, *s.model, s.executor, 3, {{50, 51, 52}}));
  CHECK(same_bits(go_on(s.executor, 3), s.expected_tail(70)));
}

TEST_CASE("contents that another sequence left in unused slots are not exported") {
  require_unused_slots_empty(kModel, kernels::KvType::f16);
}

TEST_CASE("contents in unused slots of layers of several sizes are not exported") {
  for (const auto kv_type : {kernels::KvType::f16, kernels::KvType::i8})
    require_unused_slots_empty(TROUPE_TEST_DATA "/golden/deci.gguf", kv_type);
}

// Opens a changed file and reads its blocks; the message of the first error.
std::string refusal(const Stopped& s, const std::string& bytes, const engine::LoadedModel& model) {
  spill(s.path, bytes);
  auto file = open_sequence(s.path, model);
  if (!file) return file.error().message;
  engine::SequenceImage image(model, file->num_computed());
  const auto read = file->read(image);
  return read ? "" : read.error().message;
}

TEST_CASE("foreign, newer, truncated and damaged files are refused by name") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
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
  CHECK(says("GGUF" + good.substr(4), "not a saved sequence"));
  CHECK(says(with(8, 5), "version 5 of the format is newer than this program, which reads versions 3 and 4; use the"));
  CHECK(says(with(8, 2), "version 2 of the format is older than this program, which reads versions 3 and 4; compute"));
  CHECK(says(with(8, 0), "its version is 0"));
  CHECK(says(with(12, 1u << 31), "the length of numerics_id is 2147483648, and can be 256 at most"));
  CHECK(says(with(40, 7), "its blocks have 7 positions"));
  CHECK(says(with(44, 0xffffffffu), "the number of tokens is 4294967295, and can be 16777216 at most"));
  CHECK(says(with(44, 1u << 24), "anchors do not fit"));
  CHECK(says(with(44, 0), "it has no tokens"));
  CHECK(says(with(48, 76), "the number of computed tokens is 76, and can be 75 at most"));
  CHECK(says(with(48, 5), "the checksum of its header is wrong"));
  CHECK(says(with(48, 0), "bytes of contents of no token"));
  CHECK(says(with(52, 3), "3 anchors do not fit 75 tokens"));
  CHECK(says(good + "x", "1 bytes follow its end"));
  CHECK(says("", "truncated: it has 0 bytes of 64"));

  const auto model_f32 = load_model(kModel, "", kernels::KvType::f32, kNumBlocks, 512);
  CHECK(refusal(s, good, *model_f32).find("foreign: it was made under numerics " + s.model->numerics_id()) !=
        std::string::npos);
  const auto other_model = load_model(TROUPE_MODELS "/tales-5m-tq2_0.gguf", "", kernels::KvType::f16, kNumBlocks, 512);
  CHECK(refusal(s, good, *other_model).find("foreign") != std::string::npos);
  const auto short_model = load_model(kModel, "", kernels::KvType::f16, kNumBlocks, 64);
  CHECK(refusal(s, good, *short_model).find("75 tokens are more than the context of 64; use a larger -c") !=
        std::string::npos);
  CHECK(open_sequence(s.path + ".none", *s.model).error().message.find("No such file") != std::string::npos);
  fs::create_directories(s.directory.path / "folder");
  CHECK(open_sequence(s.directory.path / "folder", *s.model).error().message.find("not a regular file") !=
        std::string::npos);
}

TEST_CASE("a file that contradicts itself is refused although its checksum is right") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
  const std::string good = slurp(s.path);
  const std::size_t tokens_at = 80 + s.model->numerics_id().size(), anchors_at = tokens_at + 75 * 4;
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
  CHECK(says(with(16, 7), "contradicts its numerics"));
  CHECK(says(with(80, 0xffc0c1c2u), "its numerics_id is not printable"));
  CHECK(says(with(32, 7), "bytes follow its end"));
  CHECK(says(with(48, 32), "foreign"));
  CHECK(says(with(60, 1), "foreign"));
  const std::uint32_t vocab_size = s.model->info().vocab_size;
  for (const std::size_t i : {0u, 74u}) {
    CHECK(says(with(tokens_at + 4 * i, 0xffffffffu), "a token is below 0"));
  }
  // Of one that an anchor covers the anchor is wrong, too.
  CHECK(says(with(tokens_at + 4 * 74, vocab_size), "token " + std::to_string(vocab_size) + " is not in the vocab"));
  CHECK(says(with(tokens_at, (static_cast<std::uint32_t>(s.tokens[0]) + 1) % 100), "its anchors are not those of its"));
  CHECK(says(with(anchors_at + 4, 7), "its anchors are not those of its tokens"));
}

TEST_CASE("every truncation and every flipped bit is detected") {
  Stopped s;
  REQUIRE(save_sequence(s.path, *s.model, s.executor, 1));
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
