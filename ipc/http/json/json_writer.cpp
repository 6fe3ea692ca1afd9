#include "ipc/http/json/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "config/utf8.h"

namespace troupe::ipc::api {
namespace {

void append_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  std::size_t begin = 0;  // of what is copied as it is
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    out.push_back('\\');
    switch (c) {
      case '"':
      case '\\':
        out.push_back(static_cast<char>(c));
        break;
      case '\n':
        out.push_back('n');
        break;
      case '\r':
        out.push_back('r');
        break;
      case '\t':
        out.push_back('t');
        break;
      default:
        out += "u00";
        out.push_back(kHex[c >> 4]);
        out.push_back(kHex[c & 15]);
    }
  }
  out.append(text, begin);
  out.push_back('"');
}

// Shortest, and with a point or an exponent: 1.0 that was read stays a real number for whoever reads it next.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

void JsonWriter::separate() {
  if (needs_comma_) out_.push_back(',');
  needs_comma_ = true;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  out_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  out_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_.push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  if (is_utf8(text))
    append_escaped(out_, text);
  else
    append_escaped(out_, valid_utf8(text));
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::natural(std::uint64_t value) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  if (!std::isfinite(value)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::value(const JsonValue& value) {
  if (value.is_null()) return null();
  if (const auto* yes = value.as<bool>()) return boolean(*yes);
  if (const auto* number = value.as<std::int64_t>()) return integer(*number);
  if (const auto* number = value.as<std::uint64_t>()) return natural(*number);
  if (const auto* large = value.as<LargeInteger>()) return raw(large->digits);
  if (const auto* real = value.as<double>()) return raw(real_text(*real));
  if (const auto* text = value.as<std::string>()) return string(*text);
  if (const auto* array = value.as<JsonArray>()) {
    begin_array();
    for (const JsonValue& each : *array) this->value(each);
    return end_array();
  }
  begin_object();
  for (const JsonMember& each : *value.as<JsonObject>()) {
    key(each.key);
    this->value(each.value);
  }
  return end_object();
}

std::string to_json(const JsonValue& value) {
  std::string out;
  JsonWriter(out).value(value);
  return out;
}

std::string to_json(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

}  // namespace troupe::ipc::api
