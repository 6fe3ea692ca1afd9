#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "config/printable.h"
#include "ipc/http/api/fields.h"
#include "ipc/http/api/parse.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {
namespace {

constexpr std::size_t kShownValueBytes = 60;

struct TypeName {
  JsonTypes type;
  std::string_view with_article;
};
constexpr std::array kTypeNames{TypeName{kBoolean, "true or false"}, TypeName{kInteger, "an integer"},
                                TypeName{kNumber, "a number"},       TypeName{kString, "a string"},
                                TypeName{kArray, "an array"},        TypeName{kObject, "an object"}};

bool has_type(const JsonValue& value, JsonTypes types) {
  if (value.as<bool>()) return (types & kBoolean) != 0;
  if (value.as<std::string>()) return (types & kString) != 0;
  if (value.as<JsonArray>()) return (types & kArray) != 0;
  if (value.as<JsonObject>()) return (types & kObject) != 0;
  if ((types & kNumber) != 0) return true;
  return (types & kInteger) != 0 && (value.integer() || value.as<std::uint64_t>() || value.as<LargeInteger>());
}

// Levenshtein's distance. O(a.size() * b.size()).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, above + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

// The field of this endpoint, beside `path`, whose name is most like it; empty: none is.
std::string_view nearest(Endpoint endpoint, std::string_view path, std::size_t name_at) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(2, (path.size() - name_at) / 3) + 1;
  for (const Field& each : fields()) {
    if ((each.endpoints & set_of(endpoint)) == 0 || each.use == FieldUse::refused || each.use == FieldUse::ignored)
      continue;
    if (each.path.substr(0, name_at) != path.substr(0, name_at)) continue;
    const std::string_view name = each.path.substr(std::min(name_at, each.path.size()));
    if (name.empty() || name.find_first_of(".[") != std::string_view::npos) continue;
    const std::size_t edits = distance(path.substr(name_at), name);
    if (edits < least) {
      least = edits;
      best = name;
    }
  }
  return best;
}

ApiError field_error(std::string path, std::string message, std::string_view code) {
  return {.status = 400, .message = std::move(message), .param = std::move(path), .code = std::string(code)};
}

// The values of a row, for people.
std::string values_in_words(std::string_view values) {
  std::string out;
  for (const char c : values)
    if (c == '|')
      out += " or ";
    else
      out += c;
  return out;
}

// 1.0 and 1 are one number.
bool is_listed(std::string_view values, const JsonValue& value, const std::string& text) {
  const auto number = value.number();
  while (!values.empty()) {
    const std::size_t end = std::min(values.find('|'), values.size());
    const std::string_view listed = values.substr(0, end);
    if (listed == text) return true;
    double other = 0;
    if (number && std::from_chars(listed.data(), listed.data() + listed.size(), other).ec == std::errc() &&
        other == *number)
      return true;
    values.remove_prefix(std::min(end + 1, values.size()));
  }
  return false;
}

// A value as a refusal names it: whole, or what it is.
std::string in_words(const JsonValue& value, const std::string& text) {
  if (text.size() <= kShownValueBytes) return Printable(text).text();
  if (const auto* const array = value.as<JsonArray>()) return fmt::format("an array of {} values", array->size());
  if (value.as<JsonObject>() != nullptr) return "another object";
  return Printable(text.substr(0, kShownValueBytes)).text() + "...";
}

// The APIs' owners have tools that are no functions: their other members are not looked at.
constexpr std::string_view kOtherTools = "tools[].type";

class FieldCheck {
 public:
  FieldCheck(Endpoint endpoint, std::vector<std::string_view>& ignored) : endpoint_(endpoint), ignored_(ignored) {}

  // prefix: of the object's members, "" or "messages[]."; where: the same with indexes.
  std::optional<ApiError> check_object(const JsonObject& object, const std::string& prefix, const std::string& where) {
    for (const JsonMember& member : object) {
      if (auto error = check_member(member, prefix, where)) return error;
    }
    for (const Field& each : fields()) {
      if ((each.endpoints & set_of(endpoint_)) == 0 || !each.path.starts_with(prefix)) continue;
      const std::string_view name = each.path.substr(prefix.size());
      if (name.empty() || name.find_first_of(".[") != std::string_view::npos) continue;
      if (is_required(endpoint_, each.path) && !find_member(object, name))
        return field_error(where + std::string(name), fmt::format("{}{} is missing", where, name), "missing_field");
    }
    return std::nullopt;
  }

 private:
  std::optional<ApiError> check_member(const JsonMember& member, const std::string& prefix, const std::string& where) {
    const std::string path = prefix + member.key;
    const std::string place = where + Printable(member.key).text();
    const Field* const field = find_field(endpoint_, path);
    if (!field) {
      const std::string_view like = nearest(endpoint_, path, prefix.size());
      return field_error(place,
                         fmt::format("there is no field {} here; {}", place,
                                     like.empty() ? "leave it out" : fmt::format("is {} meant?", like)),
                         "unknown_field");
    }
    if (member.value.is_null()) return std::nullopt;
    if (field->use == FieldUse::ignored) return ignored_.push_back(field->path), std::nullopt;
    if (field->use == FieldUse::refused)
      return field_error(place, fmt::format("{} is not served: {}", place, field->note), "unsupported_field");
    if (!has_type(member.value, field->types))
      return field_error(place, fmt::format("{} must be {}", place, types_in_words(field->types)), "wrong_type");
    if (!field->values.empty()) {
      const std::string value = to_json(member.value);
      if (!is_listed(field->values, member.value, value))
        return field_error(place,
                           fmt::format("{} is {}; {} is served{}{}", place, in_words(member.value, value),
                                       values_in_words(field->values), field->note.empty() ? "" : ": ", field->note),
                           "unsupported_value");
      return std::nullopt;
    }
    return check_within(member.value, path, place);
  }

  std::optional<ApiError> check_within(const JsonValue& value, const std::string& path, const std::string& place) {
    if (const auto* object = value.as<JsonObject>()) {
      if (!has_rows(path + '.')) return std::nullopt;  // its keys are the client's own
      return check_object(*object, path + '.', place + '.');
    }
    const auto* array = value.as<JsonArray>();
    if (!array || !has_rows(path + "[].")) return std::nullopt;
    for (std::size_t i = 0; i < array->size(); ++i) {
      const auto* object = (*array)[i].as<JsonObject>();
      if (!object) continue;  // what it may be instead is checked where it is read
      const bool in_namespace = path == "tools[].tools";
      if ((path == "tools" || in_namespace) && is_other_tool(endpoint_, *object, in_namespace)) {
        if (std::ranges::find(ignored_, kOtherTools) == ignored_.end()) ignored_.push_back(kOtherTools);
        continue;
      }
      if (auto error = check_object(*object, path + "[].", fmt::format("{}[{}].", place, i))) return error;
    }
    return std::nullopt;
  }

  bool has_rows(const std::string& prefix) const {
    return std::ranges::any_of(fields(), [&](const Field& each) {
      return (each.endpoints & set_of(endpoint_)) != 0 && each.path.starts_with(prefix);
    });
  }

  const Endpoint endpoint_;
  std::vector<std::string_view>& ignored_;
};

}  // namespace

std::string types_in_words(JsonTypes types) {
  std::string out;
  for (const TypeName& each : kTypeNames) {
    if ((types & each.type) == 0) continue;
    if (!out.empty()) out += " or ";
    out += each.with_article;
  }
  return out;
}

std::optional<ApiError> check_fields(Endpoint endpoint, const JsonObject& body,
                                     std::vector<std::string_view>& ignored) {
  return FieldCheck(endpoint, ignored).check_object(body, "", "");
}

}  // namespace troupe::ipc::api
