#include "engine/constraints/grammar/grammar.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "config/assert.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::uint32_t kNone = RegexPool::kNoLength;

std::uint32_t length_sum(std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  if (first == kNone || second == kNone || third == kNone) return kNone;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(first + second + third, kNone - 1));
}

}  // namespace

Grammar Grammar::copy() const {
  Grammar made;
  made.pool_ = pool_->copy();
  made.nodes_ = nodes_;
  made.begins_ = begins_;
  made.num_edges_ = num_edges_;
  made.root_ = root_;
  return made;
}

std::size_t Grammar::bytes_used() const {
  return nodes_.size() * sizeof(Node) + num_edges_ * sizeof(Edge) + begins_.size() * sizeof(NodeId) +
         pool_->bytes_used();
}

void Grammar::count_one() {
  if (nodes_.size() + num_edges_ >= max_parts_)
    throw ConstraintLimit("it becomes a grammar of more than " + std::to_string(max_parts_) +
                          " parts: allow fewer items, properties or alternatives");
}

RuleId Grammar::add_rule() {
  begins_.push_back(add_node());
  return static_cast<RuleId>(begins_.size() - 1);
}

NodeId Grammar::add_node() {
  count_one();
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Grammar::add_edge(NodeId from, Edge edge) {
  count_one();
  nodes_[from].edges.push_back(edge);
  ++num_edges_;
}

void Grammar::add_text(NodeId from, RegexId text, NodeId target) {
  if (text == kEmptyText) return add_nothing(from, target);
  if (text != kNoText) add_edge(from, {Edge::Kind::text, text, target});
}

void Grammar::add_call(NodeId from, RuleId rule, NodeId target) { add_edge(from, {Edge::Kind::call, rule, target}); }

void Grammar::add_nothing(NodeId from, NodeId target) { add_edge(from, {Edge::Kind::nothing, 0, target}); }

void Grammar::drop_since(const Parts& parts) {
  nodes_.resize(parts.num_nodes);
  begins_.resize(parts.num_rules);
  num_edges_ = parts.num_edges;
}

void Grammar::search_since(const Parts& parts) {
  for (std::size_t id = parts.num_nodes; id < nodes_.size(); ++id)
    for (const Edge& edge : nodes_[id].edges)
      if (edge.kind == Edge::Kind::text) (void)pool_->shortest(edge.what);
}

bool Grammar::finish(RuleId root) {
  root_ = root;
  // D. Knuth, "A generalization of Dijkstra's algorithm", 1977: nodes are settled in the order of their lengths.
  struct User {
    NodeId from;
    std::size_t edge;
  };
  std::vector<std::vector<User>> users(nodes_.size());  // edges whose length waits for this node's
  for (NodeId from = 0; from < nodes_.size(); ++from)
    for (std::size_t at = 0; at < nodes_[from].edges.size(); ++at) {
      const Edge& edge = nodes_[from].edges[at];
      users[edge.target].push_back({from, at});
      if (edge.kind == Edge::Kind::call && begins_[edge.what] != edge.target)
        users[begins_[edge.what]].push_back({from, at});
    }
  using Candidate = std::pair<std::uint32_t, NodeId>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    nodes_[id].shortest = kNone;
    if (nodes_[id].is_end) queue.emplace(0, id);
  }
  const auto length_of = [&](const Edge& edge) {
    switch (edge.kind) {
      case Edge::Kind::text:
        return length_sum(pool_->shortest(edge.what), nodes_[edge.target].shortest, 0);
      case Edge::Kind::call:
        return length_sum(nodes_[begins_[edge.what]].shortest, nodes_[edge.target].shortest, 0);
      case Edge::Kind::nothing:
        break;
    }
    return nodes_[edge.target].shortest;
  };
  while (!queue.empty()) {
    const auto [length, id] = queue.top();
    queue.pop();
    if (nodes_[id].shortest != kNone) continue;
    nodes_[id].shortest = length;
    for (const User& user : users[id]) {
      if (nodes_[user.from].shortest != kNone) continue;
      const std::uint32_t through = length_of(nodes_[user.from].edges[user.edge]);
      if (through != kNone) queue.emplace(through, user.from);
    }
  }
  for (Node& node : nodes_) std::erase_if(node.edges, [&](const Edge& edge) { return length_of(edge) == kNone; });
  return nodes_[begins_[root]].shortest != kNone;
}

}  // namespace troupe::engine::constraints
