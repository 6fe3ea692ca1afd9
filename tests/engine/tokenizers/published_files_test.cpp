// Vocabularies as their publishers write them: keys of another type, types that are missing or wrong.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/shared_data.h"

namespace troupe::engine {
namespace {

using test::byte_pair_file;
using test::MetadataFile;
using test::sentencepiece_file;
using test::wordpiece_file;
using Ids = std::vector<TokenId>;
using Integers = std::vector<std::int64_t>;
using Floats = std::vector<double>;

std::shared_ptr<const Tokenizer> made(const ModelFile& file) {
  const auto tokenizer = make_tokenizer(file);
  if (!tokenizer) FAIL(tokenizer.error().message);
  return *tokenizer;
}

std::string refusal(const MetadataFile& file) {
  const auto tokenizer = make_tokenizer(file);
  REQUIRE_FALSE(tokenizer);
  CHECK((tokenizer.error().code == ErrorCode::bad_model || tokenizer.error().code == ErrorCode::unsupported));
  return tokenizer.error().message;
}

Ids ends_of(const MetadataFile& file) { return *find_end_ids(file, made(file).get(), 1 << 20); }

constexpr EncodeOptions kTextAlone{.add_special = false};
const std::string kSpaceMarked = "\xE2\x96\x81";  // how SentencePiece spells a space

// Adds a token to a vocabulary; its id.
TokenId add_token(MetadataFile& file, const std::string& text, std::int64_t type) {
  auto& tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  tokens.push_back(text);
  std::get<Integers>(file["tokenizer.ggml.token_type"]).push_back(type);
  if (file.find("tokenizer.ggml.scores") != nullptr) std::get<Floats>(file["tokenizer.ggml.scores"]).push_back(-100);
  return static_cast<TokenId>(tokens.size() - 1);
}

}  // namespace

TEST_CASE("a value of another type is taken if it is exactly one of the wanted type, else refused by name") {
  const MetadataFile file({{"x.whole", 3.0},
                           {"x.half", 2.5},
                           {"x.huge", 1e300},
                           {"x.one", std::int64_t{1}},
                           {"x.two", std::int64_t{2}},
                           {"x.yes", true},
                           {"x.text", std::string("a")},
                           {"x.same", Integers{4, 4, 4}},
                           {"x.differ", Integers{4, 5}},
                           {"x.empty", Integers{}},
                           {"x.halves", Floats{0.5, 0.5}},
                           {"x.wholes", Floats{1, 2}},
                           {"x.texts", std::vector<std::string>{"a", "a"}},
                           {"x.flags", Integers{1, 1}}});
  const auto integer = [&](const char* key) { return Metadata(file, "x").integer(key); };
  CHECK(integer("whole") == 3);
  CHECK(integer("same") == 4);
  CHECK(integer("absent") == std::nullopt);
  for (const char* key : {"half", "huge", "yes", "text", "differ", "empty", "halves", "texts"}) {
    Metadata keys(file, "x");
    CHECK_FALSE(keys.integer(key));
    REQUIRE(keys.failed());
    CHECK(keys.error().message.find(std::string("'x.") + key + "' is ") != std::string::npos);
    CHECK(keys.error().message.find("a whole number") != std::string::npos);
  }
  CHECK(Metadata(file, "x").boolean("one", false));
  CHECK(Metadata(file, "x").boolean("flags", false));
  CHECK(Metadata(file, "x").boolean("yes", false));
  for (const char* key : {"two", "half", "text", "differ"}) {
    Metadata keys(file, "x");
    CHECK(keys.boolean(key, true));  // what was said for an absent key
    CHECK(keys.failed());
  }
  CHECK(Metadata(file, "x").positive("one") == 1.0);
  CHECK(Metadata(file, "x").positive("halves") == 0.5);
  CHECK(Metadata(file, "x").string("texts") == "a");
  CHECK(Metadata(file, "x").integers("wholes") == Integers{1, 2});
  CHECK(Metadata(file, "x").integers("one") == Integers{1});
  CHECK(Metadata(file, "x").numbers("same") == Floats{4, 4, 4});
  for (const char* key : {"halves", "text", "texts"}) {
    Metadata keys(file, "x");
    CHECK_FALSE(keys.integers(key));
    CHECK(keys.failed());
  }
}

TEST_CASE("scores and types of a vocabulary may be of any type that holds them") {
  auto file = sentencepiece_file({"a", "b", "ab", kSpaceMarked});
  const Ids expected = made(file)->encode("ab", kTextAlone);
  const Floats scores = std::get<Floats>(file["tokenizer.ggml.scores"]);
  file["tokenizer.ggml.scores"] = Integers(scores.begin(), scores.end());
  const Integers types = std::get<Integers>(file["tokenizer.ggml.token_type"]);
  file["tokenizer.ggml.token_type"] = Floats(types.begin(), types.end());
  CHECK(made(file)->encode("ab", kTextAlone) == expected);
  file["tokenizer.ggml.scores"] = std::string("none");
  CHECK(refusal(file).find("'tokenizer.ggml.scores' is 'none', which is not a list of numbers") != std::string::npos);
  file = sentencepiece_file({"a", kSpaceMarked});
  file["tokenizer.ggml.add_bos_token"] = std::int64_t{0};
  CHECK_FALSE(made(file)->adds_bos());
  file["tokenizer.ggml.add_bos_token"] = std::string("no");
  CHECK(refusal(file).find("'tokenizer.ggml.add_bos_token' is 'no', which is not true or false") != std::string::npos);
  file = byte_pair_file({"a b"});
  file["tokenizer.ggml.merges"] = std::int64_t{1};
  CHECK(refusal(file).find("'tokenizer.ggml.merges' is 1, which is not a list of texts") != std::string::npos);
  file = byte_pair_file({"a b"});
  file["tokenizer.ggml.pre"] = std::int64_t{1};
  CHECK(refusal(file).find("tokenizer.ggml.pre") != std::string::npos);
  file = wordpiece_file({"a"});
  file["tokenizer.ggml.normalizer.lowercase"] = std::int64_t{0};
  (void)made(file);
  file["tokenizer.ggml.normalizer.lowercase"] = std::string("yes");
  CHECK(refusal(file).find("tokenizer.ggml.normalizer.lowercase") != std::string::npos);
}

TEST_CASE("a chat template that is no text is refused by name, with or without a vocabulary") {
  const std::string source = "{{ messages[0].content }}";
  auto file = sentencepiece_file({"a", kSpaceMarked});
  file["tokenizer.chat_template"] = source;
  file["tokenizer.chat_template.tool_use"] = std::vector<std::string>{source};  // a list of one
  file["tokenizer.chat_templates"] = std::vector<std::string>{"tool_use"};      // their names, which are not read
  const auto found = find_chat_templates(file);
  REQUIRE(found);
  CHECK(*found == std::vector<std::pair<std::string, std::string>>{{"", source}, {"tool_use", source}});
  file["tokenizer.chat_template.tool_use"] = std::int64_t{3};
  CHECK(refusal(file).find("'tokenizer.chat_template.tool_use' is 3, which is not a text") != std::string::npos);
  file = MetadataFile({{"tokenizer.chat_template", true}});
  CHECK(refusal(file).find("'tokenizer.chat_template' is true, which is not a text") != std::string::npos);
}

TEST_CASE("several end tokens end answers, the first of them is EOS, and a list of other ids is refused") {
  auto file = sentencepiece_file({"a", "b", "c", kSpaceMarked});
  CHECK(ends_of(file) == Ids{2});
  file["tokenizer.ggml.eos_token_ids"] = Integers{259, 261};
  CHECK(ends_of(file) == Ids{2, 259, 261});
  CHECK(made(file)->eos() == 2);
  file.remove("tokenizer.ggml.eos_token_ids");
  file["tokenizer.ggml.eos_token_id"] = Integers{260, 259};
  CHECK(ends_of(file) == Ids{2, 259, 260});  // "</s>" by its text
  CHECK(made(file)->eos() == 260);
  file["tokenizer.ggml.eos_token_id"] = 260.0;
  CHECK(ends_of(file) == Ids{2, 260});
  file["tokenizer.ggml.eos_token_id"] = Integers{260, 1'000'000};
  CHECK(refusal(file).find("tokenizer.ggml.eos_token_id is 1000000") != std::string::npos);
  file["tokenizer.ggml.eos_token_id"] = 260.0;
  file["tokenizer.ggml.bos_token_id"] = Integers{1, 2};
  CHECK(refusal(file).find("'tokenizer.ggml.bos_token_id' is a list of values that differ (1, but 2 at index 1)") !=
        std::string::npos);
  // Without a vocabulary the ids of the metadata count alone.
  const MetadataFile none(
      {{"tokenizer.ggml.eos_token_id", Integers{7, 3}}, {"tokenizer.ggml.eos_token_ids", Integers{3, 5}}});
  CHECK(*find_end_ids(none, nullptr, 6) == Ids{3, 5});
  const auto wrong = find_end_ids(MetadataFile({{"tokenizer.ggml.eos_token_id", std::string("7")}}), nullptr, 6);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message.find("'tokenizer.ggml.eos_token_id' is '7'") != std::string::npos);
}

TEST_CASE("bytes of a SentencePiece vocabulary are bytes whatever type they are listed with") {
  auto file = sentencepiece_file({"a", kSpaceMarked});
  const Ids expected = made(file)->encode("a\n\xC3\xA9", kTextAlone);
  CHECK(made(file)->notes().empty());
  auto& types = std::get<Integers>(file["tokenizer.ggml.token_type"]);
  for (std::size_t id = 3; id < 259; ++id) types[id] = 1;
  const auto tokenizer = made(file);
  CHECK(tokenizer->encode("a\n\xC3\xA9", kTextAlone) == expected);
  CHECK(tokenizer->piece(3 + '\n') == "\n");
  REQUIRE(tokenizer->notes().size() == 1);
  CHECK(tokenizer->notes()[0].find("256 tokens listed as text are taken as bytes") != std::string::npos);
  // A byte that has its token keeps it, and a text that is spelled like one is text.
  file = sentencepiece_file({"a", kSpaceMarked});
  const TokenId second = add_token(file, "<0x0A>", 1);
  CHECK(made(file)->kind(second) == TokenKind::normal);
  CHECK(made(file)->encode("\n", kTextAlone) == Ids{260, 3 + '\n'});
}

TEST_CASE("tokens that end an answer do so whatever type they are listed with, and no text becomes them") {
  for (const char* text : {"<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<turn|>", "[e~[", "<eos>", "<|file_sep|>"}) {
    INFO(text);
    auto file = byte_pair_file({});
    const TokenId id = add_token(file, text, 1);
    const auto tokenizer = made(file);
    CHECK(tokenizer->is_end_of_generation(id));
    CHECK(tokenizer->kind(id) == TokenKind::control);
    CHECK(tokenizer->piece(id).empty());
    REQUIRE(tokenizer->notes().size() == 1);
    CHECK(tokenizer->notes()[0].find(std::to_string(id) + " '" + text + "'") != std::string::npos);
  }
  auto file = byte_pair_file({});
  const TokenId prefix = add_token(file, "<|fim_prefix|>", 4);
  CHECK(made(file)->kind(prefix) == TokenKind::control);
  CHECK_FALSE(made(file)->is_end_of_generation(prefix));
  // Of messages within an answer <|end|> ends one, not the answer.
  file = byte_pair_file({});  // has <|end|>
  const TokenId end = 256;
  CHECK(made(file)->is_end_of_generation(end));
  add_token(file, "<|return|>", 3);
  add_token(file, "<|call|>", 3);
  CHECK_FALSE(made(file)->is_end_of_generation(end));
  CHECK(made(file)->kind(end) == TokenKind::control);
  // "</s>" is a tag of HTML where another token ends turns.
  file = byte_pair_file({});
  const TokenId tag = add_token(file, "</s>", 1);
  CHECK(made(file)->is_end_of_generation(tag));
  add_token(file, "<|tool_response>", 3);
  CHECK_FALSE(made(file)->is_end_of_generation(tag));
  CHECK(made(file)->kind(tag) == TokenKind::normal);
}

TEST_CASE("without types the special ids and the spelling say what tokens are") {
  auto file = sentencepiece_file({"a", kSpaceMarked, "<|user|>", "<end_of_turn>"});
  const Ids expected = made(file)->encode("a\n<s>", kTextAlone);
  file.remove("tokenizer.ggml.token_type");
  const auto tokenizer = made(file);
  CHECK(tokenizer->encode("a\n<s>", kTextAlone) == expected);
  CHECK(tokenizer->kind(0) == TokenKind::unknown);
  CHECK(tokenizer->kind(1) == TokenKind::control);
  CHECK(tokenizer->kind(2) == TokenKind::control);
  CHECK(tokenizer->kind(3 + 'x') == TokenKind::byte);
  CHECK(tokenizer->kind(261) == TokenKind::control);
  CHECK(tokenizer->is_end_of_generation(262));
  CHECK(tokenizer->piece(3 + '\n') == "\n");
  REQUIRE_FALSE(tokenizer->notes().empty());
  CHECK(tokenizer->notes()[0].find("tokenizer.ggml.token_type") != std::string::npos);
}

TEST_CASE("a pre-tokenizer that had to be guessed is said") {
  auto file = byte_pair_file({});
  CHECK(made(file)->notes().empty());
  file.remove("tokenizer.ggml.pre");
  REQUIRE(made(file)->notes().size() == 1);
  CHECK(made(file)->notes()[0].find("tokenizer.ggml.pre") != std::string::npos);
}

TEST_CASE("EOS ends a whole text, and not a prompt that is continued") {
  auto file = sentencepiece_file({"a", kSpaceMarked});
  file["tokenizer.ggml.add_eos_token"] = true;
  CHECK(made(file)->encode("a", {}) == Ids{1, 260, 259, 2});
  CHECK(made(file)->encode("a", {.continues = true}) == Ids{1, 260, 259});
}

TEST_CASE("published files that other programs read wrongly are read as llama.cpp reads them") {
  const auto ids_of = [](const char* name) -> Ids {
    const auto path = test::shared_file(std::string("cases/") + name);
    if (!path) return {};
    const auto file = open_gguf(*path);
    if (!file) FAIL(file.error().message);
    return made(**file)->encode("Once \xC3\xA9\nx", {});
  };
  for (const char* name : {"int-scores.gguf", "byte-normal.gguf"})
    if (const Ids ids = ids_of(name); !ids.empty()) CHECK(ids == Ids{1, 403, 410, 485, 13, 444});
  (void)ids_of("u64-hash.gguf");
  if (const auto path = test::shared_file("cases/eot-normal.gguf")) {
    const auto file = open_gguf(*path);
    REQUIRE(file);
    const auto tokenizer = made(**file);
    CHECK(*find_end_ids(**file, tokenizer.get(), tokenizer->size()) == Ids{2, 426});
    CHECK(tokenizer->notes().size() == 1);
  }
}

}  // namespace troupe::engine
