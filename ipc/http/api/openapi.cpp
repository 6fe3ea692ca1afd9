// /openapi.json: the endpoints and the fields of each as the tables have them, so that it says what this server does.
#include <algorithm>
#include <vector>

#include "ipc/http/api/answer.h"
#include "ipc/http/api/fields.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

struct JsonTypeName {
  JsonTypes type;
  std::string_view name;
};
constexpr std::array kJsonTypeNames{JsonTypeName{kBoolean, "boolean"}, JsonTypeName{kInteger, "integer"},
                                    JsonTypeName{kNumber, "number"},   JsonTypeName{kString, "string"},
                                    JsonTypeName{kArray, "array"},     JsonTypeName{kObject, "object"}};

// The rows of one endpoint whose path is `prefix` and one name more.
std::vector<const Field*> members_of(Endpoint endpoint, std::string_view prefix) {
  std::vector<const Field*> rows;
  for (const Field& each : fields()) {
    if ((each.endpoints & set_of(endpoint)) == 0 || !each.path.starts_with(prefix)) continue;
    if (each.path.substr(prefix.size()).find_first_of(".[") == std::string_view::npos) rows.push_back(&each);
  }
  return rows;
}

void write_object(JsonWriter& json, Endpoint endpoint, const std::string& prefix);

void write_field(JsonWriter& json, Endpoint endpoint, const Field& field) {
  json.begin_object();
  if (!field.note.empty()) json.field("description", field.note);
  json.key("type").begin_array();
  for (const JsonTypeName& each : kJsonTypeNames)
    if ((field.types & each.type) != 0) json.string(each.name);
  json.string("null").end_array();
  if (!field.values.empty()) {
    std::string values(field.values);
    std::ranges::replace(values, '|', ',');
    json.raw_field("enum", "[" + values + ",null]");
  }
  const std::string path(field.path);
  if (!members_of(endpoint, path + ".").empty()) write_object(json, endpoint, path + ".");
  if (!members_of(endpoint, path + "[].").empty()) {
    json.key("items").begin_object();
    write_object(json, endpoint, path + "[].");
    json.end_object();
  }
  json.end_object();
}

// Refused fields are left out: only their null is taken, which says nothing.
void write_object(JsonWriter& json, Endpoint endpoint, const std::string& prefix) {
  json.key("properties").begin_object();
  std::vector<std::string_view> required;
  for (const Field* each : members_of(endpoint, prefix)) {
    if (each->use == FieldUse::refused) continue;
    const std::string_view name = each->path.substr(prefix.size());
    write_field(json.key(name), endpoint, *each);
    if (is_required(endpoint, each->path)) required.push_back(name);
  }
  json.end_object().field("additionalProperties", false);
  if (required.empty()) return;
  json.key("required").begin_array();
  for (const std::string_view name : required) json.string(name);
  json.end_array();
}

void write_response(JsonWriter& json, std::string_view description, bool streams) {
  json.begin_object().field("description", description).key("content").begin_object();
  json.raw_field("application/json", R"({"schema":{"type":"object"}})");
  if (streams) json.raw_field("text/event-stream", R"({"schema":{"type":"string"}})");
  json.end_object().end_object();
}

void write_post(JsonWriter& json, const EndpointInfo& post) {
  const Endpoint endpoint = *post.body;
  json.key("post").begin_object().field("summary", post.summary);
  json.key("requestBody").begin_object().field("required", true).key("content").begin_object();
  json.key("application/json").begin_object().key("schema").begin_object().field("type", "object");
  write_object(json, endpoint, "");
  json.end_object().end_object().end_object().end_object().key("responses").begin_object();
  const bool streams = find_field(endpoint, "stream") != nullptr;
  write_response(json.key("200"), "The answer.", streams);
  write_response(json.key("default"), "Refused or failed: error.message says why, error.param names the field.", false);
  json.end_object().end_object();
}

void write_get(JsonWriter& json, const EndpointInfo& get) {
  json.key("get").begin_object().field("summary", get.summary);
  if (get.path.ends_with("{id}"))
    json.raw_field("parameters", R"([{"name":"id","in":"path","required":true,"schema":{"type":"string"}}])");
  json.key("responses").begin_object().key("200").begin_object().field("description", "The answer.");
  json.key("content").begin_object().key(get.type).begin_object().end_object().end_object().end_object().end_object();
  json.end_object();
}

// Each path once, with its methods.
void write_paths(JsonWriter& json) {
  json.key("paths").begin_object();
  for (const EndpointInfo& first : kEndpoints) {
    if (first.summary.empty() || std::ranges::find(kEndpoints, first.path, &EndpointInfo::path) != &first) continue;
    json.key(first.path).begin_object();
    for (const EndpointInfo& each : kEndpoints)
      if (each.path == first.path) each.body ? write_post(json, each) : write_get(json, each);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

std::string openapi_document(std::string_view version) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("openapi", "3.1.0").key("info").begin_object();
  json.field("title", "troupe").field("version", version).end_object();
  write_paths(json);
  json.end_object();
  return out;
}

}  // namespace troupe::ipc::api
