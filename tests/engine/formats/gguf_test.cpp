// A model file from the outside world: every mistake in it is an error that names it, never a crash.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/engine.h"
#include "engine/formats/metadata.h"
#include "engine/formats/model_file.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::open_gguf;

std::string number(std::uint64_t value, std::size_t bytes) { return GgufWriter::number(value, bytes); }

// The message of the error that these bytes give; also checks that it names the file.
std::string refusal(const std::string& bytes, ErrorCode code = ErrorCode::bad_model) {
  const TemporaryFile file(bytes);
  const auto opened = open_gguf(file.path());
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == code);
  CHECK(opened.error().message.starts_with(file.path()));
  return opened.error().message;
}

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) UNSCOPED_INFO("message: " << text);
  return found;
}

bool holds(const engine::ModelFile& file, const std::string& key, const engine::MetadataValue& value) {
  const engine::MetadataValue* const found = file.find(key);
  return found && *found == value;
}

TEST_CASE("a good file's metadata and tensors can be looked up") {
  GgufWriter w;
  w.add("general.architecture", "llama");
  w.add("some.count", 7u);
  w.add("some.ratio", 0.5f);
  w.add_raw("some.flag", 7, number(1, 1));
  w.add_raw("some.small", 1, number(0xfe, 1));         // int8 -2
  w.add_raw("some.large", 10, number(1ull << 40, 8));  // uint64
  w.add_raw("some.names", 9, number(8, 4) + number(2, 8) + GgufWriter::text("a") + GgufWriter::text("bc"));
  w.add_raw("some.numbers", 9, number(5, 4) + number(2, 8) + number(3, 4) + number(0xffffffff, 4));
  w.add_floats("matrix", {4, 3}, 1);
  w.add_floats("vector", {5}, 2);
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  REQUIRE(opened);
  const engine::ModelFile& model = **opened;
  CHECK(model.path() == file.path());
  CHECK(model.file_bytes() == w.bytes().size());
  CHECK(holds(model, "general.architecture", std::string("llama")));
  CHECK(holds(model, "some.count", std::int64_t{7}));
  CHECK(holds(model, "some.ratio", 0.5));
  CHECK(holds(model, "some.flag", true));
  CHECK(holds(model, "some.small", std::int64_t{-2}));
  CHECK(holds(model, "some.large", std::int64_t{1} << 40));
  CHECK(holds(model, "some.names", std::vector<std::string>{"a", "bc"}));
  CHECK(holds(model, "some.numbers", std::vector<std::int64_t>{3, -1}));
  CHECK(model.find("absent") == nullptr);
  REQUIRE(model.tensors().size() == 2);
  const engine::TensorInfo* matrix = model.find_tensor("matrix");
  REQUIRE(matrix != nullptr);
  CHECK(matrix->columns() == 4);
  CHECK(matrix->rows() == 3);
  CHECK(matrix->bytes.size() == 48);
  CHECK(model.find_tensor("vector")->rows() == 1);
  CHECK(model.find_tensor("absent") == nullptr);
}

TEST_CASE("the error of a file that cannot be opened names the reason") {
  const auto missing = open_gguf("/nonexistent/model.gguf");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::model_missing);
  const auto folder = open_gguf("/tmp");
  REQUIRE_FALSE(folder);
  CHECK(folder.error().code == ErrorCode::bad_model);
  CHECK(has(refusal(""), "is empty"));
}

TEST_CASE("a file of another kind or version is refused by name") {
  CHECK(has(refusal("GG"), "is not a GGUF file"));
  CHECK(has(refusal("ggjt" + std::string(40, '\0')), "begins with 'ggjt'"));
  GgufWriter w;
  w.version = 1;
  CHECK(has(refusal(w.bytes(), ErrorCode::unsupported), "version 1; versions 2 and 3"));
  w.version = 4;
  CHECK(has(refusal(w.bytes(), ErrorCode::unsupported), "version 4"));
  w.version = 0x03000000;
  CHECK(has(refusal(w.bytes(), ErrorCode::unsupported), "big-endian"));
  w.version = 2;
  CHECK(open_gguf(TemporaryFile(w.bytes()).path()));
}

TEST_CASE("counts and lengths beyond the limits are refused before anything is allocated") {
  const std::string head = "GGUF" + number(3, 4);
  CHECK(has(refusal(head + number(1ull << 60, 8) + number(0, 8)), "tensors; at most 65536"));
  CHECK(has(refusal(head + number(0, 8) + number(1ull << 60, 8)), "metadata entries; at most 65536"));
  CHECK(has(refusal(head + number(0, 8) + number(1, 8) + number(1ull << 62, 8)), "a metadata key is"));
  CHECK(has(refusal(head + number(0, 8) + number(1, 8) + number(100, 8)), "the file ends after"));
  GgufWriter w;
  w.add_raw("k", 9, number(4, 4) + number(1ull << 61, 8));
  CHECK(has(refusal(w.bytes()), "does not fit"));
  w = {};
  w.add_raw("k", 9, number(8, 4) + number(1000000, 8));
  CHECK(has(refusal(w.bytes()), "does not fit"));
  w = {};
  w.add_raw("k", 8, number(1ull << 40, 8));
  CHECK(has(refusal(w.bytes()), "'k'"));
}

// Whether the key is there and its value was not kept.
bool is_skipped(const engine::ModelFile& file, const std::string& key) {
  const engine::MetadataValue* const value = file.find(key);
  return value && std::holds_alternative<engine::SkippedValue>(*value);
}

TEST_CASE("the memory of all metadata together is limited, even if each entry is within its limit") {
  GgufWriter w;
  // Each array is within the limit of one; in memory it has eight times its bytes.
  const std::string bytes(12u << 20, '\1');
  for (int i = 0; i < 3; ++i)
    w.add_raw("array." + std::to_string(i), 9, number(0, 4) + number(bytes.size(), 8) + bytes);
  w.add("behind", 7u);
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  REQUIRE(opened);
  CHECK(std::get<std::vector<std::int64_t>>(*(*opened)->find("array.1")).size() == bytes.size());
  CHECK(is_skipped(**opened, "array.2"));
  CHECK(holds(**opened, "behind", std::int64_t{7}));
}

TEST_CASE("keys of any kind and size that nothing needs are no reason to refuse a file") {
  const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& elements) {
    return number(type, 4) + number(count, 8) + elements;
  };
  const std::string large(17u << 20, 'x');
  GgufWriter w;
  w.add_raw("nested", 9, array(9, 2, array(4, 1, number(3, 4)) + array(8, 1, GgufWriter::text("a"))));
  w.add_raw("text", 8, GgufWriter::text(large));
  w.add_raw("texts", 9, array(8, 2, GgufWriter::text("a") + GgufWriter::text(large)));
  w.add_raw("bytes", 9, array(0, large.size(), large));
  w.add("behind", 7u);
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  if (!opened) FAIL(opened.error().message);
  for (const char* key : {"nested", "text", "texts", "bytes"}) CHECK(is_skipped(**opened, key));
  CHECK(holds(**opened, "behind", std::int64_t{7}));
  // One that is needed is refused by name.
  engine::Metadata keys(**opened, "some");
  CHECK_FALSE(keys.failed());
  GgufWriter needed;
  needed.add_raw("some.count", 9, array(9, 1, array(4, 1, number(3, 4))));
  const TemporaryFile other(needed.bytes());
  const auto with_count = open_gguf(other.path());
  REQUIRE(with_count);
  engine::Metadata some(**with_count, "some");
  CHECK_FALSE(some.integer("count"));
  REQUIRE(some.failed());
  CHECK(has(some.error().message, "'some.count' is an array of 1 arrays"));
  // Damaged ones are found, as they have no end that could be passed over.
  GgufWriter deep;
  std::string value = array(4, 0, "");
  for (int i = 0; i < 12; ++i) value = array(9, 1, value);
  deep.add_raw("deep", 9, value);
  CHECK(has(refusal(deep.bytes()), "more than 8 deep"));
  GgufWriter cut;
  cut.add_raw("cut", 9, array(9, 2, array(4, 1, number(3, 4)) + array(4, 1ull << 40, "")));
  CHECK(has(refusal(cut.bytes()), "does not fit"));
}

TEST_CASE("a tensor without elements is as if it were not there") {
  GgufWriter w;
  w.add_floats("some", {4}, 1);
  w.add_tensor_at("none", {4, 0}, 0, 0);
  w.add_tensor_at("odd", {5, 0}, 8, 0);
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  if (!opened) FAIL(opened.error().message);
  CHECK((*opened)->tensors().size() == 1);
  CHECK((*opened)->find_tensor("none") == nullptr);
}

TEST_CASE("a uint64 that int64 has not is a float, and no reason to refuse a file") {
  GgufWriter w;
  w.add_raw("some.hash", 10, number(1ull << 63, 8));
  w.add_raw("some.hashes", 9, number(10, 4) + number(2, 8) + number(1, 8) + number(0xFFFFFFFFFFFFFFFF, 8));
  w.add_raw("some.small", 9, number(10, 4) + number(1, 8) + number(7, 8));
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  REQUIRE(opened);
  CHECK(holds(**opened, "some.hash", 9223372036854775808.0));
  CHECK(holds(**opened, "some.hashes", std::vector<double>{1.0, 18446744073709551616.0}));
  CHECK(holds(**opened, "some.small", std::vector<std::int64_t>{7}));
}

TEST_CASE("invalid values are refused") {
  GgufWriter w;
  w.add_raw("k", 99, "");
  CHECK(has(refusal(w.bytes()), "metadata type 99"));
  w = {};
  w.add_raw("k", 7, number(2, 1));
  CHECK(has(refusal(w.bytes()), "must be 0 or 1"));
  w = {};
  w.add("twice", 1u);
  w.add("twice", 2u);
  CHECK(has(refusal(w.bytes()), "two metadata entries named 'twice'"));
  w = {};
  w.add("", 1u);
  CHECK(has(refusal(w.bytes()), "empty key"));
  for (const std::uint32_t alignment : {0u, 3u, 1u << 30}) {
    w = {};
    w.add("general.alignment", alignment);
    CHECK(has(refusal(w.bytes()), "power of two"));
  }
}

TEST_CASE("tensors that do not fit their file, their type or each other are refused") {
  const std::string data(64, '\0');
  const auto one = [&](std::vector<std::uint64_t> shape, std::uint32_t type, std::uint64_t offset) {
    GgufWriter w;
    w.add_tensor("first", {16}, 0, data);
    w.add_tensor_at("blk.0.wrong", std::move(shape), type, offset);
    return w.bytes();
  };
  CHECK(has(refusal(one({}, 0, 64)), "has 0 dimensions"));
  CHECK(has(refusal(one({1, 1, 1, 1, 1}, 0, 64)), "has 5 dimensions"));
  CHECK(has(refusal(one({1ull << 40, 1ull << 40}, 0, 64)), "larger than any file"));
  CHECK(has(refusal(one({33, 2}, 8, 64)), "not a multiple of Q8_0's group of 32"));
  CHECK(has(refusal(one({4}, 0, 3)), "not a multiple of 32"));
  CHECK(has(refusal(one({4}, 0, 64)), "the file has 64"));
  CHECK(has(refusal(one({4}, 0, 0xffffffffffffffe0u)), "is the download complete?"));
  CHECK(has(refusal(one({4}, 0, 32)), "lie over each other"));
  CHECK(has(refusal(one({4}, 77, 64), ErrorCode::unsupported), "weight type 77"));
  GgufWriter w;
  w.add_tensor("same", {16}, 0, data);
  w.add_tensor("same", {16}, 0, data);
  CHECK(has(refusal(w.bytes()), "two tensors named 'same'"));
}

// I2_S: 128 weights in 32 bytes, and behind the last of a tensor 32 bytes that begin with its scale.
TEST_CASE("a tensor's single scale is read from the bytes after its weights, and both must be in the file") {
  const auto tail = [](float scale) {
    std::string bytes(32, '\x7f');
    std::memcpy(bytes.data(), &scale, sizeof scale);
    return bytes;
  };
  const std::string codes(2 * 3 * 32, '\x55');
  const auto one = [&](const std::string& bytes) {
    GgufWriter w;
    w.add_tensor("blk.0.ternary", {256, 3}, 36, bytes);
    return w.bytes();
  };
  const std::string good = one(codes + tail(-0.3f));
  const TemporaryFile file(good);
  const auto opened = open_gguf(file.path());
  REQUIRE(opened);
  const engine::TensorInfo& tensor = *(*opened)->find_tensor("blk.0.ternary");
  CHECK(tensor.scale == -0.3f);
  CHECK(tensor.bytes.size() == codes.size());
  for (std::size_t missing = 1; missing <= 32; ++missing) {
    INFO("without the last " << missing);
    CHECK(has(refusal(good.substr(0, good.size() - missing)), "is the download complete?"));
  }
  CHECK(has(refusal(one(codes + tail(std::numeric_limits<float>::infinity()))), "'blk.0.ternary' has a scale that"));
  CHECK(has(refusal(one(codes + tail(std::numeric_limits<float>::quiet_NaN()))), "not finite"));
  const auto with_shape = [&](std::vector<std::uint64_t> shape, std::uint64_t offset) {
    GgufWriter w;
    w.add_tensor("first", {128}, 36, codes.substr(0, 32) + tail(1.0f));
    w.add_tensor_at("blk.0.second", std::move(shape), 36, offset);
    return w.bytes() + codes;
  };
  CHECK(open_gguf(TemporaryFile(with_shape({128, 2}, 64)).path()));
  CHECK(has(refusal(with_shape({128}, 32)), "lie over each other"));  // the second on the first one's tail
  CHECK(has(refusal(with_shape({64, 2}, 64)), "not a multiple of I2_S's group of 128"));
  CHECK(has(refusal(with_shape({128, 1ull << 57, 1ull << 57}, 64)), "larger than any file"));
  CHECK(has(refusal(with_shape({128, (1ull << 57) - 1}, 64)), "is the download complete?"));
}

TEST_CASE("tensors that no model computes with may be of any type and size, and are then only named") {
  GgufWriter w;
  w.add("general.architecture", "llama");
  w.add("llama.block_count", 2u);
  w.add_tensor("blk.1.read", {16}, 0, std::string(64, '\0'));
  w.add_tensor("mm.read", {16}, 0, std::string(64, '\0'));
  const std::vector<std::string> unread = {"mm.type", "blk.2.size", "v.rows", "a.scale", "mm.offset", "mm.end"};
  w.add_tensor("mm.type", {16}, 77, std::string(64, '\0'));
  w.add_tensor_at("blk.2.size", {1ull << 40, 1ull << 40}, 0, 128);
  w.add_tensor_at("v.rows", {33, 2}, 8, 128);
  w.add_tensor("a.scale", {128}, 36, std::string(32, '\0') + std::string(32, '\xff'));
  w.add_tensor_at("mm.offset", {4}, 0, 3);
  w.add_tensor_at("mm.end", {1u << 20}, 0, 0);
  const TemporaryFile file(w.bytes());
  const auto opened = open_gguf(file.path());
  if (!opened) FAIL(opened.error().message);
  CHECK((*opened)->tensors().size() == 2);
  auto found = (*opened)->unread_tensors(), wanted = unread;
  std::sort(found.begin(), found.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(found == wanted);
}

TEST_CASE("names from a file are printed without control characters and not at full length") {
  GgufWriter w;
  w.add_tensor_at("blk.0.evil\x1b[2J\n" + std::string(200, 'x'), {4}, 0, 3);
  const std::string message = refusal(w.bytes());
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.size() < 300);
}

TEST_CASE("the content hash follows metadata, directory and size") {
  const auto hash = [](const GgufWriter& w) {
    const TemporaryFile file(w.bytes());
    return (*open_gguf(file.path()))->content_hash();
  };
  const GgufWriter w = TinyLlama{}.writer();
  CHECK(hash(w) == hash(TinyLlama{}.writer()));
  CHECK(hash(w) != hash(TinyLlama{.context = 65}.writer()));
}

TEST_CASE("a file cut off at any byte of its header is an error") {
  const GgufWriter w = TinyLlama{}.writer();
  const std::string bytes = w.bytes();
  const TemporaryFile file(bytes);
  CHECK(open_gguf(file.path()));
  for (std::size_t length = 1; length <= w.header_bytes(); ++length) {
    file.write(std::string_view(bytes).substr(0, length));
    const auto opened = open_gguf(file.path());
    if (opened) FAIL("cut off at " << length);
  }
  file.write(std::string_view(bytes).substr(0, bytes.size() - 1));
  CHECK_FALSE(open_gguf(file.path()));
}

// Seeded damage of all kinds, through the whole loader: an error or a valid model, nothing else.
TEST_CASE("each of thousands of damaged files is an error or a valid model") {
  const GgufWriter w = TinyLlama{}.writer();
  const std::string bytes = w.bytes();
  const TemporaryFile file(bytes);
  engine::Team team(1);
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.memory = 64u << 20;
  options.team = &team;
  REQUIRE(engine::LoadedModel::load(file.path(), options));
  constexpr std::uint64_t kInteresting[] = {0,          1,          2,          0x7f,       0xff,       0xffff,
                                            0x7fffffff, 0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull};
  std::mt19937_64 random(20);
  const int kMutations = kSanitized ? 2000 : 6000;
  int num_loaded = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::string damaged = bytes;
    const std::size_t at = random() % w.header_bytes();
    switch (random() % 4) {
      case 0:
        damaged[at] = static_cast<char>(random());
        break;
      case 1:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        break;
      case 2: {  // a whole field becomes a number that overflows something
        const std::size_t width = std::size_t{1} << (random() % 4);
        const std::string value = number(kInteresting[random() % std::size(kInteresting)], width);
        damaged.replace(at, std::min(width, damaged.size() - at), value);
        break;
      }
      default:
        damaged.erase(at, random() % 16 + 1);
        break;
    }
    file.write(damaged);
    const auto model = engine::LoadedModel::load(file.path(), options);
    if (model) {
      ++num_loaded;
    } else if (model.error().message.empty()) {
      FAIL("an error without a message at mutation " << i);
    }
  }
  // Damage to the bits of epsilon or of the context cannot be detected.
  CHECK(num_loaded > 0);
  CHECK(num_loaded < kMutations / 2);
}

}  // namespace
}  // namespace troupe::test
