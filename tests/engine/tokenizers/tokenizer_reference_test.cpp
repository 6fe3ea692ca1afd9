// Real vocabularies against the ids that their own tools give.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tokenizers/tokenizer.h"
#include "tests/support/shared_data.h"

namespace troupe::engine {
namespace {

std::shared_ptr<const Tokenizer> load(const std::string& path) {
  const auto file = open_gguf(path);
  if (!file) FAIL(file.error().message);
  const auto tokenizer = make_tokenizer(**file);
  if (!tokenizer) FAIL(tokenizer.error().message);
  REQUIRE(*tokenizer != nullptr);
  return *tokenizer;
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string joined_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.piece(id);
  return text;
}

// The text without the bytes that the vocabulary has no token for: falcon lacks most control
// characters, falcon and starcoder the bytes that no UTF-8 text has. Those vanish, as in llama.cpp.
std::string covered(const Tokenizer& tokenizer, const std::string& text) {
  std::string kept;
  for (const char c : text) {
    const auto ids = tokenizer.encode(std::string_view(&c, 1), {.add_special = false});
    if (!ids.empty()) kept += c;
  }
  return kept;
}

// llama.cpp adds a second BOS to a text that begins with one; here it gets none.
std::vector<TokenId> with_one_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
  if (tokenizer.adds_bos() && ids.size() > 1 && ids[0] == tokenizer.bos() && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

void require_row(const Tokenizer& tokenizer, const nlohmann::json& row) {
  const std::string text = from_hex(row.at("hex"));
  INFO(row.value("note", "") << ": " << text);
  const auto ids = row.at("ids").get<std::vector<TokenId>>();
  REQUIRE(tokenizer.encode(text, {.add_special = false, .parse_special = false}) == ids);
  REQUIRE(tokenizer.encode(text, {.add_special = true, .parse_special = false}) ==
          row.at("ids_add").get<std::vector<TokenId>>());
  REQUIRE(tokenizer.encode(text, {.add_special = false, .parse_special = true}) ==
          row.at("ids_parse").get<std::vector<TokenId>>());
  REQUIRE(tokenizer.encode(text, {.add_special = true, .parse_special = true}) ==
          with_one_bos(tokenizer, row.at("ids_add_parse").get<std::vector<TokenId>>()));
  REQUIRE(joined_pieces(tokenizer, ids) == from_hex(row.at("pieces_hex")));
}

// Lines of JSON; returns how many rows there were. Rows that are no valid UTF-8 are our own choice
// (bytes survive): they are only decoded again.
int require_rows(const Tokenizer& tokenizer, const std::string& path) {
  std::ifstream stream(path);
  int rows = 0;
  for (std::string line; std::getline(stream, line); ++rows) {
    const auto row = nlohmann::json::parse(line);
    if (row.value("valid_utf8", true)) {
      require_row(tokenizer, row);
    } else {
      const std::string text = from_hex(row.at("hex"));
      REQUIRE(tokenizer.decode(tokenizer.encode(text, {})) == covered(tokenizer, text));
    }
  }
  return rows;
}

// Test strings between separator lines, and for each a line of ids.
int require_inp_out(const Tokenizer& tokenizer, const std::string& path) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string inputs = read_text(path + ".inp");
  std::istringstream outputs(read_text(path + ".out"));
  int cases = 0;
  std::size_t begin = 0;
  for (std::string line; std::getline(outputs, line); ++cases) {
    const std::size_t end = inputs.find(separator, begin);
    REQUIRE(end != std::string::npos);
    const std::string text = inputs.substr(begin, end - begin);
    begin = end + separator.size();
    std::istringstream numbers(line);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(numbers), {}};
    INFO("case " << cases << ": " << text);
    REQUIRE(tokenizer.encode(text, {.add_special = false}) == expected);
  }
  return cases;
}

void require_vocabulary(const std::string& name) {
  const auto path = test::shared_file("thirdparty/vocab/ggml-vocab-" + name + ".gguf");
  if (!path) return;
  const auto tokenizer = load(*path);
  CHECK(require_inp_out(*tokenizer, *path) == 46);
  CHECK(require_rows(*tokenizer, *test::shared_file("thirdparty/vocab/" + name + ".tricky.jsonl")) == 40);
}

}  // namespace

TEST_CASE("llama-spm: every reference string gives the expected ids and pieces") { require_vocabulary("llama-spm"); }
TEST_CASE("phi-3: every reference string gives the expected ids and pieces") { require_vocabulary("phi-3"); }
TEST_CASE("gpt-2: every reference string gives the expected ids and pieces") { require_vocabulary("gpt-2"); }
TEST_CASE("falcon: every reference string gives the expected ids and pieces") { require_vocabulary("falcon"); }
TEST_CASE("starcoder: every reference string gives the expected ids and pieces") { require_vocabulary("starcoder"); }

TEST_CASE("stories260K: every reference string gives the expected ids and pieces") {
  const auto path = test::shared_file("thirdparty/stories260k/stories260K.gguf");
  if (!path) return;
  const auto tokenizer = load(*path);
  CHECK(require_rows(*tokenizer, *test::shared_file("thirdparty/stories260k/stories260K.tokens.jsonl")) == 12);
}

TEST_CASE("llama-spm: prompts of llama2.c give the ids its own tests expect") {
  const auto path = test::shared_file("thirdparty/vocab/ggml-vocab-llama-spm.gguf");
  const auto expectations = test::shared_file("thirdparty/stories260k/tokenizer-expectations.json");
  if (!path || !expectations) return;
  const auto tokenizer = load(*path);
  const auto cases = nlohmann::json::parse(read_text(*expectations)).at("cases");
  REQUIRE(cases.size() >= 5);
  for (const auto& row : cases) {
    const std::string text = row.at("text");
    const auto ids = row.at("ids_with_bos").get<std::vector<TokenId>>();
    INFO(text);
    REQUIRE(tokenizer->encode(text, {}) == ids);
    REQUIRE(tokenizer->decode(ids) == text);
  }
}

TEST_CASE("a raw prompt that is written with control tokens has one token for each, and one BOS") {
  const auto ids_of = [](const char* name, std::string_view text, EncodeOptions options) -> std::vector<TokenId> {
    const auto path = test::shared_file(std::string("thirdparty/vocab/ggml-vocab-") + name + ".gguf");
    return path ? load(*path)->encode(text, options) : std::vector<TokenId>{};
  };
  if (!test::shared_file("thirdparty/vocab/ggml-vocab-phi-3.gguf")) return;
  const EncodeOptions raw{.continues = true, .parse_special = true};
  // A template of phi-3 by hand: <s> is 1, <|user|> 32010, <|end|> 32007, <|assistant|> 32001.
  const std::string turn = "<|user|>Hello<|end|><|assistant|>";
  const std::vector<TokenId> expected{1, 32010, 15043, 32007, 32001};
  CHECK(ids_of("phi-3", turn, raw) == expected);
  CHECK(ids_of("phi-3", "<s>" + turn, raw) == expected);
  CHECK(ids_of("phi-3", "<s><s>" + turn, raw).size() == expected.size() + 1);  // what is written stays
  CHECK(ids_of("phi-3", turn, {}).size() > 2 * expected.size());
  const std::vector<TokenId> as_text = ids_of("phi-3", "<s>x", {});  // BOS, and three characters
  CHECK(as_text.front() == 1);
  CHECK(std::ranges::count(as_text, 1) == 1);
  // Fill in the middle.
  CHECK(ids_of("starcoder", "<fim_prefix>a<fim_suffix>b<fim_middle>", raw).size() == 5);
}

TEST_CASE("every real vocabulary gives a text's bytes back") {
  for (const std::string name : {"llama-spm", "phi-3", "gpt-2", "starcoder", "falcon"}) {
    const auto path = test::shared_file("thirdparty/vocab/ggml-vocab-" + name + ".gguf");
    if (!path) return;
    const auto tokenizer = load(*path);
    std::ifstream rows(*test::shared_file("thirdparty/vocab/" + name + ".tricky.jsonl"));
    for (std::string line; std::getline(rows, line);) {
      const auto row = nlohmann::json::parse(line);
      const std::string text = from_hex(row.at("hex"));
      INFO(name << ", " << row.at("note") << ": " << text);
      const std::string expected = covered(*tokenizer, text);
      const bool has_all_bytes = name != "falcon" && (name != "starcoder" || row.at("valid_utf8"));
      if (has_all_bytes) REQUIRE(expected == text);
      REQUIRE(tokenizer->decode(tokenizer->encode(text, {.add_special = false})) == expected);
    }
  }
}

TEST_CASE("the embedded model's vocabulary knows its special tokens and gives text back") {
  const auto tokenizer = load(TROUPE_MODELS "/tales-5m-tq2_0.gguf");
  REQUIRE(tokenizer->name() == "llama");
  REQUIRE(tokenizer->size() == 2048);
  REQUIRE(tokenizer->bos() == TokenId{1});
  REQUIRE(tokenizer->eos() == TokenId{2});
  REQUIRE(tokenizer->is_end_of_generation(2));
  REQUIRE_FALSE(tokenizer->is_end_of_generation(1));
  const std::string text = "Once upon a time, there was a caf\xC3\xA9 \xF0\x9F\x99\x82\n";
  const auto ids = tokenizer->encode(text, {});
  REQUIRE(ids.front() == 1);
  REQUIRE(tokenizer->decode(ids) == text);
}

}  // namespace troupe::engine
