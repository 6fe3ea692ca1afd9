// The canary: the same bits whatever else is so, other bits once a kernel or a weight is wrong.
#include "engine/model/canary.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "config/file_descriptor.h"
#include "engine/machine/probe_file.h"
#include "engine/model/canary_file.h"
#include "kernels/register_table.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::Encoder;
using engine::find_canary;
using engine::keep_canary;
using engine::LoadedModel;
using engine::make_canary;

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kGolden = TROUPE_TEST_DATA "/golden/";

template <class AnyModel>
std::uint64_t canary_of(const AnyModel& model, std::uint32_t num_threads = 2) {
  engine::Team team(num_threads);
  const auto canary = make_canary(model);
  while (!canary->advance(team)) {
  }
  return canary->value();
}

std::shared_ptr<const Encoder> load_bert(const std::string& kernels = "") {
  engine::LoadOptions options;
  options.kernels = kernels;
  options.memory = 256u << 20;
  auto encoder = Encoder::load(TROUPE_TEST_DATA "/tiny-bert.gguf", options);
  REQUIRE(encoder);
  return *encoder;
}

TEST_CASE("a canary has the same value with any number of threads, in any load, beside live sequences") {
  for (const kernels::KernelTable* table : variants_to_try()) {
    INFO(table->name);
    const std::string kernels(table->name);
    const auto model = load_model(kTales, kernels);
    const std::uint64_t alone = canary_of(*model, 1);
    CHECK(alone != 0);
    CHECK(canary_of(*model, 3) == alone);
    CHECK(canary_of(*load_model(kTales, kernels)) == alone);
    // Between its passes another sequence takes steps, whose answer stays the same.
    engine::Team team(2);
    engine::Executor executor(*model, team);
    const auto tokens = random_tokens(6, model->info().vocab_size, 7);
    const std::vector<float> expected = SequenceRunner(executor, 1, tokens, {0}).run(1);
    SequenceRunner beside(executor, 2, tokens, {1});
    const auto canary = make_canary(*model);
    engine::StepResult result;
    std::vector<float> logits;
    bool complete = false;
    while (beside.left() != 0) {
      executor.step({.items = {beside.next(1)}}, result);
      logits.insert(logits.end(), result.items[0].logits.begin(), result.items[0].logits.end());
      if (!complete) complete = canary->advance(team);
    }
    CHECK(complete);
    CHECK(canary->value() == alone);
    CHECK(logits == expected);
  }
}

TEST_CASE("a canary runs the kernels of prompts and then those of single rows") {
  const auto model = load_model(kTales, "");
  engine::Team team(1);
  const auto canary = make_canary(*model);
  std::uint32_t passes = 1;
  while (!canary->advance(team)) ++passes;
  CHECK(passes == 1 + engine::kCanarySteps);
}

TEST_CASE("every family has a canary, also with recurrent states, windows and int8 K and V") {
  std::size_t num_models = 0;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.path().extension() != ".gguf") continue;
    INFO(entry.path().string());
    ++num_models;
    for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::i8}) {
      const auto model = load_model(entry.path(), "", type);
      CHECK(canary_of(*model, 1) == canary_of(*model, 2));
    }
  }
  CHECK(num_models > 50);
}

TEST_CASE("a context of fewer tokens than a canary has takes a shorter one") {
  for (const std::uint32_t context : {1u, 2u, 5u, 19u}) {
    INFO(context);
    const auto model = load_model(kTales, "", kernels::KvType::f32, 0, context);
    CHECK(canary_of(*model, 1) == canary_of(*model, 2));
  }
}

TEST_CASE("an encoder's canary is that of a vector") {
  const std::uint64_t value = canary_of(*load_bert(), 1);
  CHECK(value != 0);
  CHECK(canary_of(*load_bert(), 2) == value);
}

// Kernels of which one computes one wrong bit, in one of its many calls, once they are told to.
std::atomic<bool> one_bit_is_wrong = false;
std::atomic<std::size_t> calls_of_norm = 0;
kernels::RmsNorm* right_norm = nullptr;

void sometimes_wrong_norm(const float* x, const float* weight, float* out, std::size_t dim, float epsilon) {
  right_norm(x, weight, out, dim, epsilon);
  if (!one_bit_is_wrong || calls_of_norm++ != 5) return;
  std::uint32_t bits = 0;
  std::memcpy(&bits, out + dim / 2, sizeof bits);
  bits ^= 1u << 22;  // the largest bit of the mantissa
  std::memcpy(out + dim / 2, &bits, sizeof bits);
}

TEST_CASE("a kernel that computes one wrong bit once is found by the canary") {
  static kernels::KernelTable table = kernels::best_table();
  right_norm = table.rms_norm;
  table.name = "one_wrong_bit";
  table.rms_norm = sometimes_wrong_norm;
  REQUIRE(kernels::register_table(table));
  const auto model = load_model(kTales, "one_wrong_bit");
  const std::uint64_t right = canary_of(*model, 1);
  CHECK(canary_of(*model, 1) == right);
  one_bit_is_wrong = true;
  calls_of_norm = 0;
  CHECK(canary_of(*model, 1) != right);
  CHECK(calls_of_norm > 5);
  one_bit_is_wrong = false;
  CHECK(canary_of(*model, 1) == right);
}

TEST_CASE("values of canaries are kept by numerics id, and replaced") {
  const TempFolder folder;
  const fs::path path = folder.path("state/canaries.json");  // the folder is made
  CHECK_FALSE(*find_canary(path, "8-avx2-f16-1"));
  REQUIRE(keep_canary(path, "8-avx2-f16-1", {0x0123456789abcdef, 1'700'000'000}));
  REQUIRE(keep_canary(path, "8-avx2-f16-2", {2, 1'700'000'001}));
  const auto first = find_canary(path, "8-avx2-f16-1");
  REQUIRE((first && *first));
  CHECK((*first)->value == 0x0123456789abcdef);
  CHECK((*first)->since == 1'700'000'000);
  REQUIRE(keep_canary(path, "8-avx2-f16-1", {3, 1'700'000'002}));
  CHECK((*find_canary(path, "8-avx2-f16-1"))->value == 3);
  CHECK((*find_canary(path, "8-avx2-f16-2"))->value == 2);
  CHECK_FALSE(*find_canary(path, "8-avx2-f16-3"));
}

TEST_CASE("a file of canaries stays small: the oldest ones go") {
  const TempFolder folder;
  const fs::path path = folder.path("canaries.json");
  for (std::size_t i = 0; i < engine::kMaxKeptCanaries + 3; ++i)
    REQUIRE(keep_canary(path, "8-avx512vnni-f16-00000000" + std::to_string(10000000 + i) + "-s512", {i, 0}));
  CHECK_FALSE(*find_canary(path, "8-avx512vnni-f16-0000000010000002-s512"));
  CHECK(*find_canary(path, "8-avx512vnni-f16-0000000010000003-s512"));
  CHECK(fs::file_size(path) <= engine::kMaxCanaryFileBytes);
}

TEST_CASE("a damaged file of canaries is an error, and is replaced by what is kept next") {
  const TempFolder folder;
  const fs::path path = folder.path("canaries.json");
  REQUIRE(keep_canary(path, "id", {7, 8}));
  std::ifstream in(path);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  for (const std::string& bad :
       {std::string(), std::string("{"), good.substr(0, good.size() / 2), std::string("[]"),
        std::string(R"({"version":2,"canaries":[]})"), std::string(R"({"version":1,"canaries":{}})"),
        std::string(R"({"version":1,"canaries":[1]})"),
        std::string(R"({"version":1,"canaries":[{"numerics_id":"id","value":"7","since":8}]})"),
        std::string(R"({"version":1,"canaries":[{"numerics_id":"id","value":"000000000000000g","since":8}]})"),
        std::string(
            R"({"version":1,"canaries":[{"numerics_id":"id","value":"0000000000000007","since":67767976233529199}]})"),
        std::string(engine::kMaxCanaryFileBytes, ' ')}) {
    INFO(bad.substr(0, 80));
    std::ofstream(path, std::ios::trunc) << bad;
    CHECK(find_canary(path, "id").error().code == ErrorCode::bad_model);
    REQUIRE(keep_canary(path, "id", {9, 10}));
    CHECK((*find_canary(path, "id"))->value == 9);
  }
}

TEST_CASE("a file of canaries that cannot be read stays as it is") {
  const TempFolder folder;
  const fs::path path = folder.path("canaries.json");
  const std::string large(engine::kMaxCanaryFileBytes + 1, ' ');
  std::ofstream(path) << large;
  CHECK(find_canary(path, "id").error().code == ErrorCode::io);
  CHECK(keep_canary(path, "id", {9, 10}).error().code == ErrorCode::io);
  CHECK(fs::file_size(path) == large.size());
  fs::remove(path);
  fs::create_directory(path);
  CHECK(find_canary(path, "id").error().code == ErrorCode::io);
  CHECK(keep_canary(path, "id", {9, 10}).error().code == ErrorCode::io);
  CHECK(fs::is_directory(path));
  // Nor what a link leads to, or a pipe; a link in the place of the temporary file is not written through.
  fs::remove(path);
  const fs::path elsewhere = folder.write("elsewhere", "kept");
  fs::create_symlink(elsewhere, path);
  CHECK(find_canary(path, "id").error().code == ErrorCode::io);
  CHECK(keep_canary(path, "id", {9, 10}).error().message.find("no plain file") != std::string::npos);
  CHECK(fs::is_symlink(path));
  CHECK_FALSE(engine::replace_file(path, "text"));
  CHECK(fs::is_symlink(path));
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(find_canary(path, "id").error().code == ErrorCode::io);
  CHECK(keep_canary(path, "id", {9, 10}).error().code == ErrorCode::io);
  CHECK(fs::is_fifo(path));
  fs::remove(path);
  fs::create_symlink(elsewhere, path.string() + "." + std::to_string(::getpid()));
  REQUIRE(keep_canary(path, "id", {9, 10}));
  CHECK(fs::file_size(elsewhere) == 4);
  // Without descriptors it cannot be opened, and what is in it counts.
  fs::remove(path);
  REQUIRE(keep_canary(path, "id", {7, 8}));
  {
    std::vector<FileDescriptor> all;
    for (;;) {
      FileDescriptor each(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (each.get() < 0) break;
      all.push_back(std::move(each));
    }
    CHECK(find_canary(path, "id").error().code == ErrorCode::io);
    CHECK(keep_canary(path, "id", {9, 10}).error().code == ErrorCode::io);
  }
  CHECK((*find_canary(path, "id"))->value == 7);
}

TEST_CASE("the value of a canary depends on what is in the numerics id and on its tokens alone") {
  const std::uint64_t value = canary_of(*load_model(kTales, "", kernels::KvType::f16));
  for (const std::uint32_t context : {20u, 32u, 100u, 512u}) {
    for (const std::uint32_t num_blocks : {0u, 64u}) {
      INFO(context << " " << num_blocks);
      CHECK(canary_of(*load_model(kTales, "", kernels::KvType::f16, num_blocks, context)) == value);
    }
  }
  const auto whole = load_model(kTales, "", kernels::KvType::f16),
             part = load_model(kTales, "", kernels::KvType::f16, 0, 8),
             other = load_model(kTales, "", kernels::KvType::i8);
  CHECK(make_canary(*whole)->key() == whole->numerics_id());
  // A shorter one has another value, and another name.
  CHECK(part->numerics_id() == whole->numerics_id());
  CHECK(canary_of(*part) != value);
  CHECK(make_canary(*part)->key() == whole->numerics_id() + "/8");
  CHECK(make_canary(*other)->key() != make_canary(*whole)->key());
}

}  // namespace
}  // namespace troupe::test
