// The text of a file of keys, whatever stands in it.
#include "ipc/keys/key_rows.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "ipc/keys/key_text.h"

using namespace troupe;
using namespace troupe::ipc;
using Catch::Matchers::Contains;

namespace {

const std::string kSaltText(2 * kSaltBytes, 'a');
const std::string kHashText(2 * kHashBytes, 'b');
const std::string kGoodKey = "key name=ci id=0123456789 created=1764043200 salt=" + kSaltText + " hash=" + kHashText;

std::string file_of(const std::string& line) { return "troupe-keys 1\n" + line + "\n"; }

// With one part of the good line replaced.
std::string changed(const std::string& part, const std::string& by) {
  std::string line = kGoodKey;
  return line.replace(line.find(part), part.size(), by);
}

std::string why_not(const std::string& text) {
  const auto rows = parse_keys(text, "keys");
  if (rows) return "";
  CHECK(rows.error().code == ErrorCode::bad_config);
  return rows.error().message;
}

}  // namespace

TEST_CASE("what is written is read again") {
  KeyRow web{.name = "web-1", .id = "abcdefghij", .tenant = "web", .created = 5, .expires = 9};
  KeyRow own{.name = "own", .id = "ABCDEFGHIJ", .limits = {{"max-running", "4"}, {"weight", "0.5"}}};
  fill_random(web.salt);
  fill_random(own.hash);
  const auto rows = parse_keys("# by hand\n\n" + format_keys({web, own}), "keys");
  REQUIRE(rows);
  REQUIRE(rows->size() == 2);
  CHECK(rows->at(0).salt == web.salt);
  CHECK(rows->at(0).expires == 9);
  CHECK(rows->at(0).label() == "web");
  CHECK(rows->at(1).hash == own.hash);
  CHECK(rows->at(1).limits == own.limits);
  CHECK(rows->at(1).label() == "key:own");
  CHECK(rule_of(rows->at(1).limits)->max_running == 4);
  CHECK(rule_of(rows->at(1).limits)->weight == 0.5);
}

TEST_CASE("a key is expired from its second on") {
  const KeyRow row{.expires = 100};
  CHECK_FALSE(row.has_expired(99));
  CHECK(row.has_expired(100));
  CHECK_FALSE(KeyRow{}.has_expired(1'000'000'000'000));
}

TEST_CASE("a line with anything that is not known is refused, and the message says where and what") {
  CHECK(why_not(file_of(kGoodKey)).empty());
  CHECK_THAT(why_not(kGoodKey), Contains("keys:1: this is no file of keys"));
  CHECK_THAT(why_not("troupe-keys 2\n"), Contains("keys:1"));
  CHECK_THAT(why_not(file_of(kGoodKey + " colour=red")), Contains("keys:2: there is no field colour"));
  CHECK_THAT(why_not(file_of(kGoodKey + " name=ci")), Contains("name is there twice"));
  CHECK_THAT(why_not(file_of(kGoodKey + " max-running=0")), Contains("max-running"));
  CHECK_THAT(why_not(file_of(kGoodKey + " max-running=x")), Contains("no number"));
  CHECK_THAT(why_not(file_of(kGoodKey + " min-kv-blocks=4")), Contains("no field min-kv-blocks"));
  CHECK_THAT(why_not(file_of(kGoodKey + " tenant=web max-running=4")), Contains("key without tenant"));
  CHECK_THAT(why_not(file_of(kGoodKey + " tenant=")), Contains("tenant"));
  CHECK_THAT(why_not(file_of(kGoodKey + " expires=-1")), Contains("expires"));
  CHECK_THAT(why_not(file_of(kGoodKey + " expires=999999999999999999999")), Contains("expires"));
  CHECK_THAT(why_not(file_of("value" + kGoodKey)), Contains("begins with 'key '"));
  CHECK_THAT(why_not(file_of(changed("name=ci", "name=4ci"))), Contains("name"));
  CHECK_THAT(why_not(file_of(changed("id=0123456789", "id=012345678_"))), Contains("id"));
  CHECK_THAT(why_not(file_of(changed("id=0123456789", "id=01234567891"))), Contains("id"));
  CHECK_THAT(why_not(file_of(changed("salt=a", "salt=A"))), Contains("salt"));
  CHECK_THAT(why_not(file_of(changed("hash=b", "hash="))), Contains("hash"));
  CHECK_THAT(why_not(file_of(changed(" created=1764043200", ""))), Contains("created is missing"));
  CHECK_THAT(why_not(file_of(changed("created=1764043200 ", "created=1764043200  "))), Contains("FIELD=VALUE"));
  CHECK_THAT(why_not(file_of(kGoodKey + "\n" + kGoodKey)), Contains("keys:3: there is another key ci"));
  CHECK_THAT(why_not(file_of(kGoodKey + "\n" + changed("name=ci", "name=cd"))), Contains("id of another"));
}

TEST_CASE("keys of the other lines are read beside lines that are wrong, and each of those is told") {
  std::vector<KeyRow> rows{{.name = "a", .id = "aaaaaaaaaa"}, {.name = "b", .id = "bbbbbbbbbb"}};
  std::vector<std::string> wrong;
  const auto read = parse_keys(format_keys(rows) + "key name=c\nnonsense\nkey name=a id=cccccccccc\n", "keys", &wrong);
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK(read->back().name == "b");
  REQUIRE(wrong.size() == 3);
  CHECK_THAT(wrong[0], Contains("keys:4: id is missing"));
  CHECK_THAT(wrong[1], Contains("keys:5: a line begins with 'key '"));
  wrong.clear();
  CHECK_FALSE(parse_keys("nonsense\n", "keys", &wrong));
  CHECK(wrong.empty());
}

TEST_CASE("no message repeats a hash") {
  for (const std::string& line : {kGoodKey + "0", changed("hash=", "hahs="), changed("hash=", "hash=="), kHashText})
    CHECK_THAT(why_not(file_of(line)), !Contains(kHashText.substr(1)));
}

TEST_CASE("bytes, lines and keys are limited") {
  CHECK_THAT(why_not(std::string(kMaxKeyFileBytes + 1, '#')), Contains("1048576 bytes"));
  CHECK(why_not(file_of("#" + std::string(kMaxKeyLineBytes - 1, 'x'))).empty());
  CHECK_THAT(why_not(file_of("#" + std::string(kMaxKeyLineBytes, 'x'))), Contains("keys:2: a line has at most 1024"));
  std::vector<KeyRow> rows;
  for (std::size_t i = 0; i < kMaxKeys; ++i)
    rows.push_back({.name = "k" + std::to_string(i), .id = std::to_string(1'000'000'000 + i)});
  CHECK(parse_keys(format_keys(rows), "keys"));
  rows.push_back({.name = "more", .id = "zzzzzzzzzz"});
  CHECK_THAT(why_not(format_keys(rows)), Contains("at most 1024 keys"));
}

TEST_CASE("a damaged file is read or refused, and what is read is written the same") {
  std::mt19937 random(17);
  const std::string good =
      file_of(kGoodKey + " expires=1766635200 max-running=4") + changed("name=ci id=0", "name=b id=1");
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (int edit = 0; edit < 3; ++edit) {
      const std::size_t at = random() % text.size();
      const char byte = static_cast<char>(random() % 4 == 0 ? random() : " =\n#0az-"[random() % 8]);
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 8);
      else
        text.insert(at, 1, byte);
      if (text.empty()) break;
    }
    const auto rows = parse_keys(text, "keys");
    if (!rows) continue;
    const std::string written = format_keys(*rows);
    const auto again = parse_keys(written, "keys");
    REQUIRE(again);
    REQUIRE(format_keys(*again) == written);
  }
}

TEST_CASE("a key has a form, and each is another one") {
  const std::string key = draw_key();
  const auto parts = split_key(key);
  REQUIRE(parts);
  CHECK(key == "trp_" + std::string(parts->id) + "_" + std::string(parts->secret));
  CHECK(parts->secret.size() == 43);
  CHECK(draw_key() != key);
  CHECK_FALSE(split_key(""));
  CHECK_FALSE(split_key(key + "0"));
  CHECK_FALSE(split_key(key.substr(1)));
  CHECK_FALSE(split_key("sk" + key.substr(2)));
  CHECK_FALSE(split_key("trp_0123456789-" + std::string(43, '0')));
  CHECK_FALSE(split_key("trp_0123456789_" + std::string(42, '0') + "\n"));
  CHECK(split_key("trp_0123456789_" + std::string(43, '0')));
}

TEST_CASE("each letter and digit is drawn about as often") {
  constexpr int kDrawn = 62 * 2000;
  std::map<char, int> counts;
  for (const char c : random_base62(kDrawn)) ++counts[c];
  CHECK(counts.size() == 62);
  // 2000 +- 7 standard deviations: by chance outside once in 10^10 runs.
  for (const auto& [c, count] : counts) CHECK(std::abs(count - 2000) < 320);
}
