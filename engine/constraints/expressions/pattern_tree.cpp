#include "engine/constraints/expressions/pattern_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "config/utf8.h"
#include "engine/constraints/expressions/pattern.h"
#include "engine/constraints/expressions/unicode_sets.h"

namespace troupe::engine::constraints {
namespace {

using NodeKind = PatternNode::Kind;

struct PatternError {
  Error error;
};

constexpr bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_surrogate(char32_t c, char32_t first) { return c >= first && c < first + 0x400; }
constexpr char32_t kHighSurrogates = 0xD800, kLowSurrogates = 0xDC00;

// Whether it matches no character itself.
bool is_condition(NodeKind kind) {
  return kind != NodeKind::texts && kind != NodeKind::sequence && kind != NodeKind::alternatives &&
         kind != NodeKind::repetition;
}

class PatternParser {
 public:
  PatternParser(RegexPool& pool, std::string_view pattern, Writing writing)
      : pool_(pool), pattern_(pattern), writing_(writing) {}

  PatternNode parse() {
    if (pattern_.size() > kMaxPatternBytes)
      throw PatternError{{ErrorCode::unsupported, fmt::format("a pattern may have {} bytes, this one has {}",
                                                              kMaxPatternBytes, pattern_.size())}};
    if (!is_utf8(pattern_)) throw PatternError{{ErrorCode::invalid_argument, "the pattern is not UTF-8"}};
    PatternNode node = alternatives();
    if (!at_end()) invalid("')' without '('");
    return node;
  }

 private:
  // A member of a class, or an escape: one character or a set of them.
  struct Atom {
    std::optional<char32_t> character;
    CodePoints set;

    void add_to(CodePoints& out) const {
      if (character)
        out.add(*character, *character);
      else
        out.add(set);
    }
  };
  struct Count {
    std::uint32_t min, max;
  };

  [[noreturn]] void invalid(std::string_view why) const { fail(ErrorCode::invalid_argument, "is wrong", why); }
  [[noreturn]] void unsupported(std::string_view why) const { fail(ErrorCode::unsupported, "is not supported", why); }
  [[noreturn]] void fail(ErrorCode code, std::string_view what, std::string_view why) const {
    throw PatternError{{code, fmt::format("the pattern {} at byte {}: {}", what, term_at_ + 1, why)}};
  }

  bool at_end() const { return at_ == pattern_.size(); }
  bool at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!at(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t peek() const { return at_end() ? 0 : next_utf8(pattern_.substr(at_)).code_point; }
  char32_t take_character() {
    const Utf8Char next = next_utf8(pattern_.substr(at_));
    at_ += next.length;
    return next.code_point;
  }

  PatternNode alternatives() {
    std::vector<PatternNode> branches;
    do branches.push_back(sequence());
    while (take("|"));
    if (branches.size() == 1) return std::move(branches.front());
    if (std::ranges::any_of(branches, [](const PatternNode& each) { return each.kind != NodeKind::texts; }))
      return {.kind = NodeKind::alternatives, .parts = std::move(branches)};
    std::vector<RegexId> texts;
    for (const PatternNode& each : branches) texts.push_back(each.texts);
    const bool are_characters = std::ranges::all_of(branches, &PatternNode::is_character);
    return {.texts = pool_.either(std::move(texts)), .is_character = are_characters};
  }

  PatternNode sequence() {
    std::vector<PatternNode> parts;
    while (!at_end() && !at("|") && !at(")")) {
      PatternNode next = term();
      if (next.kind == NodeKind::sequence)
        std::ranges::move(next.parts, std::back_inserter(parts));
      else
        parts.push_back(std::move(next));
    }
    // Texts one after another are one expression.
    std::vector<PatternNode> joined;
    for (std::size_t begin = 0, end; begin < parts.size(); begin = end) {
      std::vector<RegexId> texts;
      for (end = begin; end < parts.size() && parts[end].kind == NodeKind::texts; ++end)
        texts.push_back(parts[end].texts);
      if (texts.size() > 1)
        joined.push_back({.texts = pool_.concat(texts)});
      else
        joined.push_back(std::move(parts[begin]));
      end = std::max(end, begin + 1);
    }
    if (joined.empty()) return {};
    if (joined.size() == 1) return std::move(joined.front());
    return {.kind = NodeKind::sequence, .parts = std::move(joined)};
  }

  PatternNode term() {
    term_at_ = at_;
    const std::size_t begin = at_;
    const bool is_group = at("(") && !at("(?=") && !at("(?!");
    PatternNode node = atom();
    term_at_ = at_;
    const std::optional<Count> count = quantifier();
    if (!count) return node;
    if (is_condition(node.kind) && !is_group) invalid("a condition (^, $, \\b, look-ahead) cannot be repeated");
    (void)take("?");  // lazy or greedy, the texts are the same
    term_at_ = begin;
    return repeated(std::move(node), *count);
  }

  PatternNode repeated(PatternNode node, const Count& count) {
    if (count.max == 0) return {};
    if (count.min == 1 && count.max == 1) return node;
    if (node.kind == NodeKind::texts) return {.texts = pool_.repeat(node.texts, count.min, count.max)};
    PatternNode repetition{.kind = NodeKind::repetition, .min = count.min, .max = count.max};
    repetition.parts.push_back(std::move(node));
    return repetition;
  }

  PatternNode atom() {
    if (take("^")) return {.kind = NodeKind::text_begin};
    if (take("$")) return {.kind = NodeKind::text_end};
    if (take("\\b")) return {.kind = NodeKind::word_bound};
    if (take("\\B")) return {.kind = NodeKind::no_word_bound};
    if (take("(")) return group();
    if (take("[")) return characters(character_class());
    if (take(".")) return characters(within_lines());
    if (take("\\")) {
      Atom escaped = escape(false);
      if (!escaped.character) return characters(escaped.set);
      return characters(CodePoints::of(*escaped.character, *escaped.character));
    }
    if (at("*") || at("+") || at("?") || quantifier()) invalid("there is nothing to repeat");
    const char32_t literal = take_character();
    return characters(CodePoints::of(literal, literal));
  }

  PatternNode group() {
    if (++depth_ > kMaxPatternDepth) unsupported(fmt::format("groups may be nested {} deep", kMaxPatternDepth));
    const std::size_t begin = term_at_;
    std::optional<NodeKind> condition;
    if (take("?")) condition = group_kind();
    PatternNode inner = alternatives();
    if (!take(")")) {
      term_at_ = begin;
      invalid("'(' without ')'");
    }
    --depth_;
    if (!condition) return inner;
    PatternNode node{.kind = *condition};
    node.parts.push_back(std::move(inner));
    return node;
  }

  // What is behind "(?": a kind for look-ahead, nothing for groups.
  std::optional<NodeKind> group_kind() {
    if (take(":")) return std::nullopt;
    if (take("=")) return NodeKind::look_ahead;
    if (take("!")) return NodeKind::no_look_ahead;
    if (at("<=") || at("<!")) unsupported("look-behind");
    if (take("<")) {
      const std::size_t begin = at_;
      while (!at_end() && !at(">")) {
        const char32_t next = peek();
        const bool is_name = is_letter(next) || next == '_' || next == '$' || next >= 0x80;
        if (!is_name && !(is_digit(next) && at_ > begin)) invalid("this is no name of a group");
        (void)take_character();
      }
      if (at_ == begin || !take(">")) invalid("the name of a group ends with '>'");
      return std::nullopt;
    }
    if (is_letter(peek()) && peek() != 'P') unsupported("flags within a pattern, as (?i)");
    if (at("-")) unsupported("flags within a pattern, as (?-i:)");
    invalid("behind '(?' comes one of ':', '=', '!' and '<name>'");
  }

  // Reads a quantifier if one is here; braces that are none are characters.
  std::optional<Count> quantifier() {
    if (take("*")) return Count{0, kUnbounded};
    if (take("+")) return Count{1, kUnbounded};
    if (take("?")) return Count{0, 1};
    const std::size_t begin = at_;
    if (!take("{")) return std::nullopt;
    const std::optional<std::uint32_t> min = number();
    std::optional<std::uint32_t> max = min;
    const bool has_comma = take(",");
    if (has_comma) max = number();
    if (!take("}") || (!min && !max)) {
      at_ = begin;
      return std::nullopt;
    }
    if (!min) invalid(fmt::format("ECMA-262 has no {{,{}}}: write {{0,{}}}", *max, *max));
    if (max && *max < *min) invalid(fmt::format("{{{},{}}} ends before it begins", *min, *max));
    if (std::max(*min, max.value_or(0)) > kMaxPatternCount)
      unsupported(fmt::format("a part may be repeated {} times", kMaxPatternCount));
    return Count{*min, max.value_or(kUnbounded)};
  }

  std::optional<std::uint32_t> number() {
    if (!is_digit(peek())) return std::nullopt;
    std::uint32_t value = 0;
    while (is_digit(peek())) value = std::min(value * 10 + (take_character() - '0'), kMaxPatternCount + 1);
    return value;
  }

  CodePoints character_class() {
    const bool is_negated = take("^");
    CodePoints set;
    while (!take("]")) {
      if (at_end()) invalid("'[' without ']'");
      const Atom first = class_atom();
      const bool is_range = at("-") && !at("-]");
      if (!is_range) {
        first.add_to(set);
        continue;
      }
      at_ += 1;
      if (at_end()) invalid("'[' without ']'");
      const Atom last = class_atom();
      if (!first.character || !last.character) {  // [\w-.]: not a range
        first.add_to(set);
        last.add_to(set);
        set.add('-', '-');
        continue;
      }
      if (*first.character > *last.character) invalid("a range of characters ends before it begins");
      set.add(*first.character, *last.character);
    }
    return is_negated ? set.complement() : set;
  }

  Atom class_atom() {
    if (take("\\")) return escape(true);
    return {take_character(), {}};
  }

  // Behind a backslash.
  Atom escape(bool in_class) {
    if (at_end()) invalid("a backslash ends it");
    const char32_t letter = take_character();
    switch (letter) {
      case 'd':
        return {{}, ascii_digits()};
      case 'D':
        return {{}, ascii_digits().complement()};
      case 'w':
        return {{}, word_characters()};
      case 'W':
        return {{}, word_characters().complement()};
      case 's':
        return {{}, white_space()};
      case 'S':
        return {{}, white_space().complement()};
      case 'p':
        return {{}, property()};
      case 'P':
        return {{}, property().complement()};
      case 't':
        return {U'\t', {}};
      case 'n':
        return {U'\n', {}};
      case 'v':
        return {U'\v', {}};
      case 'f':
        return {U'\f', {}};
      case 'r':
        return {U'\r', {}};
      case 'b':
        return {U'\b', {}};  // outside of classes it is a condition
      case 'c': {
        if (!is_letter(peek())) invalid("behind '\\c' comes a letter");
        return {take_character() % 32, {}};
      }
      case 'x':
        return {hex(2), {}};
      case 'u':
        return {unicode_escape(), {}};
      case '0':
        if (is_digit(peek())) invalid("octal escapes are not part of ECMA-262's Unicode mode");
        return {U'\0', {}};
      case 'k':
        unsupported("references back to groups");
      default:
        break;
    }
    if (is_digit(letter)) {
      if (in_class) invalid("octal escapes are not part of ECMA-262's Unicode mode");
      unsupported("references back to groups");
    }
    if (letter == 'A' || letter == 'Z' || letter == 'z')
      invalid(fmt::format("ECMA-262 has no \\{}: write ^ or $", static_cast<char>(letter)));
    if (is_letter(letter)) invalid(fmt::format("ECMA-262 has no \\{}", static_cast<char>(letter)));
    return {letter, {}};
  }

  char32_t hex(std::size_t count) {
    char32_t value = 0;
    for (std::size_t digit = 0; digit < count; ++digit) value = value * 16 + hex_digit();
    return value;
  }
  char32_t hex_digit() {
    const char32_t next = peek();
    if (is_digit(next)) return take_character() - '0';
    if ((next | 0x20) >= 'a' && (next | 0x20) <= 'f') return (take_character() | 0x20) - 'a' + 10;
    invalid("an escape lacks hexadecimal digits");
  }

  // Behind "\u". A surrogate that is not half of a pair is the code point itself, which no text has.
  char32_t unicode_escape() {
    if (take("{")) {
      char32_t value = hex_digit();
      while (!take("}")) {
        value = value * 16 + hex_digit();
        if (value > 0x10FFFF) invalid("\\u{...} is above U+10FFFF");
      }
      return value;
    }
    const char32_t first = hex(4);
    const std::size_t behind = at_;
    if (is_surrogate(first, kHighSurrogates) && take("\\u") && !at("{")) {
      const char32_t second = hex(4);
      if (is_surrogate(second, kLowSurrogates))
        return 0x10000 + (first - kHighSurrogates) * 0x400 + (second - kLowSurrogates);
    }
    at_ = behind;
    return first;
  }

  // Behind "\p" or "\P".
  CodePoints property() {
    const std::size_t end = pattern_.find('}', at_);
    if (!take("{") || end == std::string_view::npos) invalid("behind '\\p' comes a property in braces");
    const std::string_view name = pattern_.substr(at_, end - at_);
    const bool is_name = std::ranges::all_of(
        name, [](char each) { return is_letter(each) || is_digit(each) || each == '_' || each == '='; });
    if (!is_name || name.empty() || name.size() > 64) invalid("this is no name of a property");
    const std::optional<CodePoints> found = property_characters(name);
    if (!found)
      unsupported(fmt::format(
          "\\p{{{}}}: of the properties of characters general categories are known (L, Lu, Nd, ...)", name));
    at_ = end + 1;
    return *found;
  }

  PatternNode characters(const CodePoints& set) {
    const auto [place, is_new] = characters_.try_emplace(set.ranges(), kNoText);
    if (is_new) place->second = character(pool_, set, writing_);
    return {.texts = place->second, .is_character = true};
  }

  RegexPool& pool_;
  const std::string_view pattern_;
  const Writing writing_;
  std::size_t at_ = 0;
  std::size_t term_at_ = 0;  // where errors are
  std::size_t depth_ = 0;
  std::map<std::vector<std::pair<char32_t, char32_t>>, RegexId> characters_;  // that were made, by their ranges
};

}  // namespace

Result<PatternNode> parse_pattern_tree(RegexPool& pool, std::string_view pattern, Writing writing) {
  try {
    return PatternParser(pool, pattern, writing).parse();
  } catch (PatternError& error) {
    return std::move(error.error);
  }
}

}  // namespace troupe::engine::constraints
