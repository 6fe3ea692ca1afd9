// Encoders: small ones of random weights whose vectors llama.cpp computed (tools/make_encoder_fixture.py).
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/encoder.h"
#include "tests/engine/gguf_copy.h"
#include "tests/support/variants.h"

namespace troupe::engine {
namespace {

using Texts = std::vector<std::vector<TokenId>>;

constexpr std::array kFamilies = {"bert", "nomic-bert"};

std::string model_path(const std::string& family) { return TROUPE_TEST_DATA "/tiny-" + family + ".gguf"; }
nlohmann::json expectations(const std::string& family) {
  return nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/tiny-" + family + ".json"));
}

std::shared_ptr<const Encoder> load(const std::string& family, const std::string& kernels = {},
                                    kernels::KvType kv_type = kernels::KvType::f16) {
  LoadOptions options;
  options.kernels = kernels;
  options.kv_type = kv_type;
  const auto encoder = Encoder::load(model_path(family), options);
  if (!encoder) FAIL(encoder.error().message);
  return *encoder;
}

std::vector<float> encode(const Encoder& encoder, Team& team, const Texts& texts, PoolingOptions pooling = {}) {
  std::vector<std::span<const TokenId>> spans(texts.begin(), texts.end());
  // NaN, so that an element that is not written is found.
  std::vector<float> rows(texts.size() * encoder.info().dim, std::nanf(""));
  Workspace workspace;
  const auto kv = workspace.take<std::byte>(Workspace::Slot::encoder_kv, std::size_t{1} << 20);
  std::fill(kv.begin(), kv.end(), std::byte{0xFF});  // NaN, as another model's numbers may be
  encoder.encode(team, spans, pooling, workspace, rows.data());
  return rows;
}

double cosine(std::span<const float> a, const std::vector<float>& b) {
  double product = 0, left = 0, right = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    product += double{a[i]} * b[i];
    left += double{a[i]} * a[i];
    right += double{b[i]} * b[i];
  }
  return product / std::sqrt(left * right);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// An error of this code that mentions this.
void require_error(const std::string& path, const LoadOptions& options, ErrorCode code, const std::string& mention) {
  const auto encoder = Encoder::load(path, options);
  REQUIRE_FALSE(encoder);
  INFO(encoder.error().message);
  REQUIRE(encoder.error().code == code);
  REQUIRE(encoder.error().message.find(mention) != std::string::npos);
}

}  // namespace

TEST_CASE("WordPiece gives the ids that the reference gives") {
  for (const std::string family : kFamilies) {
    const auto encoder = load(family);
    const auto expected = expectations(family);
    REQUIRE(expected.at("texts").size() == 5);
    for (std::size_t i = 0; i < expected.at("texts").size(); ++i) {
      const std::string text = expected.at("texts")[i];
      INFO(family << ": " << text);
      REQUIRE(encoder->tokenizer()->encode(text, {}) == expected.at("ids")[i].get<std::vector<TokenId>>());
    }
  }
}

TEST_CASE("vectors of every variant, KV type and pooling are the reference's") {
  for (const std::string family : kFamilies) {
    const auto expected = expectations(family);
    const auto ids = expected.at("ids").get<Texts>();
    for (const kernels::KernelTable* table : test::variants_here()) {
      for (const auto kv_type : {kernels::KvType::f32, kernels::KvType::f16, kernels::KvType::i8}) {
        const auto encoder = load(family, std::string(table->name), kv_type);
        Team team(2);
        for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
          const auto rows = encode(*encoder, team, ids, {pooling, true});
          const auto& vectors = expected.at("vectors").at(std::string(name(pooling)));
          for (std::size_t i = 0; i < ids.size(); ++i) {
            const auto row = std::span(rows).subspan(i * encoder->info().dim, encoder->info().dim);
            INFO(family << ", " << table->name << ", " << kernels::name(kv_type) << ", " << name(pooling) << ", text "
                        << i);
            // int8 K and V are one of 255 steps of the largest; not used by encoders, but the same code.
            REQUIRE(cosine(row, vectors[i].get<std::vector<float>>()) >=
                    (kv_type == kernels::KvType::i8 ? 0.999 : 0.9999));
            REQUIRE(cosine(row, {row.begin(), row.end()}) == Approx(1));
            double squares = 0;
            for (const float x : row) squares += double{x} * x;
            REQUIRE(squares == Approx(1).epsilon(1e-5));
          }
        }
      }
    }
  }
}

TEST_CASE("a text's vector is the same bits beside any other texts and with any number of threads") {
  for (const std::string family : kFamilies) {
    const auto ids = expectations(family).at("ids").get<Texts>();
    for (const kernels::KernelTable* table : test::variants_here()) {
      const auto encoder = load(family, std::string(table->name));
      const std::size_t dim = encoder->info().dim;
      Team one(1);
      std::vector<float> alone;
      for (const auto& text : ids) {
        const auto row = encode(*encoder, one, {text});
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const std::uint32_t threads : {1u, 2u, 3u, 5u}) {
        Team team(threads);
        INFO(family << ", " << table->name << ", " << threads << " threads");
        REQUIRE(same_bits(encode(*encoder, team, ids), alone));
        // Many other texts before each, so that it begins at every row of a tile, and in several passes.
        Texts crowd;
        std::vector<std::size_t> ours;
        for (std::size_t i = 0; i < 5 * ids.size(); ++i) {
          crowd.push_back(std::vector<TokenId>(1 + i * 7 % 23, static_cast<TokenId>(5 + i)));
          ours.push_back(crowd.size());
          crowd.push_back(ids[i % ids.size()]);
        }
        const auto rows = encode(*encoder, team, crowd);
        for (std::size_t i = 0; i < ours.size(); ++i) {
          REQUIRE(same_bits(std::span(rows).subspan(ours[i] * dim, dim),
                            std::span(alone).subspan(i % ids.size() * dim, dim)));
        }
      }
    }
  }
}

TEST_CASE("every token attends to the whole text: the first row depends on the last token") {
  const auto encoder = load("bert");
  Team team(1);
  for (const std::size_t length : {2, 31, 32, 33, 256, 257, 320}) {
    std::vector<TokenId> text(length, 7);
    const auto before = encode(*encoder, team, {text}, {Pooling::cls, true});
    text.back() = 8;
    const auto after = encode(*encoder, team, {text}, {Pooling::cls, true});
    INFO(length);
    REQUIRE_FALSE(same_bits(before, after));
  }
}

TEST_CASE("pooling: mean of all rows, the first, the last; normalised or not") {
  const std::vector<float> hidden = {3, 0, 1, 4, 2, 8};
  const auto pool = [&](Pooling pooling, bool normalise) {
    std::vector<float> out(2);
    pool_rows(hidden.data(), 3, 2, {pooling, normalise}, out.data());
    return out;
  };
  REQUIRE(pool(Pooling::mean, false) == std::vector<float>{2, 4});
  REQUIRE(pool(Pooling::cls, false) == std::vector<float>{3, 0});
  REQUIRE(pool(Pooling::last, false) == std::vector<float>{2, 8});
  REQUIRE(pool(Pooling::cls, true) == std::vector<float>{1, 0});
  REQUIRE(pool(Pooling::last, true)[0] == Approx(2 / std::sqrt(68.0)));
  const std::vector<float> zeros(4);
  std::vector<float> out(2, 5);
  pool_rows(zeros.data(), 2, 2, {Pooling::mean, true}, out.data());
  REQUIRE(out == std::vector<float>{0, 0});
}

TEST_CASE("an encoder is described as in its file, and one that cannot be served is refused by name") {
  const auto encoder = load("bert");
  REQUIRE(encoder->pooling() == Pooling::cls);
  REQUIRE(load("nomic-bert")->pooling() == Pooling::mean);
  REQUIRE(encoder->info().family == "bert");
  REQUIRE(encoder->info().context == 320);
  REQUIRE(encoder->numerics_id().find("f16") != std::string::npos);
  LoadOptions options;
  options.context = 64;
  const auto shorter = Encoder::load(model_path("bert"), options);
  REQUIRE(shorter);
  REQUIRE((*shorter)->info().context == 64);
  options.context = 321;
  require_error(model_path("bert"), options, ErrorCode::invalid_argument, "up to 320 tokens");
  options.context = 0;
  options.memory = 4096;
  require_error(model_path("bert"), options, ErrorCode::out_of_memory, "too small");
  options.memory = 0;
  require_error(TROUPE_MODELS "/tales-draft-q8_0.gguf", options, ErrorCode::unsupported, "no encoder");
  const auto decoder = LoadedModel::load(model_path("bert"), {});
  REQUIRE_FALSE(decoder);
  REQUIRE(decoder.error().code == ErrorCode::unsupported);
}

namespace {

// The fixture with other metadata.
std::string copy_of(const std::string& family, const std::map<std::string, MetadataValue>& changes) {
  const auto file = open_gguf(model_path(family));
  if (!file) FAIL(file.error().message);
  test::GgufWriter out;
  for (const auto& [key, value] : (*file)->metadata())
    if (!changes.contains(key)) std::visit(test::MetadataCopy(out, key), value);
  for (const auto& [key, value] : changes) std::visit(test::MetadataCopy(out, key), value);
  for (const TensorInfo& tensor : (*file)->tensors())
    out.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, test::to_string(tensor.bytes));
  return out.bytes();
}

}  // namespace

TEST_CASE("a bias of K has no effect on an encoder's vectors, however large, with an int8 cache either") {
  const auto file = open_gguf(model_path("bert"));
  REQUIRE(file);
  test::GgufWriter out;
  test::copy_metadata(**file, out);
  std::size_t num_changed = 0;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    std::string bytes = test::to_string(tensor.bytes);
    if (tensor.name.ends_with("attn_k.bias")) {
      std::vector<float> bias(tensor.columns());
      for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = i % 3 == 0 ? 100.0f : -70.0f;
      bytes.assign(reinterpret_cast<const char*>(bias.data()), bias.size() * sizeof(float));
      ++num_changed;
    }
    out.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, bytes);
  }
  REQUIRE(num_changed > 0);
  const test::TemporaryFile changed(out.bytes());
  const auto expected = expectations("bert");
  const auto ids = expected.at("ids").get<Texts>();
  Team team(2);
  for (const kernels::KernelTable* table : test::variants_here()) {
    LoadOptions options;
    options.kernels = std::string(table->name);
    options.kv_type = kernels::KvType::i8;
    const auto encoder = Encoder::load(changed.path(), options);
    if (!encoder) FAIL(encoder.error().message);
    const std::size_t dim = (*encoder)->info().dim;
    const auto rows = encode(**encoder, team, ids, {Pooling::mean, true});
    for (std::size_t i = 0; i < ids.size(); ++i) {
      INFO(table->name << ", text " << i);
      REQUIRE(cosine(std::span(rows).subspan(i * dim, dim),
                     expected.at("vectors").at("mean")[i].get<std::vector<float>>()) >= 0.999);
    }
  }
}

TEST_CASE("an encoder reads 8,192 tokens at most, whatever its file claims") {
  const test::TemporaryFile file(copy_of("nomic-bert", {{"nomic-bert.context_length", std::int64_t{1} << 20}}));
  LoadOptions options;
  const auto encoder = Encoder::load(file.path(), options);
  REQUIRE(encoder);
  CHECK((*encoder)->info().trained_context == 1u << 20);
  CHECK((*encoder)->max_tokens() == 8192);
  options.context = 8193;
  require_error(file.path(), options, ErrorCode::invalid_argument, "up to 8192 tokens; use no -c, or a smaller one");
  options.context = 8192;
  CHECK(Encoder::load(file.path(), options));
}

TEST_CASE("an encoder with scaled positions or partly rotated heads is refused") {
  const auto refused = [](const std::string& key, const MetadataValue& value, const std::string& mention) {
    const test::TemporaryFile file(copy_of("nomic-bert", {{"nomic-bert." + key, value}}));
    require_error(file.path(), {}, ErrorCode::unsupported, "'nomic-bert." + key + "' is " + mention);
  };
  refused("rope.dimension_count", 16, "16, which is not supported");
  refused("rope.scaling.type", "yarn", "'yarn', which is not supported");
  refused("rope.scaling.factor", 2.0, "2, which is not supported");
  refused("rope.scale_linear", 2.0, "2, which is not supported");
  refused("rope.scaling.attn_factor", 1.5, "1.5, which is not supported");
  refused("attention.causal", true, "true, which is not supported");
  const test::TemporaryFile harmless(copy_of("nomic-bert", {{"nomic-bert.rope.dimension_count", 32},
                                                            {"nomic-bert.rope.scaling.type", "none"},
                                                            {"nomic-bert.rope.scaling.factor", 1.0}}));
  CHECK(Encoder::load(harmless.path(), {}));
}

}  // namespace troupe::engine
