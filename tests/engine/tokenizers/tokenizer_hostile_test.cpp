// Texts meant to make a tokenizer slow or wrong. No clock: an algorithm that is quadratic on a
// megabyte does not come back within the test's limit.
#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/tokenizers/pre_tokenizer.h"
#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/sanitized.h"

namespace troupe::engine {
namespace {

using test::byte_pair_file;
using test::rwkv_file;
using test::sentencepiece_file;
using test::wordpiece_file;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
// Of a text that repeats something.
constexpr std::size_t kHostileBytes = troupe::test::kSanitized ? kMegabyte / 32 : kMegabyte / 4;
const std::string kMark = "\xE2\x96\x81";
const char* const kPreTokenizers[] = {"default",    "gpt-2",      "llama-bpe",    "smaug-bpe",      "qwen2",
                                      "starcoder",  "falcon",     "deepseek-llm", "deepseek-coder", "deepseek-v3",
                                      "qwen35",     "tekken",     "gpt-4o",       "bloom",          "viking",
                                      "bailingmoe", "seed-coder", "minicpm5",     "youtu"};

std::shared_ptr<const Tokenizer> make(const test::MetadataFile& file) {
  const auto tokenizer = make_tokenizer(file);
  if (!tokenizer) FAIL(tokenizer.error().message);
  return *tokenizer;
}

std::string repeat(const std::string& unit, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

std::vector<std::string> hostile_texts(std::size_t bytes) {
  std::vector<std::string> texts;
  for (const char* unit : {"a", "A", " ", "\n", "\t ", "7", "'", "'s", "<", "<|", "\xE4\xB8\xAD", "\xCC\x81", "a\xFF",
                           "\xFF", "\xF0\x9F", " \n", "\xE3\x80\x80", ". ", "$"}) {
    texts.push_back(repeat(unit, bytes));
    texts.push_back(texts.back() + "x");  // so that a repeated end is not the end of the text
  }
  return texts;
}

std::shared_ptr<const Tokenizer> greedy_byte_pairs(const std::string& pre) {
  return make(byte_pair_file({"a a", "aa aa", "aaaa aaaa", "\xC4\xA0 \xC4\xA0", "\xC4\xA0\xC4\xA0 \xC4\xA0\xC4\xA0",
                              "\xC4\xA0 a", "< |", "7 7", "\xC4\x8A \xC4\x8A"},
                             pre));
}

std::shared_ptr<const Tokenizer> greedy_pieces() {
  return make(sentencepiece_file({"a", "aa", "aaaa", "aaaaaaaa", kMark, kMark + kMark, kMark + kMark + kMark + kMark,
                                  kMark + "a", "<", "|", "<|", "7", "77"}));
}

}  // namespace

TEST_CASE("SentencePiece: hostile texts are encoded, and decoding gives their bytes back") {
  const auto tokenizer = greedy_pieces();
  for (const std::string& text : hostile_texts(kHostileBytes)) {
    REQUIRE((tokenizer->decode(tokenizer->encode(text, {})) == text));  // in two brackets: not into a message
  }
}

TEST_CASE("byte-level BPE: every pre-tokenizer encodes hostile texts, and decoding gives their bytes back") {
  for (const char* pre : kPreTokenizers) {
    const auto tokenizer = greedy_byte_pairs(pre);
    for (const std::string& text : hostile_texts(kHostileBytes)) {
      INFO(pre << ", many times " << text.substr(0, 6));
      REQUIRE((tokenizer->decode(tokenizer->encode(text, {})) == text));
    }
  }
}

TEST_CASE("RWKV: hostile texts are encoded, and decoding gives their bytes back") {
  const auto tokenizer = make(rwkv_file({"aa", "aaaa", "aaaaaaaa", "  ", "\\n\\n", "<|", "77", "\\xe4\\xb8\\xad"}));
  for (const std::string& text : hostile_texts(kHostileBytes)) {
    REQUIRE((tokenizer->decode(tokenizer->encode(text, {})) == text));
  }
}

TEST_CASE("WordPiece: hostile texts are encoded within their size") {
  const auto tokenizer =
      make(wordpiece_file({"a", "##a", "##aaaa", "<", "|", "7", "##7", "$", "'", "\xE4\xB8\xAD", "s"}));
  for (const std::string& text : hostile_texts(kHostileBytes)) {
    const auto ids = tokenizer->encode(text, {});
    REQUIRE(ids.size() <= text.size() + 2);
    REQUIRE((tokenizer->encode(text, {}) == ids));
  }
}

TEST_CASE("a megabyte is merged as fully as a few bytes") {
  for (const char letter : {'a', ' '}) {
    const std::string text(kMegabyte, letter);
    const auto pieces = greedy_pieces()->encode(text, {.add_special = false});
    REQUIRE(pieces.size() <= kMegabyte / 4 + 8);
    REQUIRE((greedy_pieces()->decode(pieces) == text));
    // For byte-level BPE this is one word.
    REQUIRE(greedy_byte_pairs("gpt-2")->encode(text, {}).size() <= kMegabyte / 4);
  }
}

TEST_CASE("encoding and decoding stop soon after their flag is set, with every type of vocabulary") {
  const std::atomic<bool> set{true}, unset{false};
  std::vector<std::shared_ptr<const Tokenizer>> all = {greedy_pieces(), make(rwkv_file({"aa", "aaaa", "77"})),
                                                       make(wordpiece_file({"a", "##a", "7", "##7"}))};
  for (const char* pre : kPreTokenizers) all.push_back(greedy_byte_pairs(pre));
  for (const auto& tokenizer : all) {
    INFO(tokenizer->name());
    for (const char* const unit : {"a", " ", "7", "a ", "\xFF"}) {
      const std::string text = repeat(unit, 4096);
      REQUIRE_THROWS_AS(tokenizer->encode(text, {.interrupt = &set}), Interrupted);
      REQUIRE((tokenizer->encode(text, {.interrupt = &unset}) == tokenizer->encode(text, {})));
    }
    REQUIRE_THROWS_AS(tokenizer->decode(std::vector<TokenId>(4096, 0), &set), Interrupted);
    REQUIRE(tokenizer->decode({0, 1}, &unset) == tokenizer->decode({0, 1}));
  }
}

TEST_CASE("many special tokens with one beginning do not slow a text of that beginning") {
  auto file = byte_pair_file({"< |"});
  auto& tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  auto& types = std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]);
  for (int i = 0; i < 2000; ++i) {
    tokens.push_back("<|" + std::string(static_cast<std::size_t>(i % 40), '|') + std::to_string(i) + "|>");
    types.push_back(i % 2 ? 3 : 4);
  }
  const auto tokenizer = make(file);
  const std::string text = repeat("<|", kMegabyte) + repeat("|", kMegabyte);
  REQUIRE(tokenizer->decode(tokenizer->encode(text, {.add_special = false, .parse_special = true})) == text);
}

TEST_CASE("random bytes and texts: decoding gives the bytes back, and the words together are the text") {
  std::mt19937 random(20240229);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> alphabet = {"a",
                                             "Z",
                                             "9",
                                             " ",
                                             " ",
                                             "\n",
                                             "\r",
                                             "\t",
                                             "'s",
                                             "'",
                                             ".",
                                             "$",
                                             "_",
                                             "<|end|>",
                                             "<s>",
                                             "\xC3\xA9",
                                             "\xE4\xB8\xAD",
                                             "\xF0\x9F\x99\x82",
                                             "\xE2\x80\x8D",
                                             "\xC2\xA0",
                                             "\xE1\xA0\x8E",
                                             "\xCC\x81",
                                             "\xFF",
                                             "\xC0\xAF",
                                             "\xED\xA0\x80",
                                             "\xE4\xB8",
                                             "\x80",
                                             std::string(1, '\0'),
                                             "\xE2\x96\x81"};
  const auto pieces = greedy_pieces();
  for (const char* pre : kPreTokenizers) {
    const auto byte_pairs = greedy_byte_pairs(pre);
    const auto splitter = TextSplitter::create(pre);
    REQUIRE(splitter);
    for (int round = 0; round < 400; ++round) {
      std::string text;
      const bool raw = round % 4 == 0;
      for (std::size_t n = below(60); n > 0; --n) {
        text += raw ? std::string(1, static_cast<char>(below(256))) : alphabet[below(alphabet.size())];
      }
      INFO(pre << ", round " << round);
      REQUIRE(byte_pairs->decode(byte_pairs->encode(text, {.add_special = false})) == text);
      // SentencePiece spells a space as U+2581, so it cannot give that character back.
      if (text.find(kMark) == std::string::npos) REQUIRE(pieces->decode(pieces->encode(text, {})) == text);
      for (const TokenId id : pieces->encode(text, {.add_special = true, .parse_special = true})) {
        REQUIRE(id >= 0);
        REQUIRE(static_cast<std::uint32_t>(id) < pieces->size());
      }
    }
  }
}

namespace {

std::vector<std::string> words_of(const std::string& pre, const std::string& text) {
  const auto splitter = TextSplitter::create(pre);
  if (!splitter) FAIL(splitter.error().message);
  std::vector<std::string_view> words;
  Interrupt never(nullptr);
  splitter->split(text, words, never);
  return {words.begin(), words.end()};
}
using Words = std::vector<std::string>;

}  // namespace

// By hand from the published expressions; no reference vocabulary of these is at hand.
TEST_CASE("pre-tokenizers cut words by their expressions") {
  REQUIRE(words_of("llama-bpe", "It's 12345  ok\n\nGO'S!") ==
          Words{"It", "'s", " ", "123", "45", " ", " ok", "\n\n", "GO", "'S", "!"});
  REQUIRE(words_of("qwen2", "It's 123  ok") == Words{"It", "'s", " ", "1", "2", "3", " ", " ok"});
  REQUIRE(words_of("gpt-2", "It's 123  ok ") == Words{"It", "'s", " 123", " ", " ok", " "});
  REQUIRE(words_of("starcoder", "a 12  b") == Words{"a", " ", "1", "2", " ", " b"});
  REQUIRE(words_of("default", "ab, 1234=x") == Words{"ab", ",", " ", "123", "4", "=", "x"});
  REQUIRE(words_of("falcon", "ab` 1234") == Words{"ab", "`", " ", "123", "4"});
  REQUIRE(words_of("deepseek-coder", "a bc, 12\n\xE4\xB8\xAD\xE6\x96\x87") ==
          Words{"a", " bc", ",", " ", "1", "2", "\n", "\xE4\xB8\xAD\xE6\x96\x87"});
  REQUIRE(words_of("deepseek-llm", "a bc, 12 \xC3\xA9t\xC3\xA9  ") ==
          Words{"a", " bc", ",", " ", "12", " \xC3\xA9", "t", "\xC3\xA9", "  "});  // its :-~ also has a to z
  REQUIRE(words_of("deepseek-v3", "a.bc 1234!") == Words{"a", ".bc", " ", "123", "4", "!"});
  REQUIRE(words_of("tekken", "HTMLParser's don't 12 x/\n\n") ==
          Words{"HTMLParser", "'s", " don", "'t", " ", "1", "2", " x", "/\n\n"});
  REQUIRE(words_of("tekken", "camelCaseABC") == Words{"camel", "Case", "ABC"});
  REQUIRE(words_of("gpt-4o", "I'LL don't 1234") == Words{"I'LL", " don't", " ", "123", "4"});
  REQUIRE(words_of("llama4", "It's") == Words{"It's"});
  REQUIRE(words_of("bloom", "ab (cd), 12") == Words{"ab", " (", "cd", "),", " 12"});
  REQUIRE(words_of("viking", "ab, 12") == Words{"ab", ",", " ", "1", "2"});
  REQUIRE(words_of("qwen35",
                   "a\xCC\x81"
                   "b 12") == Words{"a\xCC\x81"
                                    "b",
                                    " ", "1", "2"});
  REQUIRE(words_of("qwen2",
                   "a\xCC\x81"
                   "b") == Words{"a",
                                 "\xCC\x81"
                                 "b"});
  REQUIRE(words_of("chatglm-bpe", "It's 1234") == words_of("llama-bpe", "It's 1234"));
  REQUIRE(words_of("bailingmoe", "it'd a\n\nb") == Words{"it", "'d", " a", "\n\n", "b"});
  REQUIRE(words_of("seed-coder", "a //\nb") == Words{"a", " //", "\n", "b"});
  REQUIRE(words_of("minicpm5", "a 12345") == Words{"a", " ", "123", "45"});
  REQUIRE(words_of("youtu",
                   "\xE4\xB8\xAD\xEF\xBC\x8C"
                   "a's") == Words{"\xE4\xB8\xAD", "\xEF\xBC\x8C", "a's"});
}

TEST_CASE("a Mongolian vowel separator is not a space, an ideographic space is") {
  const std::string separator = "\xE1\xA0\x8E", ideographic = "\xE3\x80\x80";
  REQUIRE(words_of("gpt-2", " " + separator) == Words{" " + separator});
  REQUIRE(words_of("gpt-2", " " + ideographic + "a") == Words{" ", ideographic, "a"});
}

}  // namespace troupe::engine
