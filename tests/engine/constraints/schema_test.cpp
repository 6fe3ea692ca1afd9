// Schemas as grammars: what they let through, against tables and two suites made elsewhere, and what is refused.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "engine/constraints/expressions/value_text.h"
#include "tests/engine/constraints/grammar_cases.h"
#include "tests/support/sanitized.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::constraints::test {
namespace {

struct SchemaCase {
  std::string_view schema;
  std::vector<std::string_view> valid, invalid;
};

TEST_CASE("a schema lets through what is valid, and nothing else") {
  const std::vector<SchemaCase> cases = {
      {"true",
       {"null", "[1,{\"a\":[]}]", "-0.5e3", "\"\\u00e9\\n\""},
       {"", "[1,]", "{\"a\" :1}", "01", "nul", "\"\n\""}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],
           "additionalProperties":false})",
       {R"({"a":1})", R"({"a":1,"b":"x"})"},
       {"{}", R"({"b":"x"})", R"({"a":1.5})", R"({"a":1,"c":1})", R"({"a":1,"b":2})", R"({"a":1,})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}}})",
       {"{}", R"({"a":1,"z":null})", R"({"z":[],"y":0})"},
       {R"({"z":1,"a":"x"})", R"({"\u0061":"x"})"}},
      {R"({"type":"array","items":{"enum":["x",2]},"minItems":1,"maxItems":3})",
       {R"(["x"])", "[2,2,2]"},
       {"[]", "[2,2,2,2]", "[3]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"type":"array"})",
       {"[]", "[1]", R"([1,"a"])"},
       {R"(["a"])", R"([1,"a",1])"}},
      {R"({"type":"array","contains":{"const":7},"minContains":2})", {"[7,7]", "[1,7,2,7,3]"}, {"[]", "[7]", "[1,7]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b"]}})",
       {"[]", R"(["b"])", R"(["b","a"])"},
       {R"(["a","a"])", R"(["a","b","a"])"}},
      {R"({"anyOf":[{"type":"string","maxLength":2},{"type":"integer","minimum":5}]})",
       {R"("ab")", "5", R"("\\\"")"},
       {R"("abc")", "4", "null"}},
      {R"({"oneOf":[{"type":"integer","minimum":0},{"type":"integer","maximum":10}]})",
       {"11", "-1"},
       {"5", "0", "1.5"}},
      {R"({"type":"integer","not":{"multipleOf":3}})", {"1", "-4", "10"}, {"3", "0", "-9", "1.5"}},
      {R"({"type":"string","not":{"enum":["a","ab"]}})",
       {R"("")", R"("b")", R"("abc")"},
       {R"("a")", R"("ab")", R"("\u0061")"}},
      {R"({"not":{"type":"object","required":["a"]}})", {"1", "{}", R"({"b":1})"}, {R"({"a":1})", R"({"b":1,"a":2})"}},
      {R"({"if":{"properties":{"k":{"const":"n"}},"required":["k"]},"then":{"properties":{"v":{"type":"number"}}},
           "else":{"properties":{"v":{"type":"string"}}},"type":"object","properties":{"k":{"enum":["n","s"]},"v":{}},
           "required":["k","v"],"additionalProperties":false})",
       {R"({"k":"n","v":1})", R"({"k":"s","v":"x"})"},
       {R"({"k":"n","v":"x"})", R"({"k":"s","v":1})"}},
      {R"({"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"type":"integer"}},"required":["v"],
           "additionalProperties":false}},"$ref":"#/$defs/t"})",
       {R"({"v":1})", R"({"l":{"l":{"v":3},"v":2},"v":1})"},
       {R"({"l":{},"v":1})", "{}"}},
      {R"({"type":"object","patternProperties":{"^n":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {R"({"n1":1,"x":"y"})"},
       {R"({"n1":"a"})", R"({"x":1})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"A":1})", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]},"additionalProperties":false})",
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"minimum":3}}},{"properties":{"a":{"maximum":5}},"required":["a"]}],"type":"object"})",
       {R"({"a":4})", R"({"a":"x"})"},
       {R"({"a":2})", R"({"a":6})", "{}"}},
      {R"({"type":["integer","null"]})", {"null", "12"}, {"1.5", "\"1\""}},
      {R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"number","minimum":1,"exclusiveMinimum":true})",
       {"2", "1.5"},
       {"1", "0"}},
      {R"({"const":{"b":[1.0,"x"],"a":null}})", {R"({"b":[1,"x"],"a":null})"}, {R"({"a":null,"b":[1,"x"]})", "{}"}},
  };
  for (const SchemaCase& each : cases) {
    Machine machine = machine_of(each.schema);
    for (const std::string_view text : each.valid) {
      INFO(each.schema << " and " << text);
      CHECK(accepts(machine, text));
    }
    for (const std::string_view text : each.invalid) {
      INFO(each.schema << " and " << text);
      CHECK_FALSE(accepts(machine, text));
    }
  }
}

TEST_CASE("with spaces a value may be written as pretty printers do, with an end to every run of spaces") {
  const SchemaOptions spaces{.spaces = true};
  const std::string_view schema =
      R"({"type":"object","properties":{"a":{"type":"array"}},"additionalProperties":false})";
  for (const char* const text : {R"({"a":[1,2]})", R"({"a": [1, 2]})", "{\n  \"a\": [\n    1\n  ]\n}"}) {
    INFO(text);
    CHECK(accepts(schema, text, spaces));
  }
  CHECK_FALSE(accepts(schema, "{  \"a\":[]}", spaces));
  CHECK_FALSE(accepts(schema, "{ \"a\":[]}"));
}

TEST_CASE("what cannot be enforced is refused by its keyword and its place") {
  struct Case {
    std::string_view schema, keyword, path;
  };
  for (const Case& each : std::vector<Case>{
           {R"({"unevaluatedProperties":false})", "unevaluatedProperties", ""},
           {R"({"properties":{"a/b":{"items":{"$dynamicRef":"#x"}}}})", "$dynamicRef", "/properties/a~1b/items"},
           {R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})", "uniqueItems", ""},
           {R"({"$ref":"other.json#/a"})", "$ref", ""},
           {R"({"type":"string","pattern":"(a)\\1"})", "pattern", ""},
           {R"({"type":"strng"})", "type", ""},
           {R"({"type":"object","required":["a"],"properties":{"a":false}})", "", ""},
           {R"({"$ref":"#"})", "", ""},
           {R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "", ""},
           {R"({"minItems":-1})", "minItems", ""},
           {R"({"anyOf":{}})", "anyOf", ""},
           {R"({"multipleOf":0})", "multipleOf", ""},
       }) {
    INFO(each.schema);
    if (each.schema == std::string_view(R"({"$ref":"#"})")) {  // which says nothing
      CHECK(accepts(each.schema, "1"));
      continue;
    }
    const SchemaRefusal refusal = refusal_of(each.schema);
    CHECK(refusal.keyword == each.keyword);
    CHECK(refusal.path == each.path);
    CHECK(refusal.message.find(each.keyword) != std::string::npos);
  }
}

TEST_CASE("a schema that grows without bound is refused, and soon") {
  std::string many = R"({"allOf":[)";
  for (int at = 0; at < 12; ++at)
    many += std::string(at == 0 ? "" : ",") + R"({"anyOf":[{"properties":{"a)" + std::to_string(at) +
            R"(":{}}},{"minProperties":)" + std::to_string(at) + "}]}";
  CHECK(refusal_of(many + "]}").message.find("alternatives") != std::string::npos);
  CHECK(refusal_of(R"({"type":"array","items":{"type":"string"},"maxItems":900000})").message.find("parts") !=
        std::string::npos);
  CHECK(refusal_of(R"({"type":"string","pattern":"^z9((.){10,10}){10,10}z9$","allOf":[{"pattern":"(t|8){10,10}..$"},
                       {"pattern":"((c1d3g3).{4,8}){6,6}"},{"not":{"pattern":"^([a-z][0-9])+$"}}]})")
            .message.find("work") != std::string::npos);
}

// A line of a file of cases, and each of its instances, written in the grammar's order.
void check_instances(const std::string& name, const chat::Json& schema, const chat::Json& tests,
                     std::string_view valid_key, std::size_t& compiled) {
  auto grammar = grammar_of_schema(schema);
  if (const auto* const refusal = std::get_if<SchemaRefusal>(&grammar)) {
    INFO(name << ": " << refusal->message);
    CHECK(refusal->message.size() > 20);
    return;
  }
  ++compiled;
  Machine machine(std::get<Grammar>(std::move(grammar)));
  for (const chat::Json& test : *tests.list()) {
    const bool valid = std::get<bool>(test.find(valid_key)->value);
    const std::string text = value_text(in_schema_order(schema, *test.find("data")));
    INFO(name << ": " << text);
    CHECK(accepts(machine, text) == valid);
  }
}

TEST_CASE("real schemas: no invalid instance passes, no valid one is refused") {
  const auto path = troupe::test::shared_file("thirdparty/schemas/maskbench.jsonl");
  if (!path) return;
  std::ifstream file(*path);
  std::size_t schemas = 0, tried = 0, compiled = 0;
  // All of them take 3 s, and a sanitizer's build 60: there one of eight must do.
  const std::size_t step = troupe::test::kSanitized ? 8 : 1;
  for (std::string line; std::getline(file, line); ++schemas) {
    if (schemas % step != 0) continue;
    ++tried;
    const chat::Json each = json(line);
    check_instances(*each.find("name")->text(), *each.find("schema"), *each.find("tests"), "valid", compiled);
  }
  CHECK(schemas == 1086);
  CHECK(compiled * 100 >= tried * 94);
}

TEST_CASE("JSON Schema's own suite: a schema that is taken has the suite's verdicts") {
  const auto folder = troupe::test::shared_file("thirdparty/schemas/json-schema-test-suite/tests/draft2020-12");
  if (!folder) return;
  // Formats assert here, where the suite's first tests of them do not; vocabularies are not read.
  const std::set<std::string> others{"format.json", "vocabulary.json"};
  std::size_t groups = 0, compiled = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    const std::string name = entry.path().filename();
    if (others.contains(name) || !entry.is_regular_file()) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const chat::Json all = json(text.str());
    for (const chat::Json& group : *all.list()) {
      ++groups;
      check_instances(name + ": " + *group.find("description")->text(), *group.find("schema"), *group.find("tests"),
                      "valid", compiled);
    }
  }
  CHECK(groups > 300);
  CHECK(compiled > 220);
}

}  // namespace
}  // namespace troupe::engine::constraints::test
