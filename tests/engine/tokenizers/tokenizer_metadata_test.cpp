// Tokenizers of good and bad metadata: small vocabularies written by hand.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"

namespace troupe::engine {
namespace {

using test::byte_pair_file;
using test::MetadataFile;
using test::rwkv_file;
using test::sentencepiece_file;
using test::wordpiece_file;
using Ids = std::vector<TokenId>;

const std::string kMark = "\xE2\x96\x81";  // how SentencePiece spells a space

std::shared_ptr<const Tokenizer> make(const MetadataFile& file) {
  const auto tokenizer = make_tokenizer(file);
  if (!tokenizer) FAIL(tokenizer.error().message);
  return *tokenizer;
}

// The error must have this code and mention this.
void require_error(const MetadataFile& file, ErrorCode code, const std::string& mention) {
  const auto tokenizer = make_tokenizer(file);
  REQUIRE_FALSE(tokenizer);
  INFO(tokenizer.error().message);
  REQUIRE(tokenizer.error().code == code);
  REQUIRE(tokenizer.error().message.find(mention) != std::string::npos);
  REQUIRE(tokenizer.error().message.find("by-hand.gguf") != std::string::npos);
}

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};

}  // namespace

TEST_CASE("SentencePiece: the best-scoring pair is merged first, the leftmost among equals") {
  // Scores fall with the place in the list; ids start at 259.
  const auto file = sentencepiece_file({"a", "b", "c", "bc", "ab", kMark});
  const auto tokenizer = make(file);
  REQUIRE(tokenizer->encode("abc", kPlain) == Ids{264, 259, 262});  // _ a bc, although ab comes first in the text
  const auto twins = make(sentencepiece_file({"a", "aa", kMark}));
  REQUIRE(twins->encode("aaa", kPlain) == Ids{261, 260, 259});  // _ aa a
}

TEST_CASE("SentencePiece: characters outside of the vocabulary become bytes, or unknown without those") {
  auto file = sentencepiece_file({"a", kMark});
  REQUIRE(make(file)->encode("a\xC3\xA9", kPlain) == Ids{260, 259, 3 + 0xC3, 3 + 0xA9});
  MetadataFile small({{"tokenizer.ggml.model", std::string("llama")},
                      {"tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "a", kMark}},
                      {"tokenizer.ggml.token_type", std::vector<std::int64_t>{2, 3, 3, 1, 1}},
                      {"tokenizer.ggml.scores", std::vector<double>{0, 0, 0, -1, -2}}});
  REQUIRE(make(small)->encode("a\xC3\xA9z", kPlain) == Ids{4, 3, 0, 0});
}

TEST_CASE("SentencePiece: bytes are found by their text, whatever type the file gives them") {
  const auto wanted = make(sentencepiece_file({"a", kMark}))->encode("a\n\xC3\xA9", kPlain);
  for (const std::int64_t type : {0, 1, 2, 3, 4, 5}) {
    INFO(type);
    auto file = sentencepiece_file({"a", kMark});
    auto& types = std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]);
    for (std::size_t i = 0; i < 256; ++i) types[3 + i] = type;
    const auto tokenizer = make(file);
    CHECK(tokenizer->encode("a\n\xC3\xA9", kPlain) == wanted);
    CHECK(tokenizer->decode(wanted) == "a\n\xC3\xA9");
    CHECK(tokenizer->notes().size() == 1);
  }
}

TEST_CASE("a vocabulary's digest depends on what ids mean and how text becomes ids, and on nothing else") {
  const auto digest = [](const MetadataFile& file) { return vocabulary_digest(file, *make(file)); };
  const auto other = [&](MetadataFile file, const std::string& key, MetadataValue value) {
    const std::uint64_t before = digest(file);
    file[key] = std::move(value);
    return digest(file) != before;
  };
  const auto pieces = sentencepiece_file({"a", "b", "ab", kMark});
  CHECK(digest(pieces) == digest(sentencepiece_file({"a", "b", "ab", kMark})));
  CHECK(digest(pieces) != digest(sentencepiece_file({"b", "a", "ab", kMark})));
  CHECK(digest(pieces) != digest(sentencepiece_file({"a", "b", "ab", kMark, "c"})));
  CHECK_FALSE(other(pieces, "general.name", std::string("another")));
  CHECK_FALSE(other(pieces, "tokenizer.ggml.pre", std::string("another")));  // not read by this kind
  CHECK(other(pieces, "tokenizer.ggml.eos_token_id", std::int64_t{260}));
  CHECK(other(pieces, "tokenizer.ggml.add_bos_token", false));
  CHECK(other(pieces, "tokenizer.ggml.add_eos_token", true));
  CHECK(other(pieces, "tokenizer.ggml.add_space_prefix", false));
  auto types = std::get<std::vector<std::int64_t>>(*pieces.find("tokenizer.ggml.token_type"));
  types[259] = 3;  // "a" is a control token
  CHECK(other(pieces, "tokenizer.ggml.token_type", types));
  auto scores = std::get<std::vector<double>>(*pieces.find("tokenizer.ggml.scores"));
  std::swap(scores[259], scores[260]);
  CHECK(other(pieces, "tokenizer.ggml.scores", scores));

  const auto pairs = byte_pair_file({"a b", "b c"}, "default");
  CHECK(other(pairs, "tokenizer.ggml.merges", std::vector<std::string>{"b c", "a b"}));
  CHECK(other(pairs, "tokenizer.ggml.pre", std::string("qwen2")));
  const auto words = wordpiece_file({"a", "##b"});
  CHECK(other(words, "tokenizer.ggml.normalizer.lowercase", false));
  CHECK(digest(rwkv_file({"ab"})) != digest(rwkv_file({"ac"})));
}

TEST_CASE("tokens that stand between files, and padding, end an answer") {
  for (const char* text : {"<PAD>", "[PAD]", "<REPO>", "<|fim_pad|>", "<reponame>", "<|file_sep|>"}) {
    INFO(text);
    auto file = sentencepiece_file({"a", kMark, text});
    const auto tokenizer = make(file);
    CHECK(tokenizer->is_end_of_generation(261));
    CHECK(tokenizer->encode(text, kParse) == Ids{261});
    CHECK(tokenizer->encode(text, kPlain) != Ids{261});
  }
}

TEST_CASE("BOS, EOS and the space before a text follow the metadata") {
  auto file = sentencepiece_file({"a", kMark});
  REQUIRE(make(file)->encode("a", {}) == Ids{1, 260, 259});
  REQUIRE(make(file)->encode("", {}) == Ids{1});
  file["tokenizer.ggml.add_eos_token"] = true;
  REQUIRE(make(file)->encode("a", {}) == Ids{1, 260, 259, 2});
  file["tokenizer.ggml.add_bos_token"] = false;
  file["tokenizer.ggml.add_space_prefix"] = false;
  REQUIRE(make(file)->encode("a", {}) == Ids{259, 2});
  REQUIRE_FALSE(make(file)->adds_bos());
  file["tokenizer.ggml.eos_token_id"] = std::int64_t{4294967295};
  REQUIRE(make(file)->encode("a", {}) == Ids{259});
  REQUIRE(make(file)->eos() == std::nullopt);
}

TEST_CASE("decode removes the space that encode added, pieces keep it") {
  const auto tokenizer = make(sentencepiece_file({"a", kMark, kMark + "a"}));
  for (const std::string text : {"a", " a", "  a ", "", " "}) {
    REQUIRE(tokenizer->decode(tokenizer->encode(text, {})) == text);
  }
  REQUIRE(tokenizer->piece(261) == " a");
}

TEST_CASE("the text of a special token becomes its id only on request") {
  // The merges would build "<s>" out of text.
  const auto tokenizer = make(sentencepiece_file({"<", "s", ">", "<s", kMark}));
  REQUIRE(tokenizer->encode("<s>", kPlain) == Ids{263, 262, 261});
  REQUIRE(tokenizer->encode("<s>", kParse) == Ids{1});
  REQUIRE(tokenizer->encode("<0x41>", kPlain).size() > 1);  // nor does a byte token's spelling
  REQUIRE(tokenizer->encode("<0x41>", kParse).size() > 1);
  REQUIRE(tokenizer->piece(1).empty());
  REQUIRE(tokenizer->raw_piece(1) == "<s>");

  auto bpe = byte_pair_file({"< |", "<| e", "<|e n", "<|en d", "<|end |"});
  const TokenId end = 256 + 5;
  REQUIRE(make(bpe)->encode("a<|end|>", kParse) == Ids{'a', end});
  REQUIRE(make(bpe)->encode("a<|end|>", kPlain) == Ids{'a', 256, 'e', 'n', 'd', '|', '>'});
}

TEST_CASE("text does not become a control token by merges") {
  auto bpe = byte_pair_file({"< x", "<x >"}, "default");
  std::get<std::vector<std::int64_t>>(bpe["tokenizer.ggml.token_type"])[257] = 3;  // "<x>"
  REQUIRE(make(bpe)->encode("<x>", kPlain).back() != 257);
  REQUIRE(make(bpe)->encode("<x>", kParse) == Ids{257});
}

TEST_CASE("user-defined tokens are always found, the longest one at a place") {
  auto bpe = byte_pair_file({"f o"});
  auto& tokens = std::get<std::vector<std::string>>(bpe["tokenizer.ggml.tokens"]);
  auto& types = std::get<std::vector<std::int64_t>>(bpe["tokenizer.ggml.token_type"]);
  const auto first = static_cast<TokenId>(tokens.size());
  for (const char* text : {"<tool", "<tool>", "ol>x"}) {
    tokens.push_back(text);
    types.push_back(4);
  }
  const auto tokenizer = make(bpe);
  REQUIRE(tokenizer->encode("fo<tool>x<tool<", kPlain) == Ids{256, first + 1, 'x', first, '<'});
  REQUIRE(tokenizer->piece(first + 1) == "<tool>");
  REQUIRE(tokenizer->kind(first) == TokenKind::user_defined);
}

TEST_CASE("byte-level BPE merges by rank, inside words only") {
  const auto tokenizer = make(byte_pair_file({"b c", "a b", "\xC4\xA0 a"}));
  REQUIRE(tokenizer->encode("abc", kPlain) == Ids{'a', 256});
  REQUIRE(tokenizer->encode("ab", kPlain) == Ids{257});
  REQUIRE(tokenizer->encode("b c", kPlain) == Ids{'b', ' ', 'c'});
  REQUIRE(tokenizer->encode(" a", kPlain) == Ids{258});
  REQUIRE(tokenizer->piece(258) == " a");
}

TEST_CASE("llama-bpe does not split a word that is a token, and begins with BOS") {
  auto file = byte_pair_file({"a b", "c d", "b c", "a bc", "abc d"}, "llama-bpe");
  file["tokenizer.ggml.bos_token_id"] = std::int64_t{256 + 5};
  REQUIRE(make(file)->encode("abcd", kPlain) == Ids{260});
  REQUIRE(make(file)->encode("abcd", {}) == Ids{261, 260});
  file["tokenizer.ggml.pre"] = std::string("smaug-bpe");  // the same expression without that rule
  REQUIRE(make(file)->encode("abcd", {}) == Ids{256, 257});
}

TEST_CASE("end of generation: the ids of the metadata, and the known texts of chat models") {
  auto file = byte_pair_file({"a b"});
  REQUIRE(make(file)->is_end_of_generation(257));  // <|end|>
  REQUIRE_FALSE(make(file)->is_end_of_generation(256));
  file["tokenizer.ggml.eot_token_id"] = std::int64_t{256};
  REQUIRE(make(file)->is_end_of_generation(256));
}

TEST_CASE("a file without a vocabulary gives a null tokenizer, an unknown kind is refused by name") {
  REQUIRE(make(MetadataFile({})) == nullptr);
  REQUIRE(make(MetadataFile({{"tokenizer.ggml.model", std::string("no_vocab")}})) == nullptr);
  require_error(MetadataFile({{"tokenizer.ggml.model", std::string("t5")}}), ErrorCode::unsupported, "\"t5\"");
  require_error(byte_pair_file({"a b"}, "nobody"), ErrorCode::unsupported, "\"nobody\"");
  require_error(byte_pair_file({"a b"}, "nobody"), ErrorCode::unsupported, "llama-bpe, llama3");
}

TEST_CASE("a file without the name of a pre-tokenizer gets Llama 3's if it has Llama 3's vocabulary") {
  auto file = byte_pair_file({"a b", "c d", "b c", "a bc", "abc d"});
  auto& tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(3);
  const auto bos = static_cast<TokenId>(tokens.size());
  tokens.push_back("<|begin_of_text|>");
  file.remove("tokenizer.ggml.pre");
  REQUIRE(make(file)->encode("abcd 12", {}) == Ids{256, 257, ' ', '1', '2'});
  file["tokenizer.ggml.bos_token_id"] = std::int64_t{bos};
  REQUIRE(make(file)->encode("abcd 12", {}) == Ids{bos, 260, ' ', '1', '2'});
  file["tokenizer.ggml.pre"] = std::string();
  REQUIRE(make(file)->encode("abcd", {}) == Ids{bos, 260});
  file["tokenizer.ggml.pre"] = std::string("default");
  REQUIRE(make(file)->encode("abcd", {}) == Ids{256, 257});
}

TEST_CASE("RWKV: text becomes the longest token that the rest begins with") {
  // From 257 on. The file spells bytes as Python prints them.
  const auto tokenizer = make(rwkv_file({"ab", "abcd", "bc", "\\n\\n", "\\xe4\\xb8\\xad", "\\'", "\\\\t", "\\t\\r"}));
  REQUIRE(tokenizer->name() == "rwkv");
  REQUIRE(tokenizer->encode("abc", {}) == Ids{257, 1 + 'c'});  // abcd begins like the text, but does not fit
  REQUIRE(tokenizer->encode("abcdbc", {}) == Ids{258, 259});
  REQUIRE(tokenizer->encode("\n\n\n", {}) == Ids{260, 1 + '\n'});
  REQUIRE(tokenizer->encode("\xE4\xB8\xAD\xE4\xB8", {}) == Ids{261, 1 + 0xE4, 1 + 0xB8});
  // The plain byte comes first in the list, so its second spelling is never used; a backslash and t are no tab.
  REQUIRE(tokenizer->encode("'\\t\t\r", {}) == Ids{1 + '\'', 263, 264});
  REQUIRE(tokenizer->piece(261) == "\xE4\xB8\xAD");
  REQUIRE(tokenizer->piece(263) == "\\t");
  REQUIRE(tokenizer->piece(0).empty());
  REQUIRE(tokenizer->eos() == TokenId{0});
  REQUIRE(tokenizer->is_end_of_generation(0));
  REQUIRE(tokenizer->bos() == std::nullopt);
  REQUIRE(tokenizer->encode("<s>", kPlain) == Ids{1 + '<', 1 + 's', 1 + '>'});
  REQUIRE(tokenizer->encode("<s>", kParse) == Ids{0});
}

TEST_CASE("RWKV: text does not become padding; the end of a turn is in the metadata") {
  auto file = rwkv_file({"\\n\\n", "[PAD258]"});
  std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"])[258] = 5;
  file["tokenizer.ggml.eot_token_id"] = std::int64_t{257};
  const auto tokenizer = make(file);
  REQUIRE(tokenizer->encode("[PAD258]", kPlain).size() == 8);
  REQUIRE(tokenizer->piece(258).empty());
  REQUIRE(tokenizer->is_end_of_generation(257));
}

TEST_CASE("RWKV: a byte that begins no token becomes unknown, or is dropped without it; bad escapes are refused") {
  MetadataFile file(
      {{"tokenizer.ggml.model", std::string("rwkv")}, {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}}});
  REQUIRE(make(file)->encode("axb", {}) == Ids{0, 1});
  file["tokenizer.ggml.unknown_token_id"] = std::int64_t{1};
  REQUIRE(make(file)->encode("axb", {}) == Ids{0, 1, 1});
  for (const char* text : {"\\", "a\\q", "\\x4", "\\x", "\\xg0", "\\x0g"}) {
    require_error(rwkv_file({text}), ErrorCode::bad_model, "token 257");
  }
}

TEST_CASE("WordPiece: words in pieces, the longest first, between [CLS] and [SEP]") {
  const auto file = wordpiece_file({"un", "##aff", "##able", "##a", "hello", ",", "world", "unaff", "!"});
  const auto tokenizer = make(file);
  REQUIRE(tokenizer->name() == "bert");
  REQUIRE(tokenizer->encode("unaffable", kPlain) == Ids{11, 6});
  REQUIRE(tokenizer->encode("Hello, WORLD!", {}) == Ids{2, 8, 9, 10, 12, 3});
  REQUIRE(tokenizer->encode("hello,world", kPlain) == Ids{8, 9, 10});
  REQUIRE(tokenizer->encode("una una", kPlain) == Ids{4, 7, 4, 7});
  REQUIRE(tokenizer->encode("hello unx world", kPlain) == Ids{8, 1, 10});  // one unknown for the whole word
  REQUIRE(tokenizer->encode("able", kPlain) == Ids{1});                    // only continues words
  REQUIRE(tokenizer->encode("", {}) == Ids{2, 3});
  REQUIRE(tokenizer->encode(" \t\n ", kPlain).empty());
  REQUIRE(tokenizer->decode(tokenizer->encode("Hello,  unaffable world", {})) == "hello , unaffable world");
  REQUIRE(tokenizer->piece(6) == "able");
  REQUIRE(tokenizer->piece(8) == " hello");
  REQUIRE(tokenizer->encode("[CLS]", kPlain) == Ids{1, 1, 1});
  REQUIRE(tokenizer->encode("[CLS]", kParse) == Ids{2});
}

TEST_CASE("WordPiece: lower case and accents follow the metadata") {
  auto file = wordpiece_file({"uber", "\xC3\xBC", "##ber", "\xC3\x9C", "\xD0\xB9"});
  const std::string text =
      "\xC3\x9C"
      "BER";  // Ü
  REQUIRE(make(file)->encode(text, kPlain) == Ids{4});
  REQUIRE(make(file)->encode("u\xCC\x88"
                             "ber",
                             kPlain) == Ids{4});  // the accent as a character of its own
  file["tokenizer.ggml.normalizer.strip_accents"] = false;
  REQUIRE(make(file)->encode(text, kPlain) == Ids{5, 6});
  file["tokenizer.ggml.normalizer.lowercase"] = false;
  REQUIRE(make(file)->encode("\xC3\x9C"
                             "ber",
                             kPlain) == Ids{7, 6});
  file.remove("tokenizer.ggml.normalizer.strip_accents");  // follows the other
  REQUIRE(make(file)->encode("\xC3\x9C"
                             "ber",
                             kPlain) == Ids{7, 6});
}

TEST_CASE(
    "WordPiece: characters of Unicode 15 are known; U+0130, with a small letter of two characters, is unchanged") {
  auto file = wordpiece_file({"a", "##b", "\u0130b", "\U0001E4D0", "\U0001E900", "\U0001E922", "b"});
  REQUIRE(make(file)->encode("a\U0001E4D0", kPlain) == Ids{1});  // a letter; no control character, which would vanish
  REQUIRE(make(file)->encode("\U0001E4D0", kPlain) == Ids{7});
  REQUIRE(make(file)->encode("a\U000E0041b", kPlain) == Ids{4, 5});  // a tag, and an unassigned character, vanish
  REQUIRE(make(file)->encode("a\u0378b", kPlain) == Ids{4, 5});
  REQUIRE(make(file)->encode("\U0001E900", kPlain) == Ids{9});  // letters beyond 16 bits have small ones, too
  file["tokenizer.ggml.normalizer.strip_accents"] = false;
  REQUIRE(make(file)->encode("\u0130B", kPlain) == Ids{6});
}

TEST_CASE("WordPiece: Chinese characters and punctuation are separate words, control characters are dropped") {
  const auto tokenizer = make(wordpiece_file(
      {"a", "\xE4\xB8\xAD", "\xE6\x96\x87", "b", "##b", "\xE2\x80\x9C", "$", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"}));
  REQUIRE(tokenizer->encode("a\xE4\xB8\xAD\xE6\x96\x87"
                            "b",
                            kPlain) == Ids{4, 5, 6, 7});
  REQUIRE(tokenizer->encode("a\xE2\x80\x9C$b", kPlain) == Ids{4, 9, 10, 7});
  REQUIRE(tokenizer->encode("a\xE2\x80\x8D\x01\xFF"
                            "b",
                            kPlain) == Ids{4, 8});  // joiner, control, no UTF-8
  REQUIRE(tokenizer->encode("a\xE3\x80\x80"
                            "b",
                            kPlain) == Ids{4, 7});                // ideographic space
  REQUIRE(tokenizer->encode("\xEA\xB0\x81", kPlain) == Ids{11});  // a Hangul syllable is three letters
  REQUIRE(tokenizer->encode("\xEF\xA4\x80", kPlain) == Ids{1});
  REQUIRE(tokenizer->encode(std::string(100, 'a') + " a", kPlain) == Ids{1, 4});  // aa is no token
}

TEST_CASE("WordPiece: a word of more than 100 characters is unknown, as in its published tools") {
  const auto tokenizer = make(wordpiece_file({"a", "##a"}));
  REQUIRE(tokenizer->encode(std::string(100, 'a'), kPlain).size() == 100);
  REQUIRE(tokenizer->encode(std::string(101, 'a'), kPlain) == Ids{1});
}

TEST_CASE("WordPiece: special tokens that the metadata leave out are found by name, and must exist") {
  auto file = wordpiece_file({"a"});
  for (const char* key : {"unknown", "cls", "seperator"}) {
    file.remove(std::string("tokenizer.ggml.") + key + "_token_id");
  }
  REQUIRE(make(file)->encode("a b", {}) == Ids{2, 4, 1, 3});
  file["tokenizer.ggml.add_bos_token"] = false;  // is said of other kinds
  REQUIRE(make(file)->encode("a", {}) == Ids{2, 4, 3});
  for (const auto& [name, place] : {std::pair("[UNK]", 1), std::pair("[CLS]", 2), std::pair("[SEP]", 3)}) {
    auto without = file;
    std::get<std::vector<std::string>>(without["tokenizer.ggml.tokens"])[static_cast<std::size_t>(place)] = "other";
    require_error(without, ErrorCode::bad_model, name);
  }
  file["tokenizer.ggml.seperator_token_id"] = std::int64_t{99};
  require_error(file, ErrorCode::bad_model, "seperator_token_id is 99");
}

TEST_CASE("damaged metadata are refused with the reason") {
  using Strings = std::vector<std::string>;
  auto file = sentencepiece_file({"a"});
  const auto damaged = [&](const char* key, MetadataValue value) {
    MetadataFile copy = file;
    copy[std::string("tokenizer.ggml.") + key] = std::move(value);
    return copy;
  };
  require_error(damaged("tokens", Strings{}), ErrorCode::bad_model, "missing or empty");
  require_error(damaged("tokens", std::int64_t{3}), ErrorCode::bad_model, "which is not a list of texts");
  require_error(damaged("scores", std::vector<double>(7)), ErrorCode::bad_model, "scores has 7 entries for 260");
  require_error(damaged("token_type", std::vector<std::int64_t>(3, 1)), ErrorCode::bad_model, "token_type has 3");
  require_error(damaged("token_type", std::vector<std::int64_t>(260, 9)), ErrorCode::bad_model, "type 9");
  require_error(damaged("token_type", std::vector<std::int64_t>(260, 6)), ErrorCode::bad_model, "<0xNN>");
  require_error(damaged("bos_token_id", std::int64_t{260}), ErrorCode::bad_model, "bos_token_id is 260");
  require_error(damaged("eot_token_id", std::int64_t{-2}), ErrorCode::bad_model, "eot_token_id is -2");
  std::vector<double> scores(260);
  scores[5] = std::nan("");
  require_error(damaged("scores", scores), ErrorCode::bad_model, "not a number");
  file.remove("tokenizer.ggml.scores");
  require_error(file, ErrorCode::bad_model, "scores is missing");

  file = byte_pair_file({"a b"});
  require_error(damaged("merges", Strings{"a b", "ab"}), ErrorCode::bad_model, "merge 1 (\"ab\") is not two tokens");
  require_error(damaged("merges", Strings{"a "}), ErrorCode::bad_model, "is not two tokens");
  require_error(damaged("merges", Strings{""}), ErrorCode::bad_model, "is not two tokens");
  require_error(damaged("merges", Strings{"a zz"}), ErrorCode::bad_model, "not in the vocabulary");
  require_error(damaged("merges", Strings{"a c"}), ErrorCode::bad_model, "not in the vocabulary");
  file.remove("tokenizer.ggml.merges");
  require_error(file, ErrorCode::bad_model, "merges is missing");
}

TEST_CASE("tokens longer than any real one are refused; special tokens have a lower limit") {
  const auto with_last = [](std::size_t length, std::int64_t type) {
    auto file = byte_pair_file({"a b"});
    std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]).push_back(std::string(length, '<'));
    std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(type);
    return file;
  };
  require_error(with_last(4097, 1), ErrorCode::bad_model, "has 4097 bytes, more than the 4096 allowed");
  require_error(with_last(1025, 3), ErrorCode::bad_model, "has 1025 bytes, more than the 1024 allowed of a special");
  require_error(with_last(1025, 4), ErrorCode::bad_model, "has 1025 bytes, more than the 1024 allowed of a special");
  REQUIRE(make(with_last(4096, 1)));
  REQUIRE(make(with_last(1024, 3)));
}

TEST_CASE("the texts of special tokens have at most 8 MiB together") {
  auto file = byte_pair_file({"a b"});
  auto& tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  auto& types = std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]);
  for (int i = 0; i < 8200; ++i) {
    tokens.push_back(std::to_string(i) + std::string(1024 - std::to_string(i).size(), 'x'));
    types.push_back(3);
  }
  require_error(file, ErrorCode::bad_model, "special tokens of 8396807 bytes together, more than the 8388608 allowed");
}

TEST_CASE("randomly damaged metadata: an error, or a tokenizer that works") {
  std::mt19937 random(99);
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  const std::vector<std::string> texts = {"",     "a",   "<s>", "a b", "<0x41>",
                                          "\xFF", kMark, " ",   "ab",  std::string(300, 'a')};
  const std::vector<std::int64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7, -1, 255, 4294967295, 1ll << 40};
  int num_usable = 0;
  for (int round = 0; round < 2000; ++round) {
    MetadataFile file = round % 4 == 0   ? byte_pair_file({"a b", "ab ab", "\xC4\xA0 a"}, "llama-bpe")
                        : round % 4 == 1 ? sentencepiece_file({"a", "b", "ab", kMark, kMark + "a"})
                        : round % 4 == 2 ? rwkv_file({"ab", "\\n\\n", "abab"})
                                         : wordpiece_file({"a", "b", "##b", "##ab", ","});
    for (std::size_t damages = 1 + below(4); damages > 0; --damages) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : file.metadata()) keys.push_back(key);
      keys.insert(keys.end(), {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                               "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_space_prefix"});
      MetadataValue& value = file[keys[below(keys.size())]];
      if (auto* const strings = std::get_if<std::vector<std::string>>(&value); strings && !strings->empty()) {
        (*strings)[below(strings->size())] = texts[below(texts.size())];
        if (below(8) == 0) strings->resize(below(strings->size() + 5));
      } else if (auto* const integers = std::get_if<std::vector<std::int64_t>>(&value);
                 integers && !integers->empty()) {
        (*integers)[below(integers->size())] = numbers[below(9)];
        if (below(8) == 0) integers->resize(below(integers->size() + 5));
      } else if (below(2)) {
        value = numbers[below(numbers.size())];
      } else {
        value = below(2) == 0;
      }
    }
    const auto tokenizer = make_tokenizer(file);
    if (!tokenizer) {
      REQUIRE_FALSE(tokenizer.error().message.empty());
      continue;
    }
    if (*tokenizer == nullptr) continue;
    ++num_usable;
    for (const std::string& text : texts) {
      for (const bool parse : {false, true}) {
        const Ids ids = (*tokenizer)->encode(text + "x " + text, {.add_special = true, .parse_special = parse});
        for (const TokenId id : ids) REQUIRE((id >= 0 && static_cast<std::uint32_t>(id) < (*tokenizer)->size()));
        (void)(*tokenizer)->decode(ids);
      }
    }
    for (std::uint32_t id = 0; id < (*tokenizer)->size(); ++id) {
      (void)(*tokenizer)->raw_piece(static_cast<TokenId>(id));
      (void)(*tokenizer)->is_end_of_generation(static_cast<TokenId>(id));
    }
  }
  REQUIRE(num_usable > 200);  // the damage is not always fatal
}

}  // namespace troupe::engine
