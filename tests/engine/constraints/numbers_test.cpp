// Texts of numbers: bounds and multiples against exact comparison, and how values are written.
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/expressions/numbers.h"
#include "engine/constraints/expressions/value_text.h"

namespace troupe::engine::constraints {
namespace {

Decimal decimal(std::string_view text) {
  const auto value = chat::parse_json(text);
  REQUIRE(value);
  const auto exact = decimal_of(*value);
  REQUIRE(exact);
  return *exact;
}

RegexId texts_of(RegexPool& pool, const NumberRange& range) {
  const auto texts = number_texts(pool, range);
  if (!texts) FAIL(texts.error().message);
  return *texts;
}

std::string with_point(std::int64_t value, std::size_t scale) {
  std::string digits = std::to_string(std::abs(value));
  if (digits.size() <= scale) digits.insert(0, scale + 1 - digits.size(), '0');
  if (scale > 0) digits.insert(digits.size() - scale, ".");
  return (value < 0 ? "-" : "") + digits;
}

TEST_CASE("decimals are exact and compare by value") {
  struct Case {
    const char* json;
    const char* text;
  };
  for (const Case& each :
       std::initializer_list<Case>{{"0", "0"},
                                   {"-0", "0"},
                                   {"-0.0", "0"},
                                   {"7", "7"},
                                   {"-120", "-120"},
                                   {"1.50", "1.5"},
                                   {"-0.001", "-0.001"},
                                   {"1e2", "100"},
                                   {"1.5e-7", "0.00000015"},
                                   {"1e22", "10000000000000000000000"},
                                   {"123456789012345678901234567890", "123456789012345678901234567890"},
                                   {"-9223372036854775808", "-9223372036854775808"},
                                   {"0.1", "0.1"}}) {
    INFO(each.json);
    CHECK(decimal(each.json).text() == each.text);
  }
  CHECK(decimal("2.0").is_integer());
  CHECK_FALSE(decimal("2.5").is_integer());
  CHECK_FALSE(decimal_of(chat::Json("2")));
  CHECK_FALSE(decimal_of(chat::Json(true)));
  CHECK_FALSE(decimal_of(chat::Json(std::nan(""))));
  CHECK_FALSE(decimal_of(chat::Json(chat::LargeInteger{std::string(401, '9')})));
  CHECK(decimal_of(chat::Json(1.7976931348623157e308))->digits.size() == 309);
  CHECK(decimal_of(chat::Json(5e-324))->scale == 324);

  const std::vector<const char*> ascending = {"-100", "-20.5", "-20",  "-3", "-0.5", "-0.05", "0",
                                              "0.05", "0.5",   "0.51", "3",  "20",   "100",   "1e30"};
  for (std::size_t a = 0; a < ascending.size(); ++a)
    for (std::size_t b = 0; b < ascending.size(); ++b) {
      INFO(ascending[a] << " and " << ascending[b]);
      CHECK((decimal(ascending[a]) <=> decimal(ascending[b])) == (a <=> b));
    }
}

TEST_CASE("bounds hold exactly, at random") {
  std::mt19937 random(5);
  const auto any_decimal = [&](int spread) {
    const std::size_t scale = random() % 4;
    return with_point(static_cast<std::int64_t>(random() % (2 * spread + 1)) - spread, scale);
  };
  std::size_t num_inside = 0, num_tried = 0;
  for (int round = 0; round < 800; ++round) {
    const int spread = round % 3 == 0 ? 30 : round % 3 == 1 ? 1200 : 2'000'000;
    NumberRange range;
    range.integer = random() % 3 == 0;
    const auto bound = [&] { return NumberBound{decimal(any_decimal(spread)), random() % 2 == 0}; };
    if (random() % 4 != 0) range.low = bound();
    if (random() % 4 != 0 || !range.low) range.high = bound();
    RegexPool pool;
    const RegexId texts = texts_of(pool, range);
    std::vector<std::string> tried = {"0", "0.0", "0.00", "1", "-1", "0.5", "-0.001"};
    for (const auto& end : {range.low, range.high}) {
      if (!end) continue;
      const std::string text = end->value.text();
      for (const char* more : {"", "0", "1", "9"})
        tried.push_back(text + (end->value.is_integer() ? "." : "") + more + "0");
      tried.push_back(text);
      for (const char* further : {"1", "-1"}) {
        const std::int64_t whole = std::strtoll(text.c_str(), nullptr, 10) + std::strtoll(further, nullptr, 10);
        tried.push_back(std::to_string(whole));
      }
    }
    for (int more = 0; more < 12; ++more) tried.push_back(any_decimal(spread * 2));
    for (const std::string& text : tried) {
      const bool is_fraction = text.find('.') != std::string::npos;
      const bool negative_zero = text.starts_with('-') && text.find_first_of("123456789") == std::string::npos;
      const bool expected = contains(range, decimal(text)) && !(range.integer && is_fraction) && !negative_zero;
      if (pool.matches(texts, text) != expected)
        FAIL_CHECK(text << " in " << (range.low ? range.low->value.text() : "")
                        << (range.low && range.low->excluded ? " (" : " [") << " to "
                        << (range.high ? range.high->value.text() : "")
                        << (range.high && range.high->excluded ? " )" : " ]") << (range.integer ? " integer" : ""));
      num_inside += expected;
      ++num_tried;
    }
    for (const char* other : {"-0", "-0.0", "00", "01", "-01", "1.", ".5", "1e1", "1E1", "+1", "", "-", "- 1", "1 "}) {
      INFO(other);
      CHECK_FALSE(pool.matches(texts, other));
    }
  }
  CHECK(num_inside > num_tried / 5);
  CHECK(num_inside < num_tried * 4 / 5);
}

TEST_CASE("integers of a range are those of a range, each") {
  std::mt19937 random(6);
  for (int round = 0; round < 60; ++round) {
    const int low = static_cast<int>(random() % 400) - 200, high = low + static_cast<int>(random() % 250) - 5;
    NumberRange range{.integer = true,
                      .low = NumberBound{decimal(std::to_string(low)), random() % 2 == 0},
                      .high = NumberBound{decimal(std::to_string(high)), random() % 2 == 0}};
    RegexPool pool;
    const RegexId texts = texts_of(pool, range);
    const int first = low + range.low->excluded, last = high - range.high->excluded;
    for (int each = -1100; each <= 1100; ++each)
      if (pool.matches(texts, std::to_string(each)) != (each >= first && each <= last))
        FAIL_CHECK(each << " in " << first << " to " << last);
    CHECK((pool.shortest(texts) == RegexPool::kNoLength) == (first > last));
  }
}

TEST_CASE("large bounds are exact as well") {
  const auto check = [](const NumberRange& range, const char* in, const char* out) {
    RegexPool pool;
    const RegexId texts = texts_of(pool, range);
    INFO(in << " and " << out);
    CHECK(pool.matches(texts, in));
    CHECK_FALSE(pool.matches(texts, out));
  };
  const NumberBound max_int{decimal("9223372036854775807"), false}, min_int{decimal("-9223372036854775808"), false};
  check({.integer = true, .low = min_int, .high = max_int}, "9223372036854775807", "9223372036854775808");
  check({.integer = true, .low = min_int, .high = max_int}, "-9223372036854775808", "-9223372036854775809");
  const std::string googol = "1" + std::string(100, '0');
  const NumberBound large{*decimal_of(chat::Json(chat::LargeInteger{googol})), true};
  check({.integer = false, .low = large}, (googol + ".1").c_str(), googol.c_str());
  const Decimal larger = *decimal_of(chat::Json(1e305));
  check({.integer = true, .low = NumberBound{larger, false}}, larger.text().c_str(),
        ("1" + std::string(304, '0')).c_str());
}

TEST_CASE("multiples are told exactly, at random") {
  std::mt19937 random(9);
  std::size_t num_multiples = 0;
  for (int round = 0; round < 50; ++round) {
    NumberRange range;
    range.integer = random() % 3 == 0;
    const std::size_t num = 1 + random() % 2;
    for (std::size_t each = 0; each < num; ++each)
      range.multiples_of.push_back(decimal(with_point(1 + random() % (each == 0 ? 300 : 12), random() % 3)));
    if (random() % 3 == 0)
      range.low = NumberBound{decimal(std::to_string(static_cast<int>(random() % 40) - 20)), false};
    RegexPool pool;
    const RegexId texts = texts_of(pool, range);
    std::string of;
    for (const Decimal& each : range.multiples_of) of += each.text() + " ";
    for (int tried = 0; tried < 250; ++tried) {
      std::string text;
      if (tried % 2 == 0) {
        text = with_point(static_cast<std::int64_t>(random() % 6000) - 3000, random() % 4);
      } else {
        const Decimal& multiple = range.multiples_of[0];
        const std::int64_t times = static_cast<std::int64_t>(random() % 400) - 200;
        text = with_point(times * std::strtoll(multiple.digits.c_str(), nullptr, 10), multiple.scale);
        if (multiple.scale > 0 && random() % 3 == 0) text += "00";
      }
      const bool is_fraction = text.find('.') != std::string::npos;
      const bool negative_zero = text.starts_with('-') && text.find_first_of("123456789") == std::string::npos;
      const bool expected = contains(range, decimal(text)) && !(range.integer && is_fraction) && !negative_zero;
      if (pool.matches(texts, text) != expected) FAIL_CHECK(text << " as a multiple of " << of << range.integer);
      num_multiples += expected;
    }
  }
  CHECK(num_multiples > 1000);
}

TEST_CASE("multiples by hand, and those that are refused") {
  struct Case {
    const char* of;
    bool integer;
    std::vector<const char*> in, out;
  };
  for (const Case& each :
       std::vector<Case>{{"1", false, {"0", "7", "-7", "7.0", "7.00"}, {"7.5", "0.1", "7.01"}},
                         {"1", true, {"0", "7"}, {"7.0"}},
                         {"0.01", false, {"0", "0.01", "12.34", "12.340", "-5"}, {"0.001", "12.345"}},
                         {"2.5", false, {"0", "2.5", "5", "7.50", "-10.0"}, {"1", "2.51", "3"}},
                         {"2.5", true, {"0", "5", "10", "-15"}, {"2", "7"}},
                         {"1000", false, {"0", "1000", "123000", "5000.0"}, {"100", "1500", "1000.5", "0.1"}},
                         {"1000000007000", true, {"0"}, {"1"}},
                         {"0.0001", false, {"0.0075"}, {"0.00751"}},
                         {"1024", true, {"1024", "1048576"}, {"1023", "512"}},
                         {"86400", true, {"86400", "172800"}, {"86401", "8640"}}}) {
    RegexPool pool;
    NumberRange range{.integer = each.integer};
    range.multiples_of.push_back(decimal(each.of));
    const auto texts = number_texts(pool, range);
    if (std::string_view(each.of) == "1000000007000") {
      REQUIRE_FALSE(texts);
      CHECK(texts.error().code == ErrorCode::unsupported);
      CHECK_THAT(texts.error().message, Catch::Contains("1000000007000") && Catch::Contains("8192"));
      continue;
    }
    REQUIRE(texts);
    for (const char* text : each.in) {
      INFO(text << " and " << each.of);
      CHECK(pool.matches(*texts, text));
    }
    for (const char* text : each.out) {
      INFO(text << " and " << each.of);
      CHECK_FALSE(pool.matches(*texts, text));
    }
  }
  // Together they are too many, though each is not.
  RegexPool pool;
  NumberRange range{.integer = true, .multiples_of = {decimal("7919"), decimal("7907")}};
  CHECK_FALSE(number_texts(pool, range));
  range.multiples_of.pop_back();
  CHECK(number_texts(pool, range));
}

TEST_CASE("numbers without bounds are all those of JSON that a double holds") {
  RegexPool pool;
  const RegexId texts = texts_of(pool, {});
  for (const char* text :
       {"0", "-0", "10", "-1.50", "1e5", "1E+5", "-2.5e-10", "0e0", "1e005", "0.0", "1e307", "9.99e307",
        "1.7976931348623157e308", "1.7976931348623157E+0308", "1.5e308", "1e308", "5e-324", "1e-400", "123456e99"}) {
    INFO(text);
    CHECK(pool.matches(texts, text));
    CHECK(std::isfinite(std::strtod(text, nullptr)));
  }
  for (const char* text : {"", "-", "+1", "01", "1.", ".1", "1e", "1e+", "1e309", "2e308", "1.7976931348623158e308",
                           "1.8e308", "1e1000", "1e99999", "0x1", "NaN", "Infinity", "1.e1", "--1"}) {
    INFO(text);
    CHECK_FALSE(pool.matches(texts, text));
  }
  CHECK(pool.matches(texts, std::string(300, '9')));
  CHECK_FALSE(pool.matches(texts, std::string(301, '9')));
  CHECK(pool.matches(texts, std::string(200, '9') + "e99"));
  CHECK_FALSE(pool.matches(texts, std::string(300, '9') + "e99"));
  const RegexId integers = texts_of(pool, {.integer = true});
  for (const char* text : {"0", "-17", "123456789012345678901234567890"}) CHECK(pool.matches(integers, text));
  for (const char* text : {"1.0", "1e2", "01", "", "-"}) CHECK_FALSE(pool.matches(integers, text));

  // Each double, as it is written.
  std::mt19937_64 random(12);
  for (int round = 0; round < 2000; ++round) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const std::string text = value_text(chat::Json(value));
    if (!pool.matches(texts, text)) FAIL_CHECK(text);
  }
}

TEST_CASE("values are written compactly, numbers as JavaScript prints them") {
  struct Case {
    double value;
    const char* text;
  };
  for (const Case& each : std::initializer_list<Case>{{0.0, "0"},
                                                      {-0.0, "0"},
                                                      {1.0, "1"},
                                                      {-2.5, "-2.5"},
                                                      {100.0, "100"},
                                                      {1e20, "100000000000000000000"},
                                                      {1e21, "1e+21"},
                                                      {1.5e300, "1.5e+300"},
                                                      {123456789012345680000.0, "123456789012345680000"},
                                                      {0.1, "0.1"},
                                                      {0.000001, "0.000001"},
                                                      {0.00000123, "0.00000123"},
                                                      {1e-7, "1e-7"},
                                                      {-1.25e-9, "-1.25e-9"},
                                                      {5e-324, "5e-324"},
                                                      {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                      {123.456, "123.456"}})
    CHECK(value_text(chat::Json(each.value)) == each.text);
  std::mt19937_64 random(13);
  for (int round = 0; round < 2000; ++round) {
    const double value =
        round % 2 == 0 ? std::bit_cast<double>(random()) : static_cast<double>(random() % 1'000'000'000) / 1000;
    if (std::isfinite(value)) CHECK(std::strtod(value_text(chat::Json(value)).c_str(), nullptr) == value);
  }
  const auto parsed = chat::parse_json(
      R"( {"a" : [1, 2.0, -0.5, true, false, null, "x\ny\"\u0001é"], "b\t": {}, "c": [], "d": {"e": 12345678901234567890}} )");
  REQUIRE(parsed);
  CHECK(value_text(*parsed) ==
        R"({"a":[1,2,-0.5,true,false,null,"x\ny\"\u0001é"],"b\t":{},"c":[],"d":{"e":12345678901234567890}})");
  chat::Json deep;
  for (int level = 0; level < 1000; ++level) {
    chat::Json::List list;
    list.push_back(std::move(deep));
    deep = chat::Json(std::move(list));
  }
  CHECK(value_text(deep) == std::string(1000, '[') + "null" + std::string(1000, ']'));
}

}  // namespace
}  // namespace troupe::engine::constraints
