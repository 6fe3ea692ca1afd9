#include "engine/constraints/expressions/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/constraints/expressions/pattern_tree.h"
#include "engine/constraints/expressions/unicode_sets.h"

namespace troupe::engine::constraints {
namespace {

using NodeKind = PatternNode::Kind;

// Parts of a tree that are turned into expressions, counting each copy of what is repeated.
constexpr std::size_t kMaxCopiedParts = 50'000;

struct NotSupported {
  std::string what;
};

// The texts from one place to the end, by what is before the place.
struct Rests {
  RegexId at_begin, after_word, after_other;

  bool operator==(const Rests&) const = default;
  bool is_same_everywhere() const { return at_begin == after_word && after_word == after_other; }
  static Rests all(RegexId id) { return {id, id, id}; }
};

bool has_kind(const PatternNode& node, auto is_kind) {
  return is_kind(node.kind) ||
         std::ranges::any_of(node.parts, [&](const PatternNode& each) { return has_kind(each, is_kind); });
}
bool looks_around(const PatternNode& node) {
  return has_kind(node, [](NodeKind kind) {
    return kind == NodeKind::word_bound || kind == NodeKind::no_word_bound || kind == NodeKind::look_ahead ||
           kind == NodeKind::no_look_ahead;
  });
}

// Whether whatever it matches is one character.
bool is_one_character(const PatternNode& node) {
  switch (node.kind) {
    case NodeKind::texts:
      return node.is_character;
    case NodeKind::alternatives:
      return std::ranges::all_of(node.parts, is_one_character);
    case NodeKind::sequence: {
      const auto is_part = [](const PatternNode& each) {
        return each.kind == NodeKind::texts || each.kind == NodeKind::alternatives || each.kind == NodeKind::repetition;
      };
      const auto found = std::ranges::find_if(node.parts, is_part);
      return found != node.parts.end() && is_one_character(*found) &&
             std::none_of(found + 1, node.parts.end(), is_part);
    }
    default:
      return false;
  }
}

// Turns a tree into expressions from its end to its begin: what a part stands for is the set of all texts from its
// place to the end of the whole text, given those from behind it. So conditions are intersections with that set,
// wherever they stand. Only what repeats without end needs to know its own set; then conditions are limited (star()).
class PatternTexts {
 public:
  PatternTexts(RegexPool& pool, Writing writing) : pool_(pool), writing_(writing) {}

  RegexId of(const PatternNode& node, PatternExtent extent) {
    const Rests whole = before(node, Rests::all(kEmptyText));
    if (extent == PatternExtent::whole) return whole.at_begin;
    // What follows is any text in the terms of the pool, so that a text that has matched is in the state of any text;
    // it is made one of whole characters in the end, unless every branch ends with '$'.
    const Rests part = before(node, Rests::all(kAnyText));
    const RegexId found = search(part);
    return part == whole ? found : pool_.both({found, any_characters()});
  }

 private:
  RegexId search(const Rests& part) {
    if (part.at_begin == kAnyText) return any_characters();
    if (part.is_same_everywhere()) return pool_.concat(any_characters(), part.at_begin);
    if (part.after_word == part.after_other)
      return pool_.either(
          {part.at_begin, pool_.concat(pool_.repeat(any_character(), 1, kUnbounded), part.after_other)});
    return pool_.either({part.at_begin, pool_.concat(ending_with(word()), part.after_word),
                         pool_.concat(ending_with(other()), part.after_other)});
  }
  RegexId ending_with(RegexId last) { return pool_.concat(any_characters(), last); }

  Rests before(const PatternNode& node, const Rests& rest) {
    if (++num_parts_ > kMaxCopiedParts)
      throw ConstraintLimit(
          fmt::format("a pattern with conditions (^, $, \\b, look-ahead) in repeated groups has more than {} "
                      "parts: make counts smaller",
                      kMaxCopiedParts));
    switch (node.kind) {
      case NodeKind::texts:
        return before_texts(node.texts, rest);
      case NodeKind::sequence: {
        Rests result = rest;
        for (std::size_t at = node.parts.size(); at-- > 0;) result = before(node.parts[at], result);
        return result;
      }
      case NodeKind::alternatives: {
        std::vector<Rests> branches;
        for (const PatternNode& each : node.parts) branches.push_back(before(each, rest));
        return united(branches);
      }
      case NodeKind::repetition:
        return before_repetition(node, rest);
      case NodeKind::text_begin:
        return {rest.at_begin, kNoText, kNoText};
      case NodeKind::text_end:
        return ends_are_left_out_ ? Rests::all(kNoText) : met(rest, Rests::all(kEmptyText));
      case NodeKind::word_bound:
      case NodeKind::no_word_bound: {
        const RegexId word_next = pool_.concat(word(), kAnyText), other_next = pool_.complement(word_next);
        if (node.kind == NodeKind::word_bound) return met(rest, {word_next, other_next, word_next});
        return met(rest, {other_next, word_next, other_next});
      }
      case NodeKind::look_ahead:
        return met(rest, before(node.parts[0], Rests::all(kAnyText)));
      case NodeKind::no_look_ahead: {
        const Rests ahead = before(node.parts[0], Rests::all(kAnyText));
        return met(rest, {pool_.complement(ahead.at_begin), pool_.complement(ahead.after_word),
                          pool_.complement(ahead.after_other)});
      }
    }
    return rest;
  }

  Rests before_texts(RegexId texts, const Rests& rest) {
    if (rest.is_same_everywhere()) return Rests::all(pool_.concat(texts, rest.at_begin));
    // What comes then depends on the last character.
    RegexId result;
    if (rest.after_word == rest.after_other)
      result = pool_.concat(not_empty(texts), rest.after_word);
    else
      result = pool_.either({pool_.concat(pool_.both({texts, ending_with(word())}), rest.after_word),
                             pool_.concat(pool_.both({texts, ending_with(other())}), rest.after_other)});
    if (!pool_.accepts_empty(texts)) return Rests::all(result);
    return united({Rests::all(result), rest});
  }

  Rests before_repetition(const PatternNode& node, const Rests& rest) {
    const PatternNode& repeated = node.parts[0];
    Rests result = rest;
    if (node.max == kUnbounded)
      result = star(repeated, rest);
    else
      for (std::uint32_t copy = node.min; copy < node.max; ++copy) result = united({before(repeated, result), rest});
    for (std::uint32_t copy = 0; copy < node.min; ++copy) result = before(repeated, result);
    return result;
  }

  Rests star(const PatternNode& repeated, const Rests& rest) {
    if (rest == Rests::all(kAnyText)) return rest;  // no repetition is enough
    if (!looks_around(repeated)) return star_of_ends(repeated, rest);
    if (rest == Rests::all(kEmptyText) && is_one_character(repeated)) {
      const Rests good = before(repeated, Rests::all(kAnyText));
      if (good.is_same_everywhere()) return star_of_characters(good.at_begin);
    }
    throw NotSupported{
        "\\b and look-ahead within a part that repeats without end (*, +, {n,}), unless each repetition is one "
        "character "
        "and '$' comes behind the last, as in ^((?!a|b).)*$"};
  }

  // Where ^ and $ alone are within: behind $ nothing is matched any more, and ^ holds before the first character only.
  Rests star_of_ends(const PatternNode& repeated, const Rests& rest) {
    const bool outer = ends_are_left_out_;
    const Rests last =
        outer ? Rests::all(kNoText) : before(repeated, Rests::all(kEmptyText));  // at the end of the text
    ends_are_left_out_ = true;
    const Rests inner = before(repeated, Rests::all(kEmptyText));
    ends_are_left_out_ = outer;
    const Rests end = outer ? Rests::all(kNoText) : met(rest, Rests::all(kEmptyText));
    const Rests later = before_texts(pool_.repeat(inner.after_other, 0, kUnbounded),
                                     united({rest, before_texts(last.after_other, end)}));
    const RegexId first = pool_.either({rest.at_begin, before_texts(not_empty(inner.at_begin), later).at_begin,
                                        before_texts(not_empty(last.at_begin), end).at_begin});
    return {first, later.after_word, later.after_other};
  }

  // One character after another to the end, each in a place from which `good` goes on.
  Rests star_of_characters(RegexId good) {
    const RegexId bad = pool_.both({pool_.complement(good), pool_.concat(any_character(), kAnyText)});
    return Rests::all(pool_.both({any_characters(), pool_.complement(pool_.concat(any_characters(), bad))}));
  }

  RegexId not_empty(RegexId texts) {
    return pool_.accepts_empty(texts) ? pool_.both({texts, pool_.complement(kEmptyText)}) : texts;
  }
  Rests met(const Rests& a, const Rests& b) {
    return {pool_.both({a.at_begin, b.at_begin}), pool_.both({a.after_word, b.after_word}),
            pool_.both({a.after_other, b.after_other})};
  }
  Rests united(const std::vector<Rests>& branches) {
    const auto of = [&](RegexId Rests::*place) {
      std::vector<RegexId> ids;
      for (const Rests& each : branches) ids.push_back(each.*place);
      return pool_.either(std::move(ids));
    };
    return {of(&Rests::at_begin), of(&Rests::after_word), of(&Rests::after_other)};
  }

  // Made once they are needed.
  RegexId made(std::optional<RegexId>& id, const CodePoints& set) {
    if (!id) id = character(pool_, set, writing_);
    return *id;
  }
  RegexId any_character() { return made(any_character_, CodePoints::all()); }
  RegexId any_characters() { return pool_.repeat(any_character(), 0, kUnbounded); }
  RegexId word() { return made(word_, word_characters()); }
  RegexId other() { return made(other_, word_characters().complement()); }

  RegexPool& pool_;
  const Writing writing_;
  std::optional<RegexId> any_character_ = {}, word_ = {}, other_ = {};
  std::size_t num_parts_ = 0;
  bool ends_are_left_out_ = false;  // '$' stands for nothing
};

}  // namespace

Result<RegexId> parse_pattern(RegexPool& pool, std::string_view pattern, Writing writing, PatternExtent extent) {
  const Result<PatternNode> tree = parse_pattern_tree(pool, pattern, writing);
  if (!tree) return tree.error();
  try {
    return PatternTexts(pool, writing).of(*tree, extent);
  } catch (const NotSupported& error) {
    return Error{ErrorCode::unsupported, "the pattern is not supported: " + error.what};
  }
}

}  // namespace troupe::engine::constraints
