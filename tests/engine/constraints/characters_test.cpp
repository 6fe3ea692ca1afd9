// Sets of characters, and what they are in UTF-8 and within the quotes of JSON.
#include <array>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/chat/values/json.h"
#include "engine/constraints/expressions/characters.h"
#include "engine/constraints/expressions/unicode_sets.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::constraints {
namespace {

using Ranges = std::vector<std::pair<char32_t, char32_t>>;

std::string utf8_of(char32_t code_point) {
  std::string text;
  append_utf8(text, code_point);
  return text;
}

bool is_character_of_unicode(char32_t code_point) { return code_point < 0xD800 || code_point > 0xDFFF; }

TEST_CASE("ranges of characters are kept ascending, joined where they touch, and without surrogates") {
  CodePoints set;
  set.add('m', 'p');
  set.add('a', 'c');
  CHECK(set.ranges() == Ranges{{'a', 'c'}, {'m', 'p'}});
  set.add('d', 'd');
  CHECK(set.ranges() == Ranges{{'a', 'd'}, {'m', 'p'}});
  set.add('b', 'l');
  CHECK(set.ranges() == Ranges{{'a', 'p'}});
  set.add('z', 'y');
  CHECK(set.ranges() == Ranges{{'a', 'p'}});
  CHECK(CodePoints::of(0xD800, 0xDFFF).empty());
  CHECK(CodePoints::of(0xD000, 0xE000).ranges() == Ranges{{0xD000, 0xD7FF}, {0xE000, 0xE000}});
  CHECK(CodePoints::of(0x10FFFE, 0x7FFFFFFF).ranges() == Ranges{{0x10FFFE, 0x10FFFF}});
  CHECK(CodePoints::all().ranges() == Ranges{{0, 0xD7FF}, {0xE000, 0x10FFFF}});
  CHECK(CodePoints::all().complement().empty());
  CHECK(CodePoints().complement().ranges() == CodePoints::all().ranges());
}

TEST_CASE("sets of characters are what their members say, at random") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::array<CodePoints, 2> sets;
    std::array<std::array<bool, 64>, 2> members{};
    for (std::size_t which = 0; which < 2; ++which)
      for (unsigned ranges = random() % 6; ranges > 0; --ranges) {
        const unsigned first = random() % 64, last = first + random() % 12;
        sets[which].add(first, last);
        for (unsigned each = first; each <= last && each < 64; ++each) members[which][each] = true;
      }
    CodePoints united = sets[0];
    united.add(sets[1]);
    for (unsigned each = 0; each < 64; ++each) {
      CHECK(sets[0].contains(each) == members[0][each]);
      CHECK(united.contains(each) == (members[0][each] || members[1][each]));
      CHECK(sets[0].intersection(sets[1]).contains(each) == (members[0][each] && members[1][each]));
      CHECK(sets[0].complement().contains(each) == !members[0][each]);
    }
  }
}

TEST_CASE("a set of characters is the UTF-8 of its members and of no other") {
  const std::vector<char32_t> ends = {0,       0x1F,    0x7F,    0x80,     0x7FF,   0x800,  0xFFF,
                                      0x1000,  0xCFFF,  0xD000,  0xD7FF,   0xE000,  0xFFFF, 0x10000,
                                      0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF};
  std::mt19937 random(8);
  const auto any = [&]() -> char32_t {
    if (random() % 2 == 0) return ends[random() % ends.size()];
    return random() % 0x110000;
  };
  for (int round = 0; round < 60; ++round) {
    RegexPool pool;
    CodePoints set;
    for (unsigned ranges = 1 + random() % 5; ranges > 0; --ranges) {
      const char32_t first = any();
      set.add(first, random() % 3 == 0 ? any() : first + random() % 300);
    }
    const RegexId id = character(pool, set, Writing::plain);
    std::vector<char32_t> tried(ends);
    for (const auto& [first, last] : set.ranges())
      for (const char32_t each : std::initializer_list<char32_t>{first - 1, first, (first + last) / 2, last, last + 1})
        tried.push_back(each);
    for (int more = 0; more < 50; ++more) tried.push_back(any());
    for (const char32_t each : tried) {
      if (each > 0x10FFFF || !is_character_of_unicode(each)) continue;
      INFO(round << ": " << static_cast<std::uint32_t>(each));
      CHECK(pool.matches(id, utf8_of(each)) == set.contains(each));
    }
  }
  RegexPool pool;
  const RegexId every = character(pool, CodePoints::all(), Writing::plain);
  for (const char* wrong :
       {"", "\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "ab", "\xC3", "\xE2\x82"})
    CHECK_FALSE(pool.matches(every, wrong));
  CHECK(character(pool, CodePoints(), Writing::plain) == kNoText);
  CHECK(character(pool, CodePoints(), Writing::json) == kNoText);
}

TEST_CASE("in JSON a character is written in one way: escaped where it must be") {
  RegexPool pool;
  for (char32_t each = 0; each < 0x100; ++each) {
    const std::string text = written(utf8_of(each), Writing::json);
    const RegexId id = character(pool, CodePoints::of(each, each), Writing::json);
    INFO(text);
    CHECK(pool.matches(id, text));
    const auto read = chat::parse_json('"' + text + '"');
    REQUIRE(read);
    CHECK(*read->text() == utf8_of(each));
    CHECK(pool.matches(id, utf8_of(each)) == (text == utf8_of(each)));
    CHECK(pool.matches(any_json_character(pool), text));
  }
  CHECK(written("\"\\\b\f\n\r\t/\x7F", Writing::json) == "\\\"\\\\\\b\\f\\n\\r\\t/\x7F");
  CHECK(written(std::string("\0\x1F", 2), Writing::json) == "\\u0000\\u001f");
  CHECK(written("a\"\n", Writing::plain) == "a\"\n");
  // Others: not of this writing, but of JSON.
  const RegexId every = character(pool, CodePoints::all(), Writing::json);
  for (const char* other : {"\\/", "\\u0041", "\\u000a", "\\u001F", "\\u00e9", "\\ud83d\\ude00", "\\uD83D\\uDE00",
                            "\\ud7ff", "\\uE000", "\\uDbfF\\udC00"}) {
    INFO(other);
    CHECK_FALSE(pool.matches(every, other));
    CHECK(pool.matches(any_json_character(pool), other));
    CHECK(chat::parse_json('"' + std::string(other) + '"'));
  }
  for (const char* wrong : {"\"", "\\", "\n", "\x1F", "\\x", "\\u12", "\\u12g4", "\\ud800", "\\udc00", "\\ud83d\\u0041",
                            "\\ud83d\\ud83d", "ab", "\\ud83dx", ""}) {
    INFO(wrong);
    CHECK_FALSE(pool.matches(any_json_character(pool), wrong));
    CHECK_FALSE(pool.matches(every, wrong));
  }
}

TEST_CASE("characters are told apart by general categories") {
  const auto has = [](std::string_view property, char32_t each) {
    const auto set = property_characters(property);
    REQUIRE(set);
    return set->contains(each);
  };
  struct Case {
    const char* property;
    char32_t inside, outside;
  };
  for (const Case& each : std::initializer_list<Case>{{"L", U'ß', U'5'},
                                                      {"Letter", U'語', U'-'},
                                                      {"Lu", U'Ä', U'ä'},
                                                      {"gc=Lu", U'A', U'a'},
                                                      {"General_Category=Uppercase_Letter", U'Ω', U'ω'},
                                                      {"LC", U'ǅ', U'語'},
                                                      {"N", U'٣', U'x'},
                                                      {"Nd", U'7', U'Ⅷ'},
                                                      {"P", U'«', U'+'},
                                                      {"punct", U'_', U'$'},
                                                      {"Sc", U'€', U'E'},
                                                      {"So", 0x1F600, U'e'},
                                                      {"Zs", 0x3000, U'\n'},
                                                      {"Cn", 0x378, U'a'},
                                                      {"Assigned", U'a', 0x378},
                                                      {"ASCII", 0x7F, 0x80},
                                                      {"AHex", U'f', U'g'},
                                                      {"White_Space", 0x85, 0xFEFF}}) {
    INFO(each.property);
    CHECK(has(each.property, each.inside));
    CHECK_FALSE(has(each.property, each.outside));
  }
  CHECK(has("Any", 0x10FFFF));
  CHECK(property_characters("Cs")->empty());
  for (const char* unknown : {"", "Latin", "Script=Latin", "sc=Greek", "gc=", "l", "LU", "Emoji", "gc=Any"})
    CHECK_FALSE(property_characters(unknown));
  // The categories part all characters.
  CodePoints all;
  std::size_t sum = 0;
  for (const char* name : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CodePoints set = *property_characters(name);
    for (const auto& [first, last] : set.ranges()) sum += last - first + 1;
    all.add(set);
  }
  CHECK(all.ranges() == CodePoints::all().ranges());
  CHECK(sum == 0x110000 - 0x800);
}

}  // namespace
}  // namespace troupe::engine::constraints
