// Grammars: rules that call one another, over regular expressions.
//
// A rule is a recursive transition network (W. A. Woods, "Transition network grammars for natural language analysis",
// 1970): nodes, and edges that read a text of an expression, call a rule or read nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/constraints/expressions/regex_pool.h"

namespace troupe::engine::constraints {

using NodeId = std::uint32_t;
using RuleId = std::uint32_t;

inline constexpr std::size_t kMaxGrammarNodes = 500'000;  // nodes and edges of one grammar

// Not thread-safe (its expressions are not).
class Grammar {
 public:
  struct Edge {
    enum class Kind : std::uint8_t { text, call, nothing };
    Kind kind;
    std::uint32_t what;  // an expression or a rule
    NodeId target;
  };
  struct Node {
    std::vector<Edge> edges;
    bool is_end = false;         // of its rule
    std::uint32_t shortest = 0;  // bytes to an end of its rule
  };

  Grammar() : pool_(std::make_unique<RegexPool>()) {}
  // The same rules and expressions (RegexPool::copy()), of a finished grammar.
  [[nodiscard]] Grammar copy() const;

  RegexPool& pool() { return *pool_; }

  // Building. All throw ConstraintLimit.
  [[nodiscard]] RuleId add_rule();
  [[nodiscard]] NodeId add_node();
  NodeId begin_of(RuleId rule) const { return begins_[rule]; }
  void add_text(NodeId from, RegexId text, NodeId target);
  void add_call(NodeId from, RuleId rule, NodeId target);
  void add_nothing(NodeId from, NodeId target);
  void set_end(NodeId node) { nodes_[node].is_end = true; }
  // From here on it may have so many nodes and edges in all; at first kMaxGrammarNodes.
  void limit_parts(std::size_t most) { max_parts_ = most; }

  // What was added so far.
  struct Parts {
    std::size_t num_nodes = 0, num_rules = 0, num_edges = 0;
  };
  Parts parts() const { return {nodes_.size(), begins_.size(), num_edges_}; }
  // Drops what was added since, to which nothing before may lead. Its expressions stay in the pool.
  void drop_since(const Parts& parts);
  // Searches the shortest texts of what was added since, so that finish() finds them known. Throws ConstraintLimit.
  void search_since(const Parts& parts);

  // A rule begins at another node, one that was added after its own.
  void set_begin(RuleId rule, NodeId begin) { begins_[rule] = begin; }

  // Ends building: drops edges from which no text leads to an end, as recursion without an end. Whether `root` has a
  // text at all. May be called again after more was built. O(edges log edges), and searches of expressions.
  [[nodiscard]] bool finish(RuleId root);

  // After finish().
  RuleId root() const { return root_; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  std::size_t num_rules() const { return begins_.size(); }
  std::size_t num_nodes() const { return nodes_.size(); }
  std::size_t num_edges() const { return num_edges_; }
  // Estimated bytes of memory, those of its expressions included. O(1)
  std::size_t bytes_used() const;

 private:
  void add_edge(NodeId from, Edge edge);
  void count_one();

  std::unique_ptr<RegexPool> pool_;
  std::vector<Node> nodes_;
  std::vector<NodeId> begins_;  // of each rule
  std::size_t num_edges_ = 0, max_parts_ = kMaxGrammarNodes;
  RuleId root_ = 0;
};

}  // namespace troupe::engine::constraints
