#include "engine/constraints/gbnf/gbnf_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "engine/constraints/gbnf/gbnf_document.h"
#include "engine/constraints/grammar/left_recursion.h"
#include "engine/constraints/grammar/strong_components.h"

namespace troupe::engine::constraints {
namespace {

using GbnfKind = GbnfNode::Kind;

// Of what is one expression, and is copied to wherever its rule is named: more parts or levels become rules that call
// one another. A derivative of an expression takes time with both.
constexpr std::size_t kMaxExpressionParts = 2'000;
constexpr std::size_t kMaxExpressionLevels = 100;

constexpr std::size_t kNoRule = SIZE_MAX;

// What a part would be as an expression.
struct ExpressionCost {
  static constexpr std::size_t kNotRegular = SIZE_MAX / 2;
  std::size_t parts = 1;
  std::size_t levels = 1;

  bool fits() const { return parts <= kMaxExpressionParts && levels <= kMaxExpressionLevels; }
  void add(const ExpressionCost& other) {
    parts = std::min(parts + other.parts, kNotRegular);
    levels = std::max(levels, other.levels + 1);
  }
};

// The texts of a rule that names itself at its end (or its begin): those of `again` and then its own (or its own and
// then those of `again`), or those of `last`.
struct LinearTexts {
  RegexId again = kNoText;
  RegexId last = kNoText;
};
enum class OwnPlace { begin, end };

class GbnfCompiler {
 public:
  explicit GbnfCompiler(GbnfDocument document) : document_(std::move(document)), rules_(document_.rules.size()) {}

  Result<Grammar> compile() {
    std::vector<std::size_t> networks;
    for (const std::vector<std::size_t>& group : groups_by_use()) {
      if (group.size() == 1 && make_expression(group.front())) continue;
      for (const std::size_t rule : group) {
        rules_[rule].network = new_rule(rule);
        networks.push_back(rule);
      }
    }
    for (const std::size_t rule : networks) {
      emitted_ = rule;
      const RuleId network = rules_[rule].network;
      emit(body_of(rule), grammar_.begin_of(network), end_of(network));
    }
    RuleId root = rules_[document_.root].network;
    if (rules_[document_.root].is_expression) {
      root = new_rule(document_.root);
      grammar_.add_text(grammar_.begin_of(root), rules_[document_.root].texts, end_of(root));
    }
    if (!grammar_.finish(root)) return no_text();
    if (const std::optional<RuleId> hidden = remove_left_recursion(grammar_, root))
      return error_at(names_[*hidden], ErrorCode::unsupported,
                      "begins with itself behind parts that may be empty; write them so that they are not");
    return std::move(grammar_);
  }

 private:
  struct Rule {
    bool is_expression = false;
    RegexId texts = kNoText;  // of an expression
    ExpressionCost cost;
    RuleId network = 0;  // of any other
  };

  const GbnfNode& body_of(std::size_t rule) const { return document_.rules[rule].body; }

  // A rule of the grammar, which is a part of this one.
  RuleId new_rule(std::size_t rule) {
    const RuleId made = grammar_.add_rule();
    const NodeId end = grammar_.add_node();
    grammar_.set_end(end);
    ends_.push_back(end);
    names_.push_back(rule);
    TROUPE_ASSERT(ends_.size() == made + 1);
    return made;
  }
  NodeId end_of(RuleId rule) const { return ends_[rule]; }

  Error error_at(std::size_t rule, ErrorCode code, std::string_view what) const {
    const GbnfRule& each = document_.rules[rule];
    return {code, fmt::format("the grammar {} at line {}, column {}: the rule {} {}",
                              code == ErrorCode::unsupported ? "is not supported" : "is wrong", each.place.line,
                              each.place.column, each.name, what)};
  }

  // Of a finished grammar: the first rule, used before those that use it, that no text matches.
  Error no_text() const {
    for (const std::size_t rule : order_) {
      const Rule& each = rules_[rule];
      const bool has_text = each.is_expression
                                ? each.texts != kNoText
                                : grammar_.node(grammar_.begin_of(each.network)).shortest != RegexPool::kNoLength;
      if (!has_text)
        return error_at(rule, ErrorCode::invalid_argument,
                        "has no text: every way through it needs itself again, or a class without characters");
    }
    TROUPE_ASSERT(false);
    return {};
  }

  static void collect_references(const GbnfNode& node, std::vector<std::size_t>& found) {
    if (node.kind == GbnfKind::reference) found.push_back(node.rule);
    for (const GbnfNode& each : node.parts) collect_references(each, found);
  }

  // The rules that root needs, in groups that need one another, each behind those that it needs. Fills order_.
  std::vector<std::vector<std::size_t>> groups_by_use() {
    const auto references = [&](std::size_t rule) {
      std::vector<std::size_t> found;
      collect_references(body_of(rule), found);
      return found;
    };
    std::vector<std::vector<std::size_t>> groups =
        strong_components(document_.rules.size(), document_.root, references);
    for (const auto& group : groups) order_.insert(order_.end(), group.begin(), group.end());
    return groups;
  }

  // own: the rule whose part it is, if that is to become an expression; naming that costs nothing.
  ExpressionCost cost_of(const GbnfNode& node, std::size_t own = kNoRule) const {
    ExpressionCost cost;
    switch (node.kind) {
      case GbnfKind::text:
        cost.parts = std::max<std::size_t>(node.text.size(), 1);
        break;
      case GbnfKind::character:
        for (const auto& [first, last] : node.characters.ranges()) cost.parts += last < 0x80 ? 0 : 4;
        break;
      case GbnfKind::reference:
        if (node.rule == own) break;
        if (rules_[node.rule].is_expression)
          cost = rules_[node.rule].cost;
        else
          cost.parts = ExpressionCost::kNotRegular;
        break;
      case GbnfKind::sequence:
      case GbnfKind::alternatives:
      case GbnfKind::repetition:
        for (const GbnfNode& each : node.parts) cost.add(cost_of(each, own));
    }
    return cost;
  }

  // Makes a rule an expression, if it can be one.
  bool make_expression(std::size_t rule) {
    const ExpressionCost cost = cost_of(body_of(rule), rule);
    if (!cost.fits()) return false;
    std::vector<std::size_t> references;
    collect_references(body_of(rule), references);
    RegexId texts = kNoText;
    if (std::ranges::find(references, rule) == references.end()) {
      texts = expression(body_of(rule));
    } else if (const auto at_end = linear(body_of(rule), rule, OwnPlace::end)) {
      texts = pool().concat(pool().repeat(at_end->again, 0, kUnbounded), at_end->last);
    } else if (const auto at_begin = linear(body_of(rule), rule, OwnPlace::begin)) {
      texts = pool().concat(at_begin->last, pool().repeat(at_begin->again, 0, kUnbounded));
    } else {
      return false;
    }
    rules_[rule] = {.is_expression = true, .texts = texts, .cost = cost};
    return true;
  }

  // Nothing if the rule `own` is named elsewhere than at that place.
  std::optional<LinearTexts> linear(const GbnfNode& node, std::size_t own, OwnPlace place) {
    switch (node.kind) {
      case GbnfKind::reference:
        if (node.rule == own) return LinearTexts{.again = kEmptyText, .last = kNoText};
        break;
      case GbnfKind::alternatives: {
        std::vector<RegexId> again, last;
        for (const GbnfNode& each : node.parts) {
          const auto texts = linear(each, own, place);
          if (!texts) return std::nullopt;
          again.push_back(texts->again);
          last.push_back(texts->last);
        }
        return LinearTexts{pool().either(std::move(again)), pool().either(std::move(last))};
      }
      case GbnfKind::sequence: {
        const std::size_t open = place == OwnPlace::end ? node.parts.size() - 1 : 0;
        std::vector<RegexId> again, last;
        for (std::size_t at = 0; at < node.parts.size(); ++at) {
          const auto texts = linear(node.parts[at], own, place);
          if (!texts || (at != open && texts->again != kNoText)) return std::nullopt;
          again.push_back(at == open ? texts->again : texts->last);
          last.push_back(texts->last);
        }
        return LinearTexts{pool().concat(again), pool().concat(last)};
      }
      case GbnfKind::repetition: {
        const auto texts = linear(node.parts[0], own, place);
        if (!texts) return std::nullopt;
        if (texts->again == kNoText) return LinearTexts{kNoText, pool().repeat(texts->last, node.min, node.max)};
        if (node.min != 0 || node.max != 1) return std::nullopt;
        return LinearTexts{texts->again, pool().optional(texts->last)};
      }
      case GbnfKind::text:
      case GbnfKind::character:
        break;
    }
    return LinearTexts{kNoText, expression(node)};
  }

  // Of a part that names expressions alone.
  RegexId expression(const GbnfNode& node) {
    const auto parts = [&] {
      std::vector<RegexId> texts;
      for (const GbnfNode& each : node.parts) texts.push_back(expression(each));
      return texts;
    };
    switch (node.kind) {
      case GbnfKind::text:
        return pool().literal(node.text);
      case GbnfKind::character: {
        const auto [place, is_new] = characters_.try_emplace(node.characters.ranges(), kNoText);
        if (is_new) place->second = character(pool(), node.characters, Writing::plain);
        return place->second;
      }
      case GbnfKind::reference:
        return rules_[node.rule].texts;
      case GbnfKind::sequence:
        return pool().concat(parts());
      case GbnfKind::alternatives:
        return pool().either(parts());
      case GbnfKind::repetition:
        return pool().repeat(expression(node.parts[0]), node.min, node.max);
    }
    TROUPE_ASSERT(false);
    return kNoText;
  }

  // Adds the ways through a part. No edge comes back to `from` or leaves `to`, unless they are one.
  void emit(const GbnfNode& node, NodeId from, NodeId to) {
    if (cost_of(node).fits()) return grammar_.add_text(from, expression(node), to);
    switch (node.kind) {
      case GbnfKind::text:
      case GbnfKind::character:
        return grammar_.add_text(from, expression(node), to);
      case GbnfKind::reference:
        return grammar_.add_call(from, rules_[node.rule].network, to);
      case GbnfKind::sequence:
        return emit_sequence(node.parts, from, to);
      case GbnfKind::alternatives:
        return emit_alternatives(node.parts, from, to);
      case GbnfKind::repetition:
        return emit_repetition(node, from, to);
    }
  }

  // The texts of as many parts, from `begin` on, as are one expression; `end` is behind them.
  std::vector<RegexId> texts_from(const std::vector<GbnfNode>& parts, std::size_t begin, std::size_t& end) {
    std::vector<RegexId> texts;
    ExpressionCost sum;
    for (end = begin; end < parts.size(); ++end) {
      sum.add(cost_of(parts[end]));
      if (!sum.fits()) break;
      texts.push_back(expression(parts[end]));
    }
    return texts;
  }

  void emit_sequence(const std::vector<GbnfNode>& parts, NodeId from, NodeId to) {
    for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
      const std::vector<RegexId> texts = texts_from(parts, begin, end);
      end = std::max(end, begin + 1);
      const NodeId next = end == parts.size() ? to : grammar_.add_node();
      if (texts.empty())
        emit(parts[begin], from, next);
      else
        grammar_.add_text(from, pool().concat(texts), next);
      from = next;
    }
  }

  void emit_alternatives(const std::vector<GbnfNode>& parts, NodeId from, NodeId to) {
    for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
      std::vector<RegexId> texts = texts_from(parts, begin, end);
      end = std::max(end, begin + 1);
      if (texts.empty())
        emit(parts[begin], from, to);
      else
        grammar_.add_text(from, pool().either(std::move(texts)), to);
    }
  }

  void emit_repetition(const GbnfNode& node, NodeId from, NodeId to) {
    const GbnfNode* part = &node.parts[0];
    const bool is_endless = node.max == kUnbounded;
    const std::size_t copies = is_endless ? node.min + 1 : node.max;
    // What is copied several times is a rule.
    std::optional<RuleId> rule;
    if (copies > 1 && part->kind != GbnfKind::reference) {
      rule = new_rule(emitted_);
      emit(*part, grammar_.begin_of(*rule), end_of(*rule));
    }
    const auto emit_part = [&](NodeId begin, NodeId end) {
      if (rule)
        grammar_.add_call(begin, *rule, end);
      else
        emit(*part, begin, end);
    };
    for (std::uint32_t count = 0; count < node.min; ++count) {
      const NodeId next = !is_endless && count + 1 == node.max ? to : grammar_.add_node();
      emit_part(from, next);
      from = next;
    }
    if (is_endless) {
      const NodeId loop = grammar_.add_node();
      grammar_.add_nothing(from, loop);
      emit_part(loop, loop);
      return grammar_.add_nothing(loop, to);
    }
    for (std::uint32_t count = node.min; count < node.max; ++count) {
      const NodeId next = count + 1 == node.max ? to : grammar_.add_node();
      grammar_.add_nothing(from, to);
      emit_part(from, next);
      from = next;
    }
    if (node.max == 0) grammar_.add_nothing(from, to);
  }

  RegexPool& pool() { return grammar_.pool(); }

  const GbnfDocument document_;
  std::vector<Rule> rules_;         // of the document
  std::vector<std::size_t> order_;  // of its rules that root needs: each behind those that it needs
  std::size_t emitted_ = 0;         // the rule of the document whose parts are added
  Grammar grammar_;
  std::vector<NodeId> ends_;        // of each rule of the grammar
  std::vector<std::size_t> names_;  // and the rule of the document that it is a part of
  std::map<std::vector<std::pair<char32_t, char32_t>>, RegexId> characters_;  // that were made, by their ranges
};

}  // namespace

Result<Grammar> grammar_of_gbnf(std::string_view text) {
  auto document = parse_gbnf(text);
  if (!document) return document.error();
  return GbnfCompiler(std::move(*document)).compile();
}

}  // namespace troupe::engine::constraints
