#include "ipc/utf8.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "config/printable.h"

namespace troupe::ipc {
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

TEST_CASE("what goes into a log is one printable line of bounded length") {
  REQUIRE(printable("curl/8 \x1b[31m\n\xc3\xa9") == "curl/8 ?[31m???");
  REQUIRE(printable(std::string(1000, 'x')).size() == 64);
}

}  // namespace
}  // namespace troupe::ipc
