#include "config/utf8.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace troupe {
namespace {

const std::string kReplacement = "\xef\xbf\xbd";

TEST_CASE("text that is UTF-8 stays as it is") {
  for (const std::string text :
       {"", "plain", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    REQUIRE(is_utf8(text));
    REQUIRE(valid_utf8(text) == text);
  }
  REQUIRE(valid_utf8(std::string(1, '\0')) == std::string(1, '\0'));
}

TEST_CASE("every byte outside a character becomes U+FFFD, and the characters around it stay") {
  const std::vector<std::pair<std::string, int>> cases = {
      {"\x80", 1},              // a continuation alone
      {"\xc0\xaf", 2},          // overlong, two bytes
      {"\xc1\xbf", 2},          // overlong, two bytes
      {"\xe0\x9f\xbf", 3},      // overlong, three bytes
      {"\xf0\x8f\xbf\xbf", 4},  // overlong, four bytes
      {"\xed\xa0\x80", 3},      // a surrogate
      {"\xf4\x90\x80\x80", 4},  // above U+10FFFF
      {"\xf5\x80\x80\x80", 4},  // no such lead
      {"\xff", 1},
      {"\xe2\x82", 2},  // cut short
  };
  for (const auto& [bytes, count] : cases) {
    REQUIRE_FALSE(is_utf8(bytes));
    std::string expected = "a";
    for (int i = 0; i < count; ++i) expected += kReplacement;
    REQUIRE(valid_utf8("a" + bytes + "z") == expected + "z");
  }
}

TEST_CASE("an unfinished character at the end is found wherever a text is cut") {
  const std::string text = "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80z";
  const std::vector<std::size_t> kept = {0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 0};
  REQUIRE(kept.size() == text.size() + 1);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) REQUIRE(incomplete_end(text.substr(0, cut)) == kept[cut]);
  // What no byte can complete is not waited for.
  for (const std::string damaged :
       {"\xff", "\xc0", "\x80\x80\x80\x80", "\xe0\x80", "\xed\xa0", "\xf4\x90", "\xc3\xa9\xa9"})
    REQUIRE(incomplete_end(damaged) == 0);
}

}  // namespace
}  // namespace troupe
