// docs/api-fields.md, as the table of fields has it.
#pragma once

#include <algorithm>
#include <string>

#include "ipc/http/api/fields.h"
#include "ipc/http/api/other_fields.h"

namespace troupe::ipc::api {

namespace field_document {

inline std::string in_cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, 1, '\\');
  return text;
}

inline std::string types(JsonTypes types) {
  if (types == kAny) return "any";
  std::string out;
  const std::pair<JsonTypes, const char*> names[] = {{kBoolean, "boolean"}, {kInteger, "integer"}, {kNumber, "number"},
                                                     {kString, "string"},   {kArray, "array"},     {kObject, "object"}};
  for (const auto& [type, name] : names)
    if ((types & type) != 0) out += (out.empty() ? "" : " or ") + std::string(name);
  return out;
}

// "`"a"`, `"b"`"
inline std::string values(std::string_view listed) {
  std::string out;
  while (!listed.empty()) {
    const std::string_view value = listed.substr(0, listed.find('|'));
    out += (out.empty() ? "`" : ", `") + std::string(value) + "`";
    listed.remove_prefix(std::min(value.size() + 1, listed.size()));
  }
  return out;
}

// Fields of other servers have a section of their own.
inline bool is_of_others(const Field& field) {
  return std::ranges::any_of(
      kOtherFields, [&](const Field& each) { return each.path == field.path && each.endpoints == field.endpoints; });
}

inline std::string endpoints(EndpointSet set) {
  if (set == other_fields::kAnswers) return "all that generate";
  if (set == other_fields::kAll) return "all that generate, embeddings";
  std::string out;
  for (const EndpointInfo& each : kBodyEndpoints)
    if ((set & set_of(*each.body)) != 0) out += (out.empty() ? "`" : ", `") + std::string(each.path) + "`";
  return out;
}

inline std::string what_becomes(const Field& field) {
  const std::string note(field.note);
  if (field.use == FieldUse::refused) return "**refused**: " + note;
  if (field.use == FieldUse::ignored) return "**passed over**: " + note;
  if (field.use == FieldUse::only) return "**only** " + values(field.values) + ": " + note;
  if (field.values.empty()) return note.empty() ? "honoured" : note;
  return values(field.values) + (note.empty() ? "" : ": " + note);
}

}  // namespace field_document

inline std::string make_field_document() {
  std::string out =
      "# Fields of the HTTP APIs\n\n"
      "What becomes of each field of a request. A field that is not here is refused with 400 and the name that may be\n"
      "meant; so are values of another type, and those that a row does not list. `null` is the same as no field. What "
      "only\n"
      "tunes another server is passed over, and named in the answer's header `x-troupe-ignored`.\n"
      "`a[].b` is the field `b` of each object in the array `a`. [api.md](api.md) has the answers.\n\n"
      "This page is written from the table that the server itself follows (ipc/http/api/fields.cpp), and a test "
      "compares\n"
      "them: `build/release/tests/ipc/ipc_api_samples --fields > docs/api-fields.md`.\n";
  for (const EndpointInfo& endpoint : kBodyEndpoints) {
    out += "\n## POST " + std::string(endpoint.path) + "\n\n" + std::string(endpoint.summary) +
           "\n\n| field | type | what becomes of it |\n|---|---|---|\n";
    for (const Field& field : fields()) {
      if ((field.endpoints & set_of(*endpoint.body)) == 0 || field_document::is_of_others(field)) continue;
      const char* const required = is_required(*endpoint.body, field.path) ? ", required" : "";
      out += "| `" + std::string(field.path) + "` | " + field_document::types(field.types) + required + " | " +
             field_document::in_cell(field_document::what_becomes(field)) + " |\n";
    }
  }
  out +=
      "\n## Fields that other servers know\n\nTheir clients send these to every server.\n\n"
      "| field | type | of | what becomes of it |\n|---|---|---|---|\n";
  for (const Field& field : kOtherFields)
    out += "| `" + std::string(field.path) + "` | " + field_document::types(field.types) + " | " +
           field_document::endpoints(field.endpoints) + " | " +
           field_document::in_cell(field_document::what_becomes(field)) + " |\n";
  return out;
}

}  // namespace troupe::ipc::api
