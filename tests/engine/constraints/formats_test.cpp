// The formats of JSON Schema against tables of what their RFCs say.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/expressions/formats.h"
#include "engine/constraints/expressions/pattern.h"

namespace troupe::engine::constraints {
namespace {

struct FormatCase {
  std::vector<std::string> in, out;
};

const std::map<std::string_view, FormatCase>& format_cases() {
  static const std::string label(63, 'a');
  static const std::string long_name = label + "." + label + "." + label + "." + std::string(61, 'b');  // 253
  static const std::map<std::string_view, FormatCase> cases = {
      {"date",
       {{"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30", "0000-02-29", "9999-01-01"},
        {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-01-00", "2023-1-1", "23-01-01",
         "2023-02-30", "2023/01/01", "2023-01-32", "02023-01-01", "2023-06-31", "2100-02-29", "2023-001"}}},
      {"time",
       {{"00:00:00Z", "23:59:59z", "12:30:05.123456+05:30", "12:30:05-00:00", "23:59:60Z", "23:59:60.5Z",
         "18:29:60-05:30", "15:59:60-08:00", "01:29:60+01:30", "23:59:60+00:00"},
        {"24:00:00Z", "23:60:00Z", "23:59:61Z", "12:00:00", "12:00Z", "1:00:00Z", "12:00:00.Z", "12:00:00+24:00",
         "12:00:00+0530", "22:59:60Z", "23:58:60Z", "23:59:60+01:00", "12:00:00 Z", "12:00:00,5Z", "12:00:60-05:00"}}},
      {"date-time",
       {{"2024-02-29T12:00:00Z", "1985-04-12t23:20:50.52z", "1996-12-19T16:39:57-08:00", "1990-12-31T15:59:60-08:00"},
        {"2023-02-29T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29T12:00:00", "2024-02-29", "2024-02-29T25:00:00Z",
         "1990-12-31T15:59:60-07:00", "2024-060T12:00:00Z"}}},
      {"duration",
       {{"P4DT12H30M5S", "P1Y", "P1Y2M3D", "P2M1D", "PT36H", "PT1M", "PT1H2M3S", "P4W", "P0D", "P1YT2H"},
        {"", "P", "PT", "P1", "4D", "P1D2H", "P1YT", "P1Y3D", "PT1H3S", "P1W2D", "P1W1Y", "P-1D", "P1.5D", "p1d",
         "P2D1Y", "PT1D"}}},
      {"email",
       {{"a@b", "joe.bloggs@example.com", "!#$%&'*+-/=?^_`{|}~@x.y", "\"a b\"@c.d", "\"a\\\"b@\"@c.d", "a@[127.0.0.1]",
         "a@[IPv6:::1]", std::string(64, 'a') + "@b.c", "a@[IPv6:1:2:3:4:5:6:7:8]"},
        {"",
         "a",
         "@b",
         "a@",
         ".a@b",
         "a.@b",
         "a..b@c",
         "a b@c",
         "a@b@c",
         "a@-b",
         "a@b-",
         "a@b..c",
         "a@b.",
         "a@[127.0.0.256]",
         "a@[IPv6:1]",
         "\"a\"b\"@c",
         "a@[::1]",
         "é@b.c",
         std::string(65, 'a') + "@b.c",
         "a(b)@c",
         "<a@b>",
         "a@b_c"}}},
      {"hostname",
       {{"a", "A1", "1a", "a-b.c", "a--b", "www.example.com", label + ".a", long_name},
        {"", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "a b", "é", label + "a", long_name + "b", "ab--c", "xn--x",
         "a.xn--x", "a\n"}}},
      {"idn-email",
       {{"실례@실례.테스트", "δοκιμή@example.com", "\"δ é\"@c.d", "a@bücher.de", "a@b", std::string(64, 'a') + "@b.c",
         "a@[127.0.0.1]", "ж@日本.jp"},
        {"", "é", "@é", "é@", "a@é..b", "a@-é", "a@é-", "a@xn--é", "a@ab--é", "a@É", "a@é\u0301", "é b@c", "a＠b",
         "a@b。c", "a@ﬁ"}}},
      {"ipv4",
       {{"0.0.0.0", "255.255.255.255", "192.168.10.1", "9.99.100.249"},
        {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.04", "1.2.3.", "1..2.3", "0x1.2.3.4", "1.2.3.4 ", "",
         "300.1.1.1", "1.2.3.260"}}},
      {"ipv6",
       {{"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "fe80::abCD",
         "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "1::1.2.3.4", "::1.2.3.4", "1:2:3::6:7:8"},
        {"",
         ":",
         ":::",
         "1",
         "1:2:3:4:5:6:7",
         "1:2:3:4:5:6:7:8:9",
         "1::2::3",
         "12345::",
         "g::",
         "1:2:3:4:5:6:7:1.2.3.4",
         "::1.2.3",
         "::1.2.3.256",
         "1.2.3.4",
         "1:2:3:4:5:6:7:",
         ":1:2:3:4:5:6:7",
         "fe80::1%eth0",
         "[::1]",
         "1:2:3:4::5:6:7:8",
         "1:2:3:4:5::6:7:1.2.3.4",
         "::1.2.3.4:5"}}},
      {"uuid",
       {{"2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380",
         "00000000-0000-0000-0000-000000000000"},
        {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
         "2eb8aa08-aa98-11ea-b4aa-73b441d163800", "{2eb8aa08-aa98-11ea-b4aa-73b441d16380}",
         "2eb8aa08-aa98-11ea-b4ga-73b441d16380", "2eb8aa0-8aa98-11ea-b4aa-73b441d16380"}}},
      {"uri",
       {{"http://a/b?c=d#e", "mailto:a@b.c", "urn:x:y", "a:", "a:/", "a:b", "http://u:p@h:80/p;q=1/%20?x/y?z",
         "ftp://[::1]:21/", "x://[v1.a:b]", "a+b-c.1:d", "http://", "file:///etc/x", "http://1.2.3.4", "http://a?b",
         "http://a#"},
        {"",
         "a",
         "//a/b",
         "/a",
         ":a",
         "1a:b",
         "a b:c",
         "http://a b",
         "http://a/%2",
         "http://a/%zz",
         "http://[::1",
         "http://[1]",
         "http://a:b/",
         "a:é",
         "http://a/\"",
         "http://a/<b>",
         "http://a/\\",
         "http://a/{b}",
         "http://a#b#c",
         "http://a@b@c",
         "http://a/[b]",
         "http://a^"}}},
      {"uri-reference",
       {{"", "a", "/a", "//a/b", "?a", "#a", "../a/b", "a/b:c", "./a:b", "http://a/b", "//"},
        {"1:b", "a b", "\\a", "#a#b", "%", "a^", "é", "//a:b", "[a]"}}},
      {"iri",
       {{"http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://a/b", "x:/\U0001F600", "http://a?\uE000"},
        {"/é", "http://a b", "http://[::1", "x:\\", "http://a/\uE000", "x:\uFFFE"}}},
      {"iri-reference", {{"é", "//ƒøø.ßår/é", "#é", "", "a"}, {"\\é", "é b", "#a#b"}}},
      {"uri-template",
       {{"", "a/b", "{a}", "{+a,b}", "{#a*}", "{?a,b:3}", "x{a.b}y{c}", "{%41}", "é%20", "{a_1}"},
        {"{", "}", "{}", "{a", "{a,}", "{a b}", "a b", "%2", "<a>", "{a:0}", "{a:12345}", "{a.}", "{!a}", "{a*:1}",
         "\"", "\\", "^", "`", "|"}}},
      {"json-pointer",
       {{"", "/", "/a", "/a/b", "/~0~1", "//", "/é /\"", "/0"}, {"a", "#", "#/a", "/~", "/~2", "/a~", "0"}}},
      {"regex",
       {{"", "a", "^[a-zA-Z0-9_-]+$", "([abc])+\\s+$", "(?:a|b(?=c)(?!d)){2,5}?", "\\d{3}-\\.\\/", "[^\\]\\-x]", "[-a]",
         "[a-]", "a||b", "()", "((((a))))", "\\u00e9\\xe9", "x{3}y{4,}z{0,12}", ".*\\bé\\B", "[[a]", "[^^]",
         "[0-9a-f]"},
        {"(",     "a)",    "[a",    "a]",      "*",           "a**",     "a{2,1}", "a{",     "}",
         "\\",    "\\a",   "\\1",   "[z-a]",   "[9-0]",       "(?<n>a)", "(?i)a",  "^*",     "(?=a)+",
         "\\xg0", "\\u12", "a{,3}", "\\ud800", "(((((a)))))", "[\\q]",   "\\p{L}", "[a-\\d]"}}},
      {"relative-json-pointer",
       {{"0", "1/a", "0#", "12/a/b", "0/", "0/~0"}, {"", "/a", "-1/a", "01", "1#a", "0##", "+1/a", "1a", "0/~", "#"}}},
  };
  return cases;
}

TEST_CASE("every format takes what its RFC says, and nothing else") {
  for (const auto& [name, format] : format_cases())
    for (const Writing writing : {Writing::plain, Writing::json}) {
      RegexPool pool;
      const auto texts = format_texts(pool, name, writing);
      REQUIRE(texts);
      for (const std::string& text : format.in) {
        INFO(name << ": " << text);
        CHECK(pool.matches(*texts, written(text, writing)));
      }
      for (const std::string& text : format.out) {
        INFO(name << ": " << text);
        CHECK_FALSE(pool.matches(*texts, written(text, writing)));
      }
      CHECK(pool.shortest(*texts) != RegexPool::kNoLength);
    }
}

TEST_CASE("each known format has a table here, unknown ones are none") {
  std::vector<std::string_view> names;
  for (const auto& [name, format] : format_cases()) names.push_back(name);
  CHECK(std::ranges::equal(known_formats(), names));
  RegexPool pool;
  CHECK(is_exact_format("date"));
  CHECK(is_exact_format("uri"));
  for (const char* other : {"hostname", "regex", "unknown", ""}) CHECK_FALSE(is_exact_format(other));
  for (const char* unknown : {"", "Date", "int32", "date ", "zzz"})
    CHECK_FALSE(format_texts(pool, unknown, Writing::json));
}

TEST_CASE("a format is made of few expressions") {
  for (const std::string_view name : known_formats()) {
    RegexPool pool;
    const auto texts = format_texts(pool, name, Writing::json);
    REQUIRE(texts);
    CHECK(pool.shortest(*texts) < 40);
    INFO(name);
    CHECK(pool.size() < 2000);
  }
}

TEST_CASE("a regular expression of the format can be read, at random") {
  RegexPool pool;
  const RegexId expressions = *format_texts(pool, "regex", Writing::plain);
  std::mt19937 random(21);
  constexpr std::string_view kBytes = "ab09-^$\\.*+?()[]{},|:=!xu1234dwsB\n ";
  std::size_t longest = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text;
    RegexId at = expressions;
    while (text.size() < 60 && !(pool.accepts_empty(at) && random() % 16 == 0)) {
      const char byte = kBytes[random() % kBytes.size()];
      const RegexId next = pool.next(at, static_cast<std::uint8_t>(byte));
      if (next == kNoText) continue;
      at = next;
      text += byte;
    }
    text += pool.shortest_text(at);
    RegexPool other;
    const auto parsed = parse_pattern(other, text, Writing::json, PatternExtent::somewhere);
    INFO(text);
    CHECK((parsed || parsed.error().code == ErrorCode::unsupported));
    longest = std::max(longest, text.size());
  }
  CHECK(longest >= 60);
}

TEST_CASE("dates are the days of the calendar") {
  RegexPool pool;
  const RegexId dates = *format_texts(pool, "date", Writing::plain);
  const auto is_leap = [](int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); };
  std::size_t num_days = 0, expected = 0;
  char text[16];
  for (int year = 1596; year < 2006; ++year) {
    expected += is_leap(year) ? 366 : 365;
    for (int month = 0; month < 14; ++month)
      for (int day = 0; day < 33; ++day) {
        std::snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
        const bool is_day = pool.matches(dates, text);
        num_days += is_day;
        if (month == 2 && day == 29 && is_day != is_leap(year)) FAIL_CHECK(text);
      }
  }
  CHECK(num_days == expected);
}

}  // namespace
}  // namespace troupe::engine::constraints
