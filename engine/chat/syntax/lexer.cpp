#include "engine/chat/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/values/python_text.h"
#include "engine/chat/values/value.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::chat {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_decimal(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Ends of lines become "\n"; one at the very end is dropped.
std::string normal_lines(std::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      normal += '\n';
    } else {
      normal += source[i];
    }
  }
  if (!normal.empty() && normal.back() == '\n') normal.pop_back();
  return normal;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normal_lines(source)), rest_(text_) {}

  std::vector<Token> read() {
    while (!rest_.empty()) read_data();
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { throw TemplateError(std::string(what), place_); }

  void add(TokenType type, std::string text) { tokens_.push_back({type, place_, std::move(text)}); }

  void take(std::size_t count) {
    for (const char c : rest_.substr(0, count)) {
      if (c == '\n')
        place_ = {place_.line + 1, 1};
      else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)  // the first byte of a character
        ++place_.column;
    }
    if (count > 0) begins_line_ = rest_[count - 1] == '\n';
    rest_.remove_prefix(count);
  }
  bool starts_with(std::string_view what) const { return rest_.substr(0, what.size()) == what; }
  void skip_space() { take(leading_space(rest_)); }

  // Text up to the next tag, and what a tag's sign ('-', '+' or 0) says of the space before it.
  void add_data(std::string_view data, char sign, bool strips_line) {
    if (sign == '-') {
      data.remove_suffix(trailing_space(data));
    } else if (sign != '+' && strips_line) {
      const std::size_t line_end = data.rfind('\n');
      const std::size_t begin = line_end == std::string_view::npos ? 0 : line_end + 1;
      const bool at_line = begin > 0 || begins_line_;
      if (at_line && leading_space(data.substr(begin)) == data.size() - begin) data = data.substr(0, begin);
    }
    if (!data.empty()) add(TokenType::data, std::string(data));
  }

  void read_data() {
    std::size_t at = rest_.find('{');
    while (at != std::string_view::npos &&
           (at + 1 == rest_.size() || std::string_view("{%#").find(rest_[at + 1]) == std::string_view::npos))
      at = rest_.find('{', at + 1);
    if (at == std::string_view::npos) {
      add_data(rest_, '+', false);
      return take(rest_.size());
    }
    const char kind = rest_[at + 1];
    const char next = at + 2 < rest_.size() ? rest_[at + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    add_data(rest_.substr(0, at), sign, kind != '{');
    take(at + (sign != '\0' ? 3 : 2));
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '{' ? TokenType::variable_begin : TokenType::block_begin, "");
    read_tag(kind == '{');
  }

  // After the sign of an end: the newline that trim_blocks takes, or all space.
  void take_end(char sign, std::size_t length) {
    take(length);
    if (sign == '-')
      skip_space();
    else if (sign != '+' && starts_with("\n"))
      take(1);
  }

  void read_comment() {
    const std::size_t at = rest_.find("#}");
    if (at == std::string_view::npos) fail("Missing end of comment tag");
    const char before = at > 0 ? rest_[at - 1] : '\0';
    take_end(before, at + 2);
  }

  // "raw" and the end of its tag, else nothing is taken.
  bool read_raw() {
    std::string_view tag = rest_.substr(leading_space(rest_));
    if (tag.substr(0, 3) != "raw") return false;
    tag.remove_prefix(3);
    tag.remove_prefix(leading_space(tag));
    const bool strips = tag.substr(0, 3) == "-%}";
    if (!strips && tag.substr(0, 2) != "%}") return false;
    tag.remove_prefix(strips ? 3 : 2);
    take(rest_.size() - tag.size());
    if (strips) skip_space();
    for (std::size_t at = rest_.find("{%"); at != std::string_view::npos; at = rest_.find("{%", at + 2)) {
      std::string_view end = rest_.substr(at + 2);
      const char sign = !end.empty() && (end[0] == '-' || end[0] == '+') ? end[0] : '\0';
      if (sign != '\0') end.remove_prefix(1);
      end.remove_prefix(leading_space(end));
      if (end.substr(0, 6) != "endraw") continue;
      end.remove_prefix(6);
      end.remove_prefix(leading_space(end));
      const char end_sign = !end.empty() && (end[0] == '-' || end[0] == '+') ? end[0] : '\0';
      if (end_sign != '\0') end.remove_prefix(1);
      if (end.substr(0, 2) != "%}") continue;
      add_data(rest_.substr(0, at), sign, true);
      take_end(end_sign, rest_.size() - end.size() + 2);
      return true;
    }
    fail("Missing end of raw directive");
  }

  void read_tag(bool is_variable) {
    const std::string_view end = is_variable ? "}}" : "%}";
    while (true) {
      if (brackets_.empty()) {
        const bool has_sign = !rest_.empty() && (rest_[0] == '-' || (rest_[0] == '+' && !is_variable));
        if (rest_.substr(has_sign ? 1 : 0, 2) == end) {
          const char sign = has_sign ? rest_[0] : '\0';
          add(is_variable ? TokenType::variable_end : TokenType::block_end, "");
          return take_end(is_variable && sign == '\0' ? '+' : sign, has_sign ? 3 : 2);
        }
      }
      skip_space();
      if (rest_.empty()) fail(fmt::format("unexpected end of template, expected '{}'", end));
      if (brackets_.empty() && (starts_with(end) || (starts_with("-") && rest_.substr(1, 2) == end) ||
                                (!is_variable && starts_with("+") && rest_.substr(1, 2) == end)))
        continue;
      read_token();
    }
  }

  void read_token() {
    const char first = rest_[0];
    if (is_decimal(first)) return read_number();
    if (is_name_byte(first)) {
      const auto* const end = std::find_if_not(rest_.begin(), rest_.end(), is_name_byte);
      const auto length = static_cast<std::size_t>(end - rest_.begin());
      if (length > kMaxIdentifierBytes) fail(fmt::format("a name is longer than {} bytes", kMaxIdentifierBytes));
      add(TokenType::name, std::string(rest_.substr(0, length)));
      return take(length);
    }
    if (first == '\'' || first == '"') return read_string(first);
    read_operator();
  }

  // How many digits (with single underscores between them) rest_ has from `at`.
  std::size_t digits_at(std::size_t at, bool (*is)(char) = is_decimal) const {
    std::size_t end = at;
    while (end < rest_.size() && (is(rest_[end]) || (rest_[end] == '_' && end > at && rest_[end - 1] != '_' &&
                                                     end + 1 < rest_.size() && is(rest_[end + 1]))))
      ++end;
    return end - at;
  }

  void read_number() {
    if (rest_[0] == '0' && rest_.size() > 2 && read_based_number()) return;
    const std::size_t whole = digits_at(0);
    std::size_t length = whole;
    if (length < rest_.size() && rest_[length] == '.' && digits_at(length + 1) > 0) length += 1 + digits_at(length + 1);
    if (length < rest_.size() && (rest_[length] == 'e' || rest_[length] == 'E')) {
      std::size_t digits = length + 1;
      if (digits < rest_.size() && (rest_[digits] == '+' || rest_[digits] == '-')) ++digits;
      if (digits_at(digits) > 0) length = digits + digits_at(digits);
    }
    // "a.0.1" subscripts twice.
    const bool after_dot = !tokens_.empty() && tokens_.back().is_op(".");
    if (after_dot) length = whole;
    std::string digits(rest_.substr(0, length));
    std::erase(digits, '_');
    add(length == whole ? TokenType::integer : TokenType::real, digits);
    take(length);
  }

  // 0x1F, 0o17, 0b11: a token with the decimal value.
  bool read_based_number() {
    const char letter = static_cast<char>(rest_[1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (base == 0) return false;
    std::uint64_t value = 0;
    std::size_t length = 2;
    for (; length < rest_.size(); ++length) {
      const char c = rest_[length];
      const char lower = static_cast<char>(c | 0x20);
      const int digit = is_decimal(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : c == '_' ? -1 : 99;
      if (digit >= base) break;
      if (digit >= 0) value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
      if (value > std::uint64_t{INT64_MAX}) fail("an integer does not fit 64 bits");
    }
    if (length == 2) return false;
    add(TokenType::integer, std::to_string(value));
    take(length);
    return true;
  }

  void read_string(char quote) {
    std::string value;
    std::size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      if (rest_[i] != '\\') {
        value += rest_[i];
        continue;
      }
      if (++i == rest_.size()) break;
      i = read_escape(i, value);
    }
    if (i >= rest_.size()) fail("a string has no end");
    add(TokenType::string, std::move(value));
    take(i + 1);
  }

  // rest_[at] follows a backslash. Gives the place of its last byte.
  std::size_t read_escape(std::size_t at, std::string& value) {
    static constexpr std::string_view kLetters = "ntrbfav0";
    static constexpr std::array<char, 7> kBytes = {'\n', '\t', '\r', '\b', '\f', '\a', '\v'};
    const char c = rest_[at];
    if (c == '\n') return at;
    if (c == '\\' || c == '\'' || c == '"') {
      value += c;
      return at;
    }
    if (c >= '0' && c <= '7') return read_code(at, 8, 3, value);
    if (c == 'x') return read_code(at + 1, 16, 2, value);
    if (c == 'u') return read_code(at + 1, 16, 4, value);
    if (c == 'U') return read_code(at + 1, 16, 8, value);
    if (c == 'N') fail("character names (\\N{...}) are not supported in strings");
    const std::size_t letter = kLetters.find(c);
    if (letter < kBytes.size())
      value += kBytes[letter];
    else
      value += {'\\', c};
    return at;
  }

  std::size_t read_code(std::size_t at, int base, std::size_t max_digits, std::string& value) {
    std::uint32_t code = 0;
    std::size_t end = at;
    for (; end < rest_.size() && end - at < max_digits; ++end) {
      const char c = rest_[end];
      const char lower = static_cast<char>(c | 0x20);
      const int digit = is_decimal(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
      if (digit >= base) break;
      code = code * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(digit);
    }
    if (base == 16 && end - at != max_digits) fail("a string has an escape with too few digits");
    if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000)) fail("a string has an escape of no character");
    append_utf8(value, code);
    return end - 1;
  }

  void read_operator() {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* const found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view each) { return starts_with(each); });
    if (found == kOperators.end()) fail(fmt::format("unexpected char '{}'", rest_[0]));
    if (*found == "(" || *found == "[" || *found == "{") brackets_ += *found == "(" ? ')' : *found == "[" ? ']' : '}';
    if (*found == ")" || *found == "]" || *found == "}") {
      if (brackets_.empty()) fail(fmt::format("unexpected '{}'", *found));
      if (brackets_.back() != (*found)[0])
        fail(fmt::format("unexpected '{}', expected '{}'", *found, brackets_.back()));
      brackets_.pop_back();
    }
    add(TokenType::op, std::string(*found));
    take(found->size());
  }

  std::string text_;
  std::string_view rest_;  // of text_
  Place place_{1, 1};
  bool begins_line_ = true;  // whether what was taken last ended a line
  std::string brackets_;     // those that must close
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) { return Lexer(source).read(); }

}  // namespace troupe::engine::chat
