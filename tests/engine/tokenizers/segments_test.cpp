// Prompts of chat templates: control tokens come from the template's text alone.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/shared_data.h"

namespace troupe::engine {
namespace {

using Segments = std::vector<PromptSegment>;
using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> tokenizer_of(const ModelFile& file) {
  const auto made = make_tokenizer(file);
  if (!made) FAIL(made.error().message);
  return *made;
}

std::size_t count_of(const Ids& ids, TokenId wanted) {
  std::size_t count = 0;
  for (const TokenId id : ids) count += id == wanted ? 1 : 0;
  return count;
}

Ids plain(const Tokenizer& tokenizer, std::string_view text) { return tokenizer.encode(text, {.add_special = false}); }
Ids of_segments(const Tokenizer& tokenizer, const Segments& segments) {
  return tokenizer.encode(segments, {.add_special = false});
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& each : parts) all.insert(all.end(), each.begin(), each.end());
  return all;
}

TEST_CASE("a control token is one in the template's text, and plain text where a byte of it is from input") {
  const auto tokenizer = tokenizer_of(test::byte_pair_file({"a a", "aa aa", "< |", "e n"}));
  const auto end = static_cast<TokenId>(tokenizer->size() - 1);
  REQUIRE(tokenizer->raw_piece(end) == "<|end|>");
  CHECK(of_segments(*tokenizer, {{"a<|end|>a", false}}) ==
        joined({plain(*tokenizer, "a"), {end}, plain(*tokenizer, "a")}));
  CHECK(of_segments(*tokenizer, {{"a<|end|>a", true}}) == plain(*tokenizer, "a<|end|>a"));
  for (std::size_t cut = 1; cut < 7; ++cut) {
    INFO(cut);
    const std::string text = "<|end|>", left = text.substr(0, cut), right = text.substr(cut);
    CHECK(of_segments(*tokenizer, {{left, false}, {right, true}}) == plain(*tokenizer, text));
    CHECK(of_segments(*tokenizer, {{left, true}, {right, false}}) == plain(*tokenizer, text));
    // Only marks of provenance between the two: still the template's.
    CHECK(of_segments(*tokenizer, {{left, false}, {right, false}}) == Ids{end});
    CHECK(of_segments(*tokenizer, {{left, false}, {"", true}, {right, false}}) == Ids{end});
    CHECK(of_segments(*tokenizer, {{left, false}, {"x", true}, {right, false}}) ==
          plain(*tokenizer, left + "x" + right));
  }
  CHECK(of_segments(*tokenizer, {{"<|end|>", false}, {"<|end|>", true}, {"<|end|>", false}}) ==
        joined({{end}, plain(*tokenizer, "<|end|>"), {end}}));
}

TEST_CASE("ordinary text is encoded as one across the borders of segments") {
  const auto tokenizer = tokenizer_of(test::byte_pair_file({"a a", "aa aa"}));
  CHECK(of_segments(*tokenizer, {{"a", false}, {"aa", true}, {"a", false}}) == plain(*tokenizer, "aaaa"));
  CHECK(of_segments(*tokenizer, {}).empty());
  CHECK(of_segments(*tokenizer, {{"", true}, {"", false}}).empty());
}

TEST_CASE("the longest token that the template wrote alone is found beside input that would make it longer") {
  test::MetadataFile file = test::byte_pair_file({"a a"});
  auto tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  auto types = std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]);
  tokens.insert(tokens.end(), {"<|end|>x", "<u>"});
  types.insert(types.end(), {3, 4});
  file["tokenizer.ggml.tokens"] = tokens;
  file["tokenizer.ggml.token_type"] = types;
  const auto tokenizer = tokenizer_of(file);
  const auto end = static_cast<TokenId>(tokenizer->size() - 3);
  CHECK(of_segments(*tokenizer, {{"<|end|>x", false}}) == Ids{end + 1});
  CHECK(of_segments(*tokenizer, {{"<|end|>", false}, {"x", true}}) == joined({{end}, plain(*tokenizer, "x")}));
  // A user-defined token is no control token: users may write it, as in any text.
  CHECK(of_segments(*tokenizer, {{"<", false}, {"u>", true}}) == Ids{end + 2});
}

TEST_CASE("BOS is added once, if the vocabulary asks for it, and EOS never") {
  test::MetadataFile file = test::sentencepiece_file({"a", "\xE2\x96\x81",
                                                      "\xE2\x96\x81"
                                                      "a"});
  file["tokenizer.ggml.bos_token_id"] = std::int64_t{1};
  file["tokenizer.ggml.eos_token_id"] = std::int64_t{2};
  file["tokenizer.ggml.add_bos_token"] = true;
  file["tokenizer.ggml.add_eos_token"] = true;
  const auto tokenizer = tokenizer_of(file);
  const Ids without = tokenizer->encode(Segments{{"a", true}}, {});
  const Ids with = tokenizer->encode(Segments{{"<s>", false}, {"a", true}}, {});
  CHECK(count_of(without, 1) == 1);
  CHECK(count_of(with, 1) == 1);
  CHECK(with.front() == 1);
  CHECK(count_of(without, 2) + count_of(with, 2) == 0);
  CHECK(tokenizer->encode(Segments{}, {}) == Ids{1});
  CHECK(count_of(tokenizer->encode(Segments{{"<s>", true}}, {}), 1) == 1);  // the one that is added
  CHECK(count_of(tokenizer->encode(Segments{{"a", true}}, {.add_special = false}), 1) == 0);
}

TEST_CASE("published vocabularies: what users write gives the tokens of plain text") {
  struct Case {
    const char* file;
    std::vector<std::string> specials;
  };
  for (const auto& [file, specials] :
       std::vector<Case>{{"phi-3", {"<|user|>", "<|end|>", "<|assistant|>", "<s>", "<|endoftext|>"}},
                         {"llama-spm", {"<s>", "</s>"}},
                         {"gpt-2", {"<|endoftext|>"}},
                         {"starcoder", {"<|endoftext|>", "<fim_prefix>"}},
                         {"falcon", {"<|endoftext|>"}}}) {
    const auto path = troupe::test::shared_file(std::string("thirdparty/vocab/ggml-vocab-") + file + ".gguf");
    if (!path) continue;
    const auto opened = open_gguf(*path);
    REQUIRE(opened);
    const auto tokenizer = tokenizer_of(**opened);
    for (const std::string& special : specials) {
      INFO(file << " " << special);
      const Ids parsed = tokenizer->encode(special, {.add_special = false, .parse_special = true});
      REQUIRE(parsed.size() == 1);
      const std::string text = "Hello " + special + "world";
      CHECK(of_segments(*tokenizer, {{text, true}}) == plain(*tokenizer, text));
      CHECK(of_segments(*tokenizer, {{text, false}}) ==
            tokenizer->encode(text, {.add_special = false, .parse_special = true}));
      const Ids turn = of_segments(*tokenizer, {{special, false}, {text, true}, {special, false}});
      CHECK(turn.front() == parsed[0]);
      CHECK(turn.back() == parsed[0]);
      if (tokenizer->kind(parsed[0]) == TokenKind::control) CHECK(count_of(turn, parsed[0]) == 2);
    }
  }
}

}  // namespace
}  // namespace troupe::engine
