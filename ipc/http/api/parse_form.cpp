// The form of an answer: OpenAI's response_format and text.format, Anthropic's output_format, vLLM's guided_... and
// structured_outputs, llama.cpp's json_schema and grammar, SGLang's regex and ebnf.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "actors/requests/answer_form.h"
#include "ipc/http/api/parse.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

using engine::constraints::Constraint;
using Kind = Constraint::Kind;

// The forms that a request asks for, of which there may be one.
class FormReader {
 public:
  explicit FormReader(Parsing& at) : at_(at) {}

  // {"type": "text" | "json_object" | "json_schema", ...}: the schema in the member `json_schema`, or beside the type.
  void read_format(FieldReader& fields, std::string_view name, bool is_nested) {
    JsonValue* const value = fields.find(name);
    JsonObject* const format = value == nullptr ? nullptr : value->as<JsonObject>();
    if (format == nullptr) return;
    const JsonValue* const type = find_member(*format, "type");
    const std::string* const kind = type == nullptr ? nullptr : type->as<std::string>();
    if (kind == nullptr || *kind == "text") return;
    const std::string place = fields.path(name);
    if (*kind == "json_object") return take({.kind = Kind::json_object, .spaces = true}, place);
    JsonValue* const nested = is_nested ? find_member(*format, "json_schema") : value;
    JsonObject* const members = nested == nullptr ? nullptr : nested->as<JsonObject>();
    JsonValue* const schema = members == nullptr ? nullptr : find_member(*members, "schema");
    if (schema == nullptr)
      return at_.fields.refuse(place, fmt::format("{} has the type json_schema and no {}", place,
                                                  is_nested ? "json_schema.schema" : "schema"));
    take({.kind = Kind::json_schema, .text = to_json(*schema), .spaces = true}, place);
  }

  // A schema, as JSON or as the text of it.
  void read_schema(FieldReader& fields, std::string_view name, bool spaces) {
    JsonValue* const value = fields.find(name);
    if (value == nullptr) return;
    std::string* const text = value->as<std::string>();
    if (const JsonObject* const object = value->as<JsonObject>(); object != nullptr && object->empty()) return;
    take({.kind = Kind::json_schema, .text = text != nullptr ? std::move(*text) : to_json(*value), .spaces = spaces},
         fields.path(name));
  }

  void read_pattern(FieldReader& fields, std::string_view name) { read_text(fields, name, Kind::regex); }

  // An empty one is none, as for llama.cpp.
  void read_grammar(FieldReader& fields, std::string_view name) {
    const JsonValue* const value = fields.find(name);
    const std::string* const text = value == nullptr ? nullptr : value->as<std::string>();
    if (text == nullptr || !text->empty()) read_text(fields, name, Kind::grammar);
  }

  void read_choice(FieldReader& fields, std::string_view name) {
    if (!fields.has(name)) return;
    Constraint form{.kind = Kind::choice};
    fields.read_strings(name, form.choices, engine::constraints::kMaxChoiceTexts, false);
    if (form.choices.empty()) return fields.refuse(name, fmt::format("{} has no choice", fields.path(name)));
    take(std::move(form), fields.path(name));
  }

  void read_json_object(FieldReader& fields, std::string_view name, bool spaces) {
    bool wanted = false;
    fields.read(name, wanted);
    if (wanted) take({.kind = Kind::json_object, .spaces = spaces}, fields.path(name));
  }

 private:
  void read_text(FieldReader& fields, std::string_view name, Kind kind) {
    if (!fields.has(name)) return;
    Constraint form{.kind = kind};
    fields.read_short(name, form.text, engine::constraints::kMaxConstraintBytes);
    take(std::move(form), fields.path(name));
  }

  void take(Constraint form, const std::string& place) {
    if (at_.refusal) return;
    if (!place_.empty())
      return at_.fields.refuse(place,
                               fmt::format("{} and {} both say what form the answer has; send one", place_, place));
    if (engine::constraints::bytes_of(form) > engine::constraints::kMaxConstraintBytes)
      return at_.fields.refuse(
          place, fmt::format("{} has {} bytes; at most {} are taken", place, engine::constraints::bytes_of(form),
                             engine::constraints::kMaxConstraintBytes));
    place_ = place;
    at_.call.request.form = std::make_shared<actors::AnswerForm>(std::move(form), place);
  }

  Parsing& at_;
  std::string place_;  // of the form that was read
};

}  // namespace

void parse_form(Parsing& at) {
  FormReader reader(at);
  reader.read_format(at.fields, "response_format", true);
  reader.read_format(at.fields, "output_format", false);
  for (const auto& [outer, inner] : {std::pair("text", "format"), std::pair("output_config", "format")}) {
    JsonValue* const value = at.fields.find(outer);
    JsonObject* const object = value == nullptr ? nullptr : value->as<JsonObject>();
    if (object == nullptr) continue;
    FieldReader fields(*object, at.refusal, std::string(outer) + '.');
    reader.read_format(fields, inner, false);
  }
  reader.read_schema(at.fields, "guided_json", true);
  reader.read_schema(at.fields, "json_schema", true);
  reader.read_pattern(at.fields, "guided_regex");
  reader.read_pattern(at.fields, "regex");
  reader.read_choice(at.fields, "guided_choice");
  for (const std::string_view name : {"grammar", "guided_grammar", "ebnf"}) reader.read_grammar(at.fields, name);
  JsonValue* const outputs = at.fields.find("structured_outputs");
  if (outputs == nullptr || at.refusal) return;
  FieldReader fields(*outputs->as<JsonObject>(), at.refusal, "structured_outputs.");
  bool compact = false;
  fields.read("disable_any_whitespace", compact);
  reader.read_schema(fields, "json", !compact);
  reader.read_pattern(fields, "regex");
  reader.read_choice(fields, "choice");
  reader.read_grammar(fields, "grammar");
  reader.read_json_object(fields, "json_object", !compact);
}

}  // namespace troupe::ipc::api
