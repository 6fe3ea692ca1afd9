#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "ipc/http/json/json_value.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

std::string read_and_written(std::string_view text) {
  const auto value = read_json(text);
  return value ? to_json(*value) : value.error().message;
}

bool is_read(const std::string& text) { return static_cast<bool>(read_json(text)); }

TEST_CASE("a document is written as it was read, with its members in order") {
  const std::string text = R"({"b":[1,-2,2.5,"x",true,false,null],"a":{"z":{},"y":[]},"n":18446744073709551615,)"
                           R"("large":[99999999999999999999,-9223372036854775809],"real":[1.0,-0.0,1e+300,0.5]})";
  REQUIRE(read_and_written(text) == text);
}

TEST_CASE("strings are escaped where JSON asks for it, and what is not UTF-8 becomes U+FFFD") {
  REQUIRE(to_json(std::string_view("a\"b\\c\n\r\t\x01\x1f/é\u2028")) ==
          "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001f/é\u2028\"");
  REQUIRE(to_json(std::string_view("x\xff\xe2\x82")) == "\"x\uFFFD\uFFFD\uFFFD\"");
}

TEST_CASE("numbers are as short as reads back the same, and null if they are none") {
  std::string out;
  JsonWriter json(out);
  json.begin_array().number(0.1f).number(0.1).number(1e-7).number(-3.0).number(std::numeric_limits<float>::infinity());
  json.number(std::numeric_limits<double>::quiet_NaN()).end_array();
  REQUIRE(out == "[0.1,0.1,1e-07,-3,null,null]");
}

TEST_CASE("nesting is bounded") {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  REQUIRE(is_read(nested(kMaxJsonDepth)));
  REQUIRE_FALSE(is_read(nested(kMaxJsonDepth + 1)));
  REQUIRE_FALSE(is_read(nested(1u << 20)));
  REQUIRE_FALSE(is_read(std::string(1u << 20, '[')));
  REQUIRE(read_and_written(nested(kMaxJsonDepth + 1)) == "arrays and objects are nested more than 32 deep");
}

TEST_CASE("values, members and keys are bounded") {
  const auto array_of = [](std::size_t count) {
    std::string text = "[0";
    for (std::size_t i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  REQUIRE(is_read(array_of(kMaxJsonValues - 1)));  // and the array
  REQUIRE_FALSE(is_read(array_of(kMaxJsonValues)));
  const auto object_of = [](std::size_t count) {
    std::string text = "{";
    for (std::size_t i = 0; i < count; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
    return text + "}";
  };
  REQUIRE(is_read(object_of(kMaxJsonMembers)));
  REQUIRE_FALSE(is_read(object_of(kMaxJsonMembers + 1)));
  const auto key_of = [](std::size_t bytes) { return "{\"" + std::string(bytes, 'k') + "\":0}"; };
  REQUIRE(is_read(key_of(kMaxJsonKeyBytes)));
  REQUIRE_FALSE(is_read(key_of(kMaxJsonKeyBytes + 1)));
}

TEST_CASE("a key that comes twice is refused, wherever it is") {
  REQUIRE(read_and_written(R"({"a":1,"b":2,"a":1})") == "the key \"a\" comes twice in an object");
  REQUIRE_FALSE(is_read(R"([{"x":{"a":1,"\u0061":2}}])"));
  REQUIRE(is_read(R"({"a":{"a":{"a":1}}})"));
}

TEST_CASE("what is not JSON is refused with its place") {
  for (const char* text :
       {"",      " ",     "{",   "{\"a\"}", "[1,]",     "{\"a\":1,}",       "nul",         "01",       "+1",
        "1.",    "NaN",   "'a'", "[1]x",    "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\"\x01\"", "1e999",
        "{1:2}", "/*c*/1"}) {
    INFO(text);
    const auto value = read_json(text);
    REQUIRE_FALSE(value);
    REQUIRE(value.error().message.find("the body is not JSON") == 0);
  }
  REQUIRE(read_and_written("{\"a\":tru}").find("at byte 9") != std::string::npos);
  REQUIRE(read_and_written("1e999").find("a number out of range") != std::string::npos);
}

TEST_CASE("integers are those without a fraction that a double or an int64 has exactly") {
  REQUIRE(read_json("3.0")->integer() == 3);
  REQUIRE(read_json("-9223372036854775808")->integer() == std::numeric_limits<std::int64_t>::min());
  REQUIRE_FALSE(read_json("3.5")->integer());
  REQUIRE_FALSE(read_json("1e300")->integer());
  REQUIRE_FALSE(read_json("18446744073709551615")->integer());
  REQUIRE_FALSE(read_json("\"3\"")->integer());
}

TEST_CASE("a member that is null is as if it were not there") {
  const auto value = read_json(R"({"a":null,"b":1})");
  REQUIRE(find_member(*value->as<JsonObject>(), "a") == nullptr);
  REQUIRE(find_member(*value->as<JsonObject>(), "b") != nullptr);
  REQUIRE(find_member(*value->as<JsonObject>(), "c") == nullptr);
}

}  // namespace
}  // namespace troupe::ipc::api
