#include "ipc/http/api/fields.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/http/json/json_writer.h"
#include "tests/ipc/http/api/api_support.h"
#include "tests/ipc/http/api/field_document.h"
#include "tests/support/shared_data.h"

namespace troupe::ipc::api {
namespace {

// What the client got from an earlier answer and sends back; the table says so, whatever is in it.
constexpr std::string_view kNotRead = "input[].content[].logprobs";
bool is_not_read(Endpoint, std::string_view path) { return path == kNotRead; }

// The published description of OpenAI's API, and the properties that its schemas have.
class Published {
 public:
  explicit Published(const std::string& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    auto document = read_json(text.str());
    if (!document) FAIL(document.error().message);
    document_ = std::move(*document);
    schemas_ = member(member(document_, "components"), "schemas").as<JsonObject>();
    REQUIRE(schemas_);
  }

  const JsonValue& schema(std::string_view name) const {
    const JsonValue* const found = find_member(*schemas_, name);
    if (!found) FAIL("no schema " << name);
    return *found;
  }

  // Calls `each(path, enumeration)` for properties of the schema and of the objects within it that the table decides
  // by rows of their own. Of an array, those of its items, as "path[].".
  template <class Each>
  void walk(Endpoint endpoint, const JsonValue& schema, const std::string& prefix, const Each& each) const {
    std::set<const JsonValue*> seen;
    std::map<std::string, std::vector<const JsonValue*>> properties;
    collect(schema, prefix, properties, seen);
    for (const auto& [path, schemas] : properties) {
      each(path);
      const Field* const row = find_field(endpoint, path);
      if (!row || row->use != FieldUse::honoured || is_not_read(endpoint, path)) continue;
      for (const JsonValue* inner : schemas) walk(endpoint, *inner, path + '.', each);
    }
  }

 private:
  static const JsonValue& member(const JsonValue& value, std::string_view name) {
    const JsonValue* const found = find_member(*value.as<JsonObject>(), name);
    if (!found) FAIL("no member " << name);
    return *found;
  }

  void collect(const JsonValue& schema, const std::string& prefix,
               std::map<std::string, std::vector<const JsonValue*>>& out, std::set<const JsonValue*>& seen) const {
    if (!seen.insert(&schema).second) return;
    const JsonObject& object = *schema.as<JsonObject>();
    if (const JsonValue* const reference = find_member(object, "$ref")) {
      const std::string& path = *reference->as<std::string>();
      return collect(this->schema(path.substr(path.rfind('/') + 1)), prefix, out, seen);
    }
    for (const char* all : {"allOf", "anyOf", "oneOf"})
      if (const JsonValue* const parts = find_member(object, all))
        for (const JsonValue& part : *parts->as<JsonArray>()) collect(part, prefix, out, seen);
    // The items of responses' input are of dozens of kinds; `type` tells those that are served (below).
    if (const JsonValue* const items = find_member(object, "items"); items && prefix != "input.")
      collect(*items, prefix.substr(0, prefix.size() - 1) + "[].", out, seen);
    if (const JsonValue* const properties = find_member(object, "properties"))
      for (const JsonMember& each : *properties->as<JsonObject>()) out[prefix + each.key].push_back(&each.value);
  }

  JsonValue document_;
  const JsonObject* schemas_ = nullptr;
};

std::optional<Published> published() {
  const auto file = test::shared_file("thirdparty/openai/openapi-subset.json");
  if (!file) return std::nullopt;
  return Published(*file);
}

TEST_CASE("every documented field of OpenAI's requests has a row that decides what becomes of it") {
  const auto api = published();
  if (!api) return;
  std::size_t num_fields = 0;
  const auto check = [&](Endpoint endpoint, std::string_view schema, const std::string& prefix) {
    api->walk(endpoint, api->schema(schema), prefix, [&](const std::string& path) {
      ++num_fields;
      // Of tools that are no functions, which are left out as they are.
      if (endpoint == Endpoint::responses && path.starts_with("tools[].")) return;
      INFO(info(endpoint).path << ": " << path);
      CHECK(find_field(endpoint, path) != nullptr);
    });
  };
  check(Endpoint::chat_completions, "CreateChatCompletionRequest", "");
  check(Endpoint::completions, "CreateCompletionRequest", "");
  check(Endpoint::embeddings, "CreateEmbeddingRequest", "");
  check(Endpoint::responses, "CreateResponse", "");
  for (const char* tools : {"tools[].", "tools[].tools[]."})
    for (const char* member : {"type", "name", "description", "parameters", "strict", "defer_loading", "format",
                               "format.type", "format.syntax", "format.definition", "allowed_callers"})
      CHECK(find_field(Endpoint::responses, std::string(tools) + member) != nullptr);
  for (const char* item :
       {"EasyInputMessage", "InputMessage", "OutputMessage", "ReasoningItem", "FunctionToolCall", "CustomToolCall"})
    check(Endpoint::responses, item, "input[].");
  REQUIRE(num_fields > 130);
}

// A value of the row's type that it does not list.
std::string unlisted(const Field& row) {
  if ((row.types & kString) != 0) return R"("none of those")";
  if ((row.types & kBoolean) != 0) return row.values == "false" ? "true" : row.values == "true" ? "false" : "";
  if ((row.types & kArray) != 0) return R"(["none of those"])";
  return R"({"none":"of those"})";
}

// A body that has this value at the path and what is required beside it.
std::string body_with(const std::string& path, const std::string& value) {
  std::string body = value;
  std::string rest = path;
  while (true) {
    const std::size_t dot = rest.rfind('.');
    std::string name = rest.substr(dot == std::string::npos ? 0 : dot + 1);
    const bool is_array = name.ends_with("[]");
    if (is_array) name.resize(name.size() - 2);
    body = "{\"" + name + "\":" + (is_array ? "[" + body + "]" : body) + "}";
    if (dot == std::string::npos) return body;
    rest.resize(dot);
  }
}

// The path as messages name it: with the first index of every array.
std::string place_of(std::string path) {
  for (std::size_t at = path.find("[]"); at != std::string::npos; at = path.find("[]")) path.replace(at, 2, "[0]");
  return path;
}

TEST_CASE("what the table refuses is refused with 400 and its name, and null is as nothing") {
  std::size_t num_refused = 0;
  for (const Field& row : fields()) {
    const std::string value = row.use == FieldUse::refused ? "\"x\"" : row.values.empty() ? "" : unlisted(row);
    if (value.empty()) continue;
    for (const EndpointInfo& each : kBodyEndpoints) {
      if ((row.endpoints & set_of(*each.body)) == 0) continue;
      const std::string path(row.path);
      const ApiError error = refused(*each.body, body_with(path, value));
      INFO(each.path << " " << path << ": " << error.message);
      CHECK(error.status == 400);
      CHECK(error.param == place_of(path));
      CHECK(error.message.find(place_of(path)) != std::string::npos);
      CHECK(error.message.back() != ' ');
      auto nothing = parse_call(*each.body, body_with(path, "null"), {});
      if (const auto* other = std::get_if<ApiError>(&nothing)) CHECK(other->code != "unsupported_field");
      ++num_refused;
    }
  }
  REQUIRE(num_refused > 100);
}

TEST_CASE("a row says why, lists JSON, and comes once for an endpoint") {
  for (const Field& row : fields()) {
    INFO(row.path);
    CHECK(row.endpoints != 0);
    CHECK(row.types != 0);
    if (row.use != FieldUse::honoured) CHECK_FALSE(row.note.empty());
    if (row.use == FieldUse::only) CHECK_FALSE(row.values.empty());
    for (std::string_view rest = row.values; !rest.empty();) {
      const std::string_view value = rest.substr(0, rest.find('|'));
      const auto json = read_json(value);
      REQUIRE(json);
      CHECK(to_json(*json) == value);
      rest.remove_prefix(std::min(value.size() + 1, rest.size()));
    }
    for (const EndpointInfo& each : kBodyEndpoints)
      if ((row.endpoints & set_of(*each.body)) != 0) CHECK(find_field(*each.body, row.path) == &row);
  }
}

TEST_CASE("a value of another type than the row's is refused with its name") {
  for (const Field& row : fields()) {
    if (row.use == FieldUse::refused || row.types == kAny) continue;
    const std::string value = (row.types & kBoolean) == 0 ? "true" : (row.types & kString) == 0 ? "\"true\"" : "[]";
    for (const EndpointInfo& each : kBodyEndpoints) {
      if ((row.endpoints & set_of(*each.body)) == 0) continue;
      const std::string path(row.path);
      const ApiError error = refused(*each.body, body_with(path, value));
      INFO(each.path << " " << path << ": " << error.message);
      CHECK(error.param == place_of(path));
      CHECK(error.code == "wrong_type");
    }
  }
}

TEST_CASE("an unknown field is refused with the name that may be meant") {
  const auto message = [](std::string_view body) { return refused(Endpoint::chat_completions, body).message; };
  CHECK(message(R"({"temprature":1})") == "there is no field temprature here; is temperature meant?");
  CHECK(message(R"({"max_token":1})") == "there is no field max_token here; is max_tokens meant?");
  CHECK(message(R"({"messages":[{"rol":"user"}]})") == "there is no field messages[0].rol here; is role meant?");
  CHECK(message(R"({"stream_options":{"include_usages":true}})") ==
        "there is no field stream_options.include_usages here; is include_usage meant?");
  CHECK(message(R"({"entirely_different":1})") == "there is no field entirely_different here; leave it out");
  CHECK(message("{\"\\u001b[31m\":1}").find('\x1b') == std::string::npos);
}

TEST_CASE("what is required is named if it is missing") {
  CHECK(refused(Endpoint::chat_completions, "{}").param == "messages");
  CHECK(refused(Endpoint::completions, "{}").param == "prompt");
  CHECK(refused(Endpoint::embeddings, R"({"input":null})").param == "input");
  CHECK(refused(Endpoint::messages, R"({"messages":[{"role":"user","content":"x"}]})").param == "max_tokens");
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[{"content":"x"}]})").param == "messages[0].role");
}

TEST_CASE("items of a response's input that are not served are refused by their type") {
  for (const char* type :
       {"item_reference", "computer_call", "mcp_call", "web_search_call", "compaction", "local_shell_call"}) {
    const ApiError error =
        refused(Endpoint::responses, std::string(R"({"input":[{"type":")") + type + R"(","id":"1"}]})");
    CHECK(error.status == 400);
    CHECK(error.param == "input[0].type");
  }
}

TEST_CASE("docs/api-fields.md is what the table says") {
  std::ifstream in("docs/api-fields.md");
  std::stringstream text;
  text << in.rdbuf();
  INFO("build/release/tests/ipc/ipc_api_samples --fields > docs/api-fields.md");
  CHECK((text.str() == make_field_document()));  // in parentheses: not printed, with its 400 lines
}

TEST_CASE("docs/api.md has the endpoints that there are") {
  std::ifstream in("docs/api.md");
  std::vector<std::string> documented, served;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `GET ") && !line.starts_with("| `POST ")) continue;
    std::istringstream names(line.substr(0, line.find('|', 1)));
    for (std::string between, name; std::getline(names, between, '`') && std::getline(names, name, '`');)
      documented.push_back(name);
  }
  for (const EndpointInfo& each : kEndpoints) served.push_back(std::string(each.method) + " " + std::string(each.path));
  std::ranges::sort(documented);
  std::ranges::sort(served);
  CHECK(documented == served);
}

TEST_CASE("the OpenAPI document has a path for each endpoint, and the served fields of each") {
  const auto document = read_json(openapi_document("1.2.3"));
  REQUIRE(document);
  const auto at = [](const JsonValue& value, std::string_view name) -> const JsonValue& {
    const JsonValue* const found = find_member(*value.as<JsonObject>(), name);
    if (!found) FAIL("no " << name);
    return *found;
  };
  for (const EndpointInfo& each : kEndpoints) {
    if (each.summary.empty()) continue;  // the page's own
    INFO(each.path);
    const JsonValue& method = at(at(at(*document, "paths"), each.path), each.method == "GET" ? "get" : "post");
    CHECK(*at(method, "summary").as<std::string>() == each.summary);
  }
  for (const EndpointInfo& each : kBodyEndpoints) {
    const JsonValue& post = at(at(at(*document, "paths"), each.path), "post");
    const JsonValue& schema = at(at(at(at(post, "requestBody"), "content"), "application/json"), "schema");
    for (const Field& row : fields()) {
      if ((row.endpoints & set_of(*each.body)) == 0 || row.path.find_first_of(".[") != std::string_view::npos) continue;
      INFO(each.path << " " << row.path);
      const bool is_there = find_member(*at(schema, "properties").as<JsonObject>(), row.path) != nullptr;
      CHECK(is_there == (row.use != FieldUse::refused));
    }
  }
}

}  // namespace
}  // namespace troupe::ipc::api
