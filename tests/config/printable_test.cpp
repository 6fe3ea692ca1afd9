#include "config/printable.h"

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "config/utf8.h"

namespace troupe {
namespace {

// Control characters, and characters that make a text look like another one.
const std::vector<std::pair<std::string, std::string>> kShown = {
    {"\n", "\\n"},
    {"\r", "\\r"},
    {"\t", "\\t"},
    {std::string(1, '\0'), "\\x00"},
    {"\a", "\\x07"},
    {"\x1b", "\\x1b"},
    {"\x7f", "\\x7f"},
    {"\xc2\x80", "\\u0080"},      // C1
    {"\xc2\x9b", "\\u009b"},      // C1: begins a sequence, as ESC [
    {"\xe2\x80\x8b", "\\u200b"},  // a space without width
    {"\xe2\x80\x8f", "\\u200f"},  // right to left from here
    {"\xe2\x80\xa8", "\\u2028"},  // a line ends
    {"\xe2\x80\xae", "\\u202e"},  // overrides the direction
    {"\xe2\x81\xa6", "\\u2066"},  // isolates
    {"\xe2\x81\xa9", "\\u2069"},
    {"\xef\xbb\xbf", "\\ufeff"},
    {"\x9b", "\\x9b"},                    // not UTF-8
    {"\xc3", "\\xc3"},                    // cut short
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // a surrogate
};

bool obeys_nothing(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char next = next_utf8(text);
    const char32_t code = next.code_point;
    if (next.status != Utf8Status::valid || code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    if (code >= 0x202a && code <= 0x202e) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

TEST_CASE("what goes into a log is one printable line of bounded length") {
  CHECK(Printable("curl/8 \x1b[31m\n\xc3\xa9") == "curl/8 \\x1b[31m\\n\xc3\xa9");
  CHECK(Printable(std::string(1000, 'x')).text().size() == kMaxNameBytes);
  for (const auto& [text, shown] : kShown) CHECK(Printable("a" + text + "z") == "a" + shown + "z");
}

TEST_CASE("names in any script stay readable") {
  for (const std::string name : {"", "tales-5m", "D\xc3\xa9j\xc3\xa0 vu", "\xe6\xbc\xa2\xe5\xad\x97", "C:\\models\\x",
                                 "\xf0\x9f\x98\x80", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d"})
    CHECK(Printable(name) == name);
}

TEST_CASE("what is too long is cut before a character or an escape, at exactly the limit and not before") {
  const std::string text = "ab\xc3\xa9\x1b\xe6\xbc\xa2z";  // shown in 12 bytes
  CHECK(Printable(text, 12) == "ab\xc3\xa9\\x1b\xe6\xbc\xa2z");
  const std::vector<std::string> cut = {
      "", "a", "ab", "ab", "ab\xc3\xa9", "ab\xc3\xa9", "ab\xc3\xa9", "ab\xc3\xa9", "ab\xc3\xa9\\x1b"};
  for (std::size_t bytes = 3; bytes < 12; ++bytes) {
    INFO(bytes);
    CHECK(Printable(text, bytes) == cut[bytes - 3] + "\u2026");
  }
  CHECK(Printable(text, 2) == "ab");
  CHECK(Printable(text, 1) == "a");
  CHECK(Printable(text, 0) == "");
}

TEST_CASE("printable text of random bytes is UTF-8 that nothing obeys, within its bound, and stays as it is") {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::size_t bytes = random() % 40;
    const Printable once(text, bytes);
    CAPTURE(text, bytes);
    REQUIRE(obeys_nothing(once));
    REQUIRE(once.text().size() <= bytes);
    REQUIRE(Printable(once, bytes) == once.text());
  }
}

TEST_CASE("printable text goes into strings and streams") {
  std::ostringstream out;
  out << "<" << Printable("\x1b") << ">";
  CHECK(out.str() == "<\\x1b>");
  CHECK("name '" + Printable("\n") + "'" == "name '\\n'");
}

TEST_CASE("printable JSON holds the same values, and nothing that a terminal obeys") {
  CHECK(printable_json("{\n \"k\": \"\\u001b\xc3\xa9\x7f\xc2\x9b\xe2\x80\xae\"\n}") ==
        "{\n \"k\": \"\\u001b\xc3\xa9\\u007f\\u009b\\u202e\"\n}");
}

TEST_CASE("a model's text reaches a terminal as it is, but for what the terminal would obey") {
  TerminalText text;
  CHECK(text.show("line\n\tindented \xc3\xa9\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac") ==
        "line\n\tindented \xc3\xa9\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac");
  CHECK(text.show("\x1b]0;title\x07\r\x7f\xc2\x9b\xe2\x80\xae\xff") == "\\x1b]0;title\\x07\\r\\x7f\\u009b\\u202e\\xff");
  CHECK(text.end().empty());
}

TEST_CASE("a model's text is shown the same wherever it is split") {
  const std::string text = "a\x1b[2J\xc2\x9b\x31m\xe6\xbc\xa2\xf0\x9f\x98\x80\xe2\x80\xae\xe2\x80z\xc3";
  const std::string shown = TerminalText::of(text);
  CHECK(shown == "a\\x1b[2J\\u009b1m\xe6\xbc\xa2\xf0\x9f\x98\x80\\u202e\\xe2\\x80z\\xc3");
  for (std::size_t first = 0; first <= text.size(); ++first)
    for (std::size_t second = first; second <= text.size(); ++second) {
      TerminalText pieces;
      std::string out = pieces.show(text.substr(0, first));
      REQUIRE(is_utf8(out));
      out += pieces.show(text.substr(first, second - first));
      REQUIRE(is_utf8(out));
      out += pieces.show(text.substr(second));
      out += pieces.end();
      REQUIRE(out == shown);
    }
}

}  // namespace
}  // namespace troupe
