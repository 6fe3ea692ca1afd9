#include "engine/chat/tools/json_text.h"

#include <fmt/format.h>

#include <iterator>

#include "engine/tokenizers/marker_search.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::chat {
namespace {

bool ends_word(char c) {
  return std::string_view(",]}:{[\"").find(c) != std::string_view::npos || kSpace.find(c) != std::string_view::npos;
}

std::optional<char32_t> hex_of(std::string_view digits) {
  char32_t value = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return value;
}

constexpr bool is_high_surrogate(char32_t c) { return c >= 0xD800 && c < 0xDC00; }
constexpr bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

// The character of an escape \uXXXX at the front of `bytes`, perhaps of two; 0 bytes: it is cut.
std::size_t unicode_escape(std::string_view bytes, std::string& out) {
  if (bytes.size() < 6) return 0;
  const auto first = hex_of(bytes.substr(2, 4));
  if (!first) {
    out += bytes.substr(0, 2);
    return 2;
  }
  if (!is_surrogate(*first)) {
    append_utf8(out, *first);
    return 6;
  }
  if (is_high_surrogate(*first)) {
    const std::string_view next = bytes.substr(6);
    if (next.size() < 6 && std::string_view("\\u").starts_with(next.substr(0, 2))) return 0;
    const auto second = next.starts_with("\\u") ? hex_of(next.substr(2, 4)) : std::nullopt;
    if (second && is_surrogate(*second) && !is_high_surrogate(*second)) {
      append_utf8(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
      return 12;
    }
  }
  append_utf8(out, 0xFFFD);
  return 6;
}

}  // namespace

std::size_t JsonScanner::scan(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (state_ == State::start) {
      if (c == '{' || c == '[')
        state_ = State::nested;
      else if (c == '"')
        state_ = State::text;
      else
        state_ = State::word;
      if (state_ == State::text) {
        in_text_ = true;
        continue;
      }
    }
    if (state_ == State::done) return i;
    if (state_ == State::word) {
      if (!ends_word(c)) continue;
      state_ = State::done;
      return i;
    }
    if (in_text_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        in_text_ = false;
      if (!in_text_ && state_ == State::text) {
        state_ = State::done;
        return i + 1;
      }
      continue;
    }
    if (c == '"') in_text_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ == 0) {
      state_ = State::done;
      return i + 1;
    }
  }
  return text.size();
}

void JsonCursor::skip_space() {
  while (at < text.size() && kSpace.find(text[at]) != std::string_view::npos) ++at;
}

JsonCursor::Found JsonCursor::mark(std::string_view bytes) {
  JsonCursor ahead = *this;
  ahead.skip_space();
  const std::string_view rest = text.substr(ahead.at);
  if (rest.starts_with(bytes)) {
    at = ahead.at + bytes.size();
    return Found::yes;
  }
  return may_become(rest, bytes) ? Found::cut : Found::no;
}

JsonCursor::Found JsonCursor::quoted(std::string& value) {
  JsonCursor ahead = *this;
  if (const Found quote = ahead.mark("\""); quote != Found::yes) return quote;
  Unescaped unescaped = unescape_json(text.substr(ahead.at));
  if (!unescaped.at_quote) return Found::cut;
  value = std::move(unescaped.text);
  at = ahead.at + unescaped.length + 1;
  return Found::yes;
}

JsonCursor::Found JsonCursor::value(std::string_view& bytes) {
  JsonCursor ahead = *this;
  ahead.skip_space();
  JsonScanner scanner;
  const std::size_t length = scanner.scan(text.substr(ahead.at));
  if (!scanner.is_done()) return Found::cut;
  if (length == 0) return Found::no;
  bytes = text.substr(ahead.at, length);
  at = ahead.at + length;
  return Found::yes;
}

std::string escaped_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  return out;
}

std::string quoted_json(std::string_view text) { return '"' + escaped_json(text) + '"'; }

std::string json_text(const Json& value) {
  if (const Json::Object* const object = value.object()) {
    std::string out = "{";
    for (const auto& [name, each] : *object) {
      if (out.size() > 1) out += ", ";
      out += quoted_json(name) + ": " + json_text(each);
    }
    return out + "}";
  }
  if (const Json::List* const list = value.list()) {
    std::string out = "[";
    for (const Json& each : *list) {
      if (out.size() > 1) out += ", ";
      out += json_text(each);
    }
    return out + "]";
  }
  if (value.text() != nullptr) return quoted_json(*value.text());
  if (const auto* const truth = std::get_if<bool>(&value.value)) return *truth ? "true" : "false";
  if (const auto* const number = std::get_if<std::int64_t>(&value.value)) return std::to_string(*number);
  if (const auto* const number = std::get_if<LargeInteger>(&value.value)) return number->digits;
  if (const auto* const number = std::get_if<double>(&value.value)) return fmt::format("{}", *number);
  return "null";
}

Unescaped unescape_json(std::string_view bytes) {
  Unescaped out;
  std::size_t& at = out.length;
  while (at < bytes.size()) {
    const char c = bytes[at];
    if (c == '"') {
      out.at_quote = true;
      return out;
    }
    if (c != '\\') {
      out.text += c;
      ++at;
      continue;
    }
    if (at + 1 == bytes.size()) return out;
    constexpr std::string_view kLetters = "bfnrt", kMeanings = "\b\f\n\r\t";
    const char letter = bytes[at + 1];
    if (letter == 'u') {
      const std::size_t length = unicode_escape(bytes.substr(at), out.text);
      if (length == 0) return out;
      at += length;
      continue;
    }
    const std::size_t place = kLetters.find(letter);
    out.text += place == std::string_view::npos ? letter : kMeanings[place];
    at += 2;
  }
  return out;
}

}  // namespace troupe::engine::chat
