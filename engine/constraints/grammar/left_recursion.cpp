#include "engine/constraints/grammar/left_recursion.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "engine/constraints/grammar/strong_components.h"

namespace troupe::engine::constraints {
namespace {

using Edge = Grammar::Edge;

// A call with which a rule may begin.
struct LeftCall {
  RuleId callee;
  NodeId target;  // behind the call
};

// The nodes of a rule that are reached from its begin without reading anything. Past texts and calls, too, if
// `through_empty` and they may be empty.
std::vector<NodeId> first_nodes(const Grammar& grammar, RegexPool& pool, RuleId rule, bool through_empty) {
  std::vector<NodeId> found{grammar.begin_of(rule)};
  std::unordered_set<NodeId> seen(found.begin(), found.end());
  for (std::size_t at = 0; at < found.size(); ++at)
    for (const Edge& edge : grammar.node(found[at]).edges) {
      const bool is_passed =
          edge.kind == Edge::Kind::nothing ||
          (through_empty && edge.kind == Edge::Kind::text && pool.accepts_empty(edge.what)) ||
          (through_empty && edge.kind == Edge::Kind::call && grammar.node(grammar.begin_of(edge.what)).shortest == 0);
      if (is_passed && seen.insert(edge.target).second) found.push_back(edge.target);
    }
  return found;
}

std::vector<LeftCall> left_calls(const Grammar& grammar, const std::vector<NodeId>& nodes) {
  std::vector<LeftCall> calls;
  for (const NodeId node : nodes)
    for (const Edge& edge : grammar.node(node).edges)
      if (edge.kind == Edge::Kind::call) calls.push_back({edge.what, edge.target});
  return calls;
}

// The rules that a text of a rule may begin with.
std::vector<std::size_t> left_rules(Grammar& grammar, std::size_t rule) {
  std::vector<std::size_t> rules;
  for (const LeftCall& call :
       left_calls(grammar, first_nodes(grammar, grammar.pool(), static_cast<RuleId>(rule), true)))
    rules.push_back(call.callee);
  return rules;
}

// Groups of rules that begin with one another or themselves.
std::vector<std::vector<std::size_t>> left_recursive_groups(Grammar& grammar) {
  std::vector<std::vector<std::size_t>> groups;
  // As of a rule that begins with each.
  const std::size_t all = grammar.num_rules();
  const auto targets_of = [&](std::size_t rule) {
    if (rule != all) return left_rules(grammar, rule);
    std::vector<std::size_t> rules(all);
    for (std::size_t each = 0; each < all; ++each) rules[each] = each;
    return rules;
  };
  for (auto& group : strong_components(all + 1, all, targets_of)) {
    const auto begins_with_itself = [&](std::size_t rule) {
      const std::vector<std::size_t> rules = left_rules(grammar, rule);
      return std::ranges::find(rules, rule) != rules.end();
    };
    if (group.size() > 1 || (group.front() != all && begins_with_itself(group.front())))
      groups.push_back(std::move(group));
  }
  return groups;
}

// Rewrites a group of rules that begin with one another.
class LeftCorners {
 public:
  LeftCorners(Grammar& grammar, const std::vector<std::size_t>& group) : grammar_(grammar) {
    for (const std::size_t each : group) {
      const auto rule = static_cast<RuleId>(each);
      Beginning& own = beginnings_[rule];
      own.nodes = first_nodes(grammar_, grammar_.pool(), rule, false);
    }
    for (auto& [rule, own] : beginnings_)
      for (const LeftCall& call : left_calls(grammar_, own.nodes))
        if (beginnings_.contains(call.callee)) own.calls.push_back(call);
  }

  void rewrite() {
    std::vector<std::pair<RuleId, NodeId>> begins;
    for (const auto& [rule, own] : beginnings_) begins.emplace_back(rule, begin_of(rule));
    for (const auto& [rule, begin] : begins) grammar_.set_begin(rule, begin);
  }

 private:
  struct Beginning {
    std::vector<NodeId> nodes;    // where nothing is read yet
    std::vector<LeftCall> calls;  // from there, of rules of the group
  };

  // The new begin of a rule.
  NodeId begin_of(RuleId rule) {
    copies_.clear();
    left_.clear();
    ends_.clear();
    reached_ = reached_from(rule);
    const NodeId begin = grammar_.add_node();
    for (const RuleId each : reached_) ends_[each] = grammar_.add_node();
    for (const RuleId each : reached_) add_ways_on(rule, each);
    for (const RuleId each : reached_)
      for (const NodeId node : beginnings_.at(each).nodes) {
        if (grammar_.node(node).is_end) grammar_.add_nothing(begin, ends_.at(each));
        copy_edges(each, node, begin, true);
      }
    while (!left_.empty()) {
      const auto [of, node] = left_.back();
      left_.pop_back();
      const NodeId copy = copies_.at(node);
      if (grammar_.node(node).is_end) grammar_.add_nothing(copy, ends_.at(of));
      copy_edges(of, node, copy, false);
    }
    return begin;
  }

  // The rules of the group that a rule begins with, itself included.
  std::vector<RuleId> reached_from(RuleId rule) const {
    std::vector<RuleId> found{rule};
    for (std::size_t at = 0; at < found.size(); ++at)
      for (const LeftCall& call : beginnings_.at(found[at]).calls)
        if (std::ranges::find(found, call.callee) == found.end()) found.push_back(call.callee);
    return found;
  }

  // Behind a text of `ended`: it is one of `rule`, or goes on as one of a rule that begins with it.
  void add_ways_on(RuleId rule, RuleId ended) {
    if (rule == ended) grammar_.set_end(ends_.at(ended));
    for (const RuleId outer : reached_)
      for (const LeftCall& call : beginnings_.at(outer).calls)
        if (call.callee == ended) grammar_.add_nothing(ends_.at(ended), copy_of(outer, call.target));
  }

  // Of a node of the rule `of`, which is copied once.
  NodeId copy_of(RuleId of, NodeId node) {
    const Grammar::Node& original = grammar_.node(node);
    if (original.is_end && original.edges.empty()) return ends_.at(of);
    const auto found = copies_.find(node);
    if (found != copies_.end()) return found->second;
    const NodeId copy = grammar_.add_node();
    copies_.emplace(node, copy);
    left_.emplace_back(of, node);
    return copy;
  }

  // at_begin: nothing is read yet; calls of the group are what ends_ leads on from.
  void copy_edges(RuleId of, NodeId node, NodeId copy, bool at_begin) {
    const std::vector<Edge> edges = grammar_.node(node).edges;  // adding nodes moves them
    for (const Edge& edge : edges) {
      switch (edge.kind) {
        case Edge::Kind::text:
          grammar_.add_text(copy, edge.what, copy_of(of, edge.target));
          break;
        case Edge::Kind::call:
          if (!at_begin || !beginnings_.contains(edge.what))
            grammar_.add_call(copy, edge.what, copy_of(of, edge.target));
          break;
        case Edge::Kind::nothing:
          if (!at_begin) grammar_.add_nothing(copy, copy_of(of, edge.target));
          break;
      }
    }
  }

  Grammar& grammar_;
  std::map<RuleId, Beginning> beginnings_;  // of the rules of the group

  // Of the rule that is rewritten.
  std::vector<RuleId> reached_;
  std::map<RuleId, NodeId> ends_;                // behind a text of each rule of reached_
  std::unordered_map<NodeId, NodeId> copies_;    // of nodes of those
  std::vector<std::pair<RuleId, NodeId>> left_;  // whose edges are not copied yet, with their rules
};

}  // namespace

std::optional<RuleId> remove_left_recursion(Grammar& grammar, RuleId root) {
  const std::vector<std::vector<std::size_t>> groups = left_recursive_groups(grammar);
  if (groups.empty()) return std::nullopt;
  for (const auto& group : groups) LeftCorners(grammar, group).rewrite();
  const bool has_text = grammar.finish(root);
  TROUPE_ASSERT(has_text);
  const std::vector<std::vector<std::size_t>> hidden = left_recursive_groups(grammar);
  if (hidden.empty()) return std::nullopt;
  return static_cast<RuleId>(std::ranges::min(hidden.front()));
}

}  // namespace troupe::engine::constraints
