#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "config/utf8.h"
#include "engine/tokenizers/tokenizer.h"
#include "engine/tokenizers/unicode.h"
#include "tests/engine/metadata_file.h"

namespace troupe::engine {
namespace {

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

// Ids of a SentencePiece-type vocabulary whose byte b is token 3 + b.
std::shared_ptr<const Tokenizer> byte_tokenizer() {
  const auto tokenizer = make_tokenizer(test::sentencepiece_file({"caf\xC3\xA9", "\xE2\x96\x81the"}));
  if (!tokenizer) FAIL(tokenizer.error().message);
  return *tokenizer;
}
std::vector<TokenId> byte_ids(const std::string& bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.push_back(3 + static_cast<std::uint8_t>(c));
  return ids;
}

std::vector<std::string> stream(const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(byte_tokenizer());
  std::vector<std::string> parts;
  for (const TokenId id : ids) parts.push_back(detokenizer.push(id));
  parts.push_back(detokenizer.flush());
  return parts;
}
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}
std::string detokenized(const std::string& bytes) { return joined(stream(byte_ids(bytes))); }

using Parts = std::vector<std::string>;

}  // namespace

TEST_CASE("a character of several tokens is returned with its last byte") {
  REQUIRE(stream(byte_ids("a\xC3\xA9z")) == Parts{"a", "", "\xC3\xA9", "z", ""});
  REQUIRE(stream(byte_ids("\xF0\x9F\x99\x82")) == Parts{"", "", "", "\xF0\x9F\x99\x82", ""});
  REQUIRE(stream({259, 260, 1, 2}) == Parts{"caf\xC3\xA9", " the", "", "", ""});
}

TEST_CASE("an incomplete character at the end becomes one U+FFFD") {
  REQUIRE(stream(byte_ids("ab\xF0\x9F\x99")).back() == kBad);
  Detokenizer detokenizer(byte_tokenizer());
  REQUIRE(detokenizer.push(3 + 0xE4).empty());
  REQUIRE(detokenizer.flush() == kBad);
  REQUIRE(detokenizer.flush().empty());
  REQUIRE(detokenizer.push(3 + 'a') == "a");
}

TEST_CASE("bytes that cannot be UTF-8 become U+FFFD by maximal subparts") {
  REQUIRE(detokenized("\x80z") == kBad + "z");
  REQUIRE(detokenized("\xC0\xAF") == kBad + kBad);                        // overlong
  REQUIRE(detokenized("\xE0\x80\xAF") == kBad + kBad + kBad);             // overlong
  REQUIRE(detokenized("\xED\xA0\x80") == kBad + kBad + kBad);             // surrogate
  REQUIRE(detokenized("\xF4\x90\x80\x80") == kBad + kBad + kBad + kBad);  // beyond U+10FFFF
  REQUIRE(detokenized("\xFF\xFE") == kBad + kBad);
  // The example of The Unicode Standard, section 3.9, table 3-8.
  REQUIRE(detokenized("\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64") ==
          kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
}

TEST_CASE("every code point, pushed byte by byte, is returned unchanged") {
  Detokenizer detokenizer(byte_tokenizer());
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    std::string out;
    for (const TokenId id : byte_ids(text)) out += detokenizer.push(id);
    if (out != text) FAIL("U+" << std::hex << static_cast<std::uint32_t>(c));
    REQUIRE(next_utf8(text).code_point == c);
  }
}

TEST_CASE("random bytes: every part is valid UTF-8, and streaming equals the whole") {
  std::mt19937 random(7);
  const std::string likely = "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x99\x82\xED\xA0\xF4\x90\xE0\x80";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::size_t n = random() % 40; n > 0; --n) {
      bytes += random() % 3 ? likely[random() % likely.size()] : static_cast<char>(random() % 256);
    }
    const Parts parts = stream(byte_ids(bytes));
    for (const std::string& part : parts) REQUIRE(is_utf8(part));
    std::string whole;
    for (std::string_view rest = bytes; !rest.empty();) {
      const Utf8Char next = next_utf8(rest);
      whole += next.status == Utf8Status::valid ? std::string(rest.substr(0, next.length)) : kBad;
      rest.remove_prefix(next.length);
    }
    REQUIRE(joined(parts) == whole);
  }
}

}  // namespace troupe::engine
