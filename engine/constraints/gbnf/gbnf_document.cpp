#include "engine/constraints/gbnf/gbnf_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "config/printable.h"
#include "config/utf8.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxRuleNameBytes = 128;
constexpr char32_t kLastGbnfCodePoint = 0x10FFFF;
constexpr std::string_view kGbnfRuleForm = "a rule is written name ::= ...";
constexpr std::string_view kLarkHint =
    "this looks like Lark's notation, which is not read; in GBNF a grammar is root ::= ...";

struct GbnfError {
  Error error;
};

constexpr bool is_digit_character(char each) { return each >= '0' && each <= '9'; }
constexpr bool is_name_character(char each) {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || is_digit_character(each) || each == '-' ||
         each == '_';
}
constexpr bool is_surrogate_half(char32_t each) { return each >= 0xD800 && each <= 0xDFFF; }

constexpr int hex_digit_value(char each) {
  if (is_digit_character(each)) return each - '0';
  if (each >= 'a' && each <= 'f') return each - 'a' + 10;
  if (each >= 'A' && each <= 'F') return each - 'A' + 10;
  return -1;
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view grammar) : text_(grammar) {}

  GbnfDocument read() {
    check_encoding();
    (void)take("\xEF\xBB\xBF");
    skip_space();
    while (!at_end()) read_rule();
    const auto root = names_.find("root");
    if (root == names_.end())
      throw GbnfError{{ErrorCode::invalid_argument,
                       document_.rules.empty() ? fmt::format("the grammar has no rule; {}", kGbnfRuleForm)
                                               : std::string("the grammar has no rule root, with which it begins")}};
    document_.root = root->second.rule;
    // The first that is missing.
    const Name* missing = nullptr;
    std::string_view missing_name;
    for (const auto& [name, each] : names_)
      if (!each.is_defined && (missing == nullptr || each.first_at < missing->first_at)) {
        missing = &each;
        missing_name = name;
      }
    if (missing != nullptr) invalid(missing->first_at, fmt::format("there is no rule {}", missing_name));
    return std::move(document_);
  }

 private:
  struct Name {
    std::uint32_t rule;
    std::size_t first_at;  // where it is first met
    bool is_defined = false;
  };

  [[noreturn]] void invalid(std::size_t at, std::string_view why) {
    fail(at, ErrorCode::invalid_argument, "is wrong", why);
  }
  [[noreturn]] void unsupported(std::size_t at, std::string_view why) {
    fail(at, ErrorCode::unsupported, "is not supported", why);
  }
  [[noreturn]] void fail(std::size_t at, ErrorCode code, std::string_view what, std::string_view why) {
    const GbnfPlace place = place_of(at);
    throw GbnfError{
        {code, fmt::format("the grammar {} at line {}, column {}: {}", what, place.line, place.column, why)}};
  }
  [[noreturn]] void expected(std::string_view what, std::string_view hint = {}) {
    invalid(at_, fmt::format("{} is expected, not {}{}{}", what, found(), hint.empty() ? "" : "; ", hint));
  }

  // What is here, for errors.
  std::string found() const {
    if (at_end()) return "the end";
    if (text_[at_] == '\n' || text_[at_] == '\r') return "the end of the line";
    return fmt::format("'{}'", Printable(text_.substr(at_, next_utf8(text_.substr(at_)).length)).text());
  }

  // Ascending places are found in one pass.
  GbnfPlace place_of(std::size_t at) {
    if (at < placed_at_) {
      placed_at_ = 0;
      placed_ = {};
    }
    for (; placed_at_ < at; ++placed_at_) {
      const auto byte = static_cast<unsigned char>(text_[placed_at_]);
      if (byte == '\n') {
        ++placed_.line;
        placed_.column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++placed_.column;
      }
    }
    return placed_;
  }

  void check_encoding() {
    for (std::size_t at = 0; at < text_.size();) {
      const Utf8Char next = next_utf8(text_.substr(at));
      if (next.status != Utf8Status::valid) invalid(at, "this is not UTF-8");
      at += next.length;
    }
  }

  bool at_end() const { return at_ == text_.size(); }
  char peek(std::size_t behind = 0) const { return at_ + behind < text_.size() ? text_[at_ + behind] : '\0'; }
  bool at(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!at(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_character() {
    const Utf8Char next = next_utf8(text_.substr(at_));
    at_ += next.length;
    return next.code_point;
  }

  // Spaces, ends of lines and comments.
  void skip_space() {
    for (; !at_end(); ++at_) {
      const char each = text_[at_];
      if (each == '#')
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size() - 1);
      else if (each != ' ' && each != '\t' && each != '\r' && each != '\n')
        return;
    }
  }

  // A rule ends where the next one begins: a name and "::=".
  bool is_at_rule() {
    if (at_end() || !is_name_character(peek())) return false;
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(peek())) ++at_;
    skip_space();
    const bool is_rule = at("::=");
    at_ = begin;
    return is_rule;
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(peek())) ++at_;
    if (at_ - begin > kMaxRuleNameBytes)
      unsupported(begin, fmt::format("the name of a rule may have {} characters", kMaxRuleNameBytes));
    return text_.substr(begin, at_ - begin);
  }

  Name& named(std::string_view name, std::size_t at) {
    const auto [found, is_new] = names_.try_emplace(name, Name{static_cast<std::uint32_t>(document_.rules.size()), at});
    if (is_new) document_.rules.push_back({std::string(name), {}, {}});
    return found->second;
  }

  void read_rule() {
    const std::size_t begin = at_;
    if (!is_name_character(peek()))
      expected("the name of a rule",
               std::string_view("%?!/").find(peek()) != std::string_view::npos ? kLarkHint : kGbnfRuleForm);
    const std::string_view called = name();
    skip_space();
    if (!take("::=")) expected("'::='", peek() == ':' || peek() == '.' ? kLarkHint : kGbnfRuleForm);
    Name& own = named(called, begin);
    const GbnfPlace place = place_of(begin);
    const std::uint32_t rule = own.rule;
    if (own.is_defined)
      invalid(begin, fmt::format("the rule {} is defined a second time; the first is in line {}", called,
                                 document_.rules[rule].place.line));
    own.is_defined = true;
    document_.rules[rule].place = place;
    skip_space();
    GbnfNode body = alternatives(0);
    if (!at_end() && !is_at_rule()) refuse_sign();
    document_.rules[rule].body = std::move(body);
  }

  GbnfNode alternatives(std::size_t depth) {
    std::vector<GbnfNode> branches{sequence(depth)};
    while (take("|")) {
      skip_space();
      branches.push_back(sequence(depth));
    }
    if (branches.size() == 1) return std::move(branches.front());
    return {.kind = GbnfNode::Kind::alternatives, .parts = std::move(branches)};
  }

  GbnfNode sequence(std::size_t depth) {
    std::vector<GbnfNode> parts;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (is_at_rule()) {
        if (depth == 0) break;
        invalid(at_, fmt::format("')' is expected before the next rule, for the '(' in line {}", open_line()));
      }
      GbnfNode part = item(depth);
      skip_space();
      for (std::size_t count = 0; is_at_repetition(); ++count) {
        if (count == kMaxGbnfRepetitions)
          unsupported(at_, fmt::format("a part may have {} repetitions behind one another", kMaxGbnfRepetitions));
        part = repetition(std::move(part));
        skip_space();
      }
      parts.push_back(std::move(part));
    }
    if (parts.empty()) return {};
    if (parts.size() == 1) return std::move(parts.front());
    return {.kind = GbnfNode::Kind::sequence, .parts = std::move(parts)};
  }

  void count_part() {
    if (++num_parts_ > kMaxGbnfParts) unsupported(at_, fmt::format("a grammar may have {} parts", kMaxGbnfParts));
  }

  GbnfNode item(std::size_t depth) {
    count_part();
    const std::size_t begin = at_;
    if (is_name_character(peek())) {
      const std::string_view called = name();
      return {.kind = GbnfNode::Kind::reference, .rule = named(called, begin).rule};
    }
    if (take("\"")) return text(begin);
    if (take("[")) return characters(begin);
    if (take(".")) return {.kind = GbnfNode::Kind::character, .characters = CodePoints::all()};
    if (take("(")) return group(begin, depth);
    refuse_sign();
  }

  // Of a sign that begins no part.
  [[noreturn]] void refuse_sign() {
    switch (peek()) {
      case '<':
      case '!':
        unsupported(at_, "a token, as in <[123]>, <think> or !<think>; write the text that the answer has instead");
      case '*':
      case '+':
      case '?':
      case '{':
        invalid(at_, fmt::format("{} has nothing before it that it repeats", found()));
      case ')':
        invalid(at_, "this ')' has no '('");
      case '\'':
        invalid(at_, "a text stands in double quotes");
      case ':':
      case '=':
      case ';':
        expected("a part of a rule", kGbnfRuleForm);
      case '/':
      case '%':
        expected("a part of a rule", kLarkHint);
      default:
        expected("a text in quotes, a class in brackets, '.', '(' or the name of a rule");
    }
  }

  GbnfNode group(std::size_t begin, std::size_t depth) {
    if (depth == kMaxGbnfDepth) unsupported(begin, fmt::format("groups may be nested {} deep", kMaxGbnfDepth));
    if (at("=")) unsupported(begin, "look-ahead, as in (= ...)");
    open_.push_back(begin);
    skip_space();
    GbnfNode inner = alternatives(depth + 1);
    if (!take(")")) expected("')'", fmt::format("the '(' in line {} is open", open_line()));
    open_.pop_back();
    return inner;
  }
  std::size_t open_line() { return place_of(open_.back()).line; }

  GbnfNode text(std::size_t begin) {
    GbnfNode node;
    while (!take("\"")) {
      if (at_end()) invalid(begin, "the text that begins here has no closing quote");
      const std::size_t character_at = at_;
      const char32_t next = character();
      if (is_surrogate_half(next)) invalid(character_at, "half of a surrogate pair is no character; write \\U0001F600");
      append_utf8(node.text, next);
    }
    return node;
  }

  GbnfNode characters(std::size_t begin) {
    const bool is_negated = take("^");
    std::vector<std::pair<char32_t, char32_t>> ranges;
    while (!take("]")) {
      if (at_end()) invalid(begin, "the class that begins here has no closing bracket");
      const std::size_t range_at = at_;
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && peek(1) != ']') {
        ++at_;
        last = character();
        if (last < first) invalid(range_at, "this range of characters ends before it begins");
      }
      ranges.emplace_back(first, last);
    }
    if (ranges.empty())
      invalid(begin, is_negated ? "an empty class; any character is '.'" : "an empty class; the empty text is \"\"");
    // In ascending order, so that each is added at the end.
    std::ranges::sort(ranges);
    CodePoints set;
    for (const auto& [first, last] : ranges) set.add(first, last);
    return {.kind = GbnfNode::Kind::character, .characters = is_negated ? set.complement() : std::move(set)};
  }

  // Of a text or a class, which is not at its end.
  char32_t character() {
    const std::size_t begin = at_;
    if (!take("\\")) return take_character();
    if (at_end()) invalid(begin, "a backslash ends the grammar");
    const char32_t letter = take_character();
    switch (letter) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'a':
        return '\a';
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'e':
        return 0x1B;
      case '0':
        return 0;
      case 'x':
        return hex(begin, 2);
      case 'u':
        return hex(begin, 4);
      case 'U':
        return hex(begin, 8);
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
      case 'p':
      case 'P':
        invalid(begin, fmt::format("\\{} is of patterns, not of GBNF; write a class such as [0-9]",
                                   static_cast<char>(letter)));
      default:
        if (letter > 0x20 && letter < 0x7F && !is_name_character(static_cast<char>(letter))) return letter;
        if (letter == '-' || letter == '_' || letter == ' ') return letter;
        invalid(begin, "this is no escape; a backslash is \\\\");
    }
  }

  char32_t hex(std::size_t begin, std::size_t num_digits) {
    char32_t value = 0;
    for (std::size_t at = 0; at < num_digits; ++at, ++at_) {
      const int digit = hex_digit_value(peek());
      if (at_end() || digit < 0)
        invalid(begin, fmt::format("\\{} has {} hexadecimal digits", text_[begin + 1], num_digits));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > kLastGbnfCodePoint) invalid(begin, "no character is above U+10FFFF");
    return value;
  }

  bool is_at_repetition() const { return !at_end() && std::string_view("*+?{").find(peek()) != std::string_view::npos; }

  GbnfNode repetition(GbnfNode part) {
    count_part();
    GbnfNode node{.kind = GbnfNode::Kind::repetition, .max = kUnbounded};
    node.parts.push_back(std::move(part));
    if (take("*")) return node;
    if (take("+")) {
      node.min = 1;
    } else if (take("?")) {
      node.max = 1;
    } else {
      const std::size_t begin = at_;
      (void)take("{");
      skip_space();
      if (peek() == ',') expected("a number", "at most 5 is {0,5}");
      node.min = node.max = number();
      if (take(",")) {
        skip_space();
        node.max = peek() == '}' ? kUnbounded : number();
      }
      if (!take("}")) expected("'}'", "a repetition is {2}, {2,} or {2,5}");
      if (node.max < node.min) invalid(begin, fmt::format("{{{},{}}} ends before it begins", node.min, node.max));
    }
    return node;
  }

  // And the space behind it.
  std::uint32_t number() {
    const std::size_t begin = at_;
    if (at_end() || !is_digit_character(peek())) expected("a number");
    std::uint32_t value = 0;
    for (; !at_end() && is_digit_character(peek()); ++at_)
      value = std::min(value * 10 + static_cast<std::uint32_t>(peek() - '0'), kMaxGbnfCount + 1);
    if (value > kMaxGbnfCount)
      unsupported(begin, fmt::format("a part may be repeated {} times; {{n,}} has no end", kMaxGbnfCount));
    skip_space();
    return value;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::size_t num_parts_ = 0;
  std::vector<std::size_t> open_;  // where groups begin that are open
  std::unordered_map<std::string_view, Name> names_;
  GbnfDocument document_;
  std::size_t placed_at_ = 0;  // of place_of()
  GbnfPlace placed_;
};

}  // namespace

Result<GbnfDocument> parse_gbnf(std::string_view grammar) {
  try {
    return GbnfReader(grammar).read();
  } catch (GbnfError& error) {
    return std::move(error.error);
  }
}

}  // namespace troupe::engine::constraints
