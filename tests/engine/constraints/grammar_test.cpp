// Grammars: copies of them, groups of rules that need one another, and rules that begin with themselves.
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/constraint.h"
#include "engine/constraints/grammar/left_recursion.h"
#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/grammar/strong_components.h"

namespace troupe::engine::constraints::test {
namespace {

// What a machine does with random texts within so many derivations each: states and limits that it meets.
std::vector<std::string> deeds_of(Grammar grammar, std::uint32_t seed) {
  Machine machine(std::move(grammar));
  std::vector<std::string> deeds;
  std::mt19937 random(seed);
  for (int each = 0; each < 50; ++each) {
    machine.pool().limit_work(1 + random() % 20);
    std::string deed;
    try {
      StateId state = machine.begin();
      for (int step = 0; step < 30 && state != kStuck; ++step) {
        state = machine.next(state, static_cast<std::uint8_t>(" \",0123:[]abc{}tru"[random() % 18]));
        deed += std::to_string(state) + ' ';
        if (state != kStuck) deed += std::to_string(machine.shortest(state)) + ' ';
      }
    } catch (const ConstraintLimit& limit) {
      deed += limit.what();
    }
    deeds.push_back(deed + std::to_string(machine.bytes_used()));
  }
  return deeds;
}

TEST_CASE("copies of a grammar read alike, whatever was read with others before") {
  const std::vector<Constraint> forms = {
      {.kind = Constraint::Kind::json_object, .spaces = true},
      {.kind = Constraint::Kind::json_schema,
       .text = R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-c]*b$","minLength":2},
                   "b":{"type":"integer","multipleOf":3}},"patternProperties":{"^c":{"type":"null"}}})"},
      {.kind = Constraint::Kind::regex, .text = "[0-3]{2,40}(a|b)*[abc]{3}"},
      {.kind = Constraint::Kind::grammar,
       .text = "root ::= root \",\" item | item\nitem ::= [0-3]+ | \"[\" root \"]\""},
  };
  for (const Constraint& form : forms) {
    auto made = grammar_of(form);
    REQUIRE(made);
    const Grammar grammar = std::move(*made);
    const std::size_t bytes = grammar.bytes_used();
    const std::vector<std::string> first = deeds_of(grammar.copy(), 3);
    const std::vector<std::string> other = deeds_of(grammar.copy(), 4);
    CHECK(first != other);
    CHECK(deeds_of(grammar.copy(), 3) == first);
    auto again = grammar_of(form);
    REQUIRE(again);
    CHECK(deeds_of(again->copy(), 3) == first);
    CHECK(grammar.bytes_used() == bytes);
  }
}

TEST_CASE("a copy knows the expressions that it was copied with") {
  Grammar grammar;
  const RuleId root = grammar.add_rule();
  const NodeId end = grammar.add_node();
  grammar.set_end(end);
  const RegexId text = grammar.pool().literal("abc");
  grammar.add_text(grammar.begin_of(root), text, end);
  REQUIRE(grammar.finish(root));
  Grammar copy = grammar.copy();
  CHECK(copy.pool().literal("abc") == text);
  CHECK(copy.pool().size() == grammar.pool().size());
  CHECK(copy.pool().matches(text, "abc"));
}

TEST_CASE("groups that need one another come behind those that they need") {
  const std::vector<std::vector<std::size_t>> targets = {{1, 4}, {2}, {3, 1}, {}, {4}, {0}};
  const auto groups = strong_components(6, 0, [&](std::size_t each) { return targets[each]; });
  REQUIRE(groups.size() == 4);  // 5 is not reached
  CHECK(groups[0] == std::vector<std::size_t>{3});
  CHECK(std::set<std::size_t>(groups[1].begin(), groups[1].end()) == std::set<std::size_t>{1, 2});
  CHECK(groups[2] == std::vector<std::size_t>{4});
  CHECK(groups[3] == std::vector<std::size_t>{0});
  // A ring of many.
  const auto ring =
      strong_components(100'000, 0, [](std::size_t each) { return std::vector<std::size_t>{(each + 1) % 100'000}; });
  CHECK(ring.size() == 1);
}

TEST_CASE("a grammar without rules that begin with themselves stays as it is") {
  Grammar grammar;
  const RuleId root = grammar.add_rule();
  const NodeId middle = grammar.add_node(), end = grammar.add_node();
  grammar.set_end(end);
  grammar.add_text(grammar.begin_of(root), grammar.pool().literal("("), middle);
  grammar.add_call(middle, root, end);
  grammar.add_text(middle, grammar.pool().literal("x"), end);
  REQUIRE(grammar.finish(root));
  const std::size_t num_nodes = grammar.num_nodes();
  CHECK_FALSE(remove_left_recursion(grammar, root));
  CHECK(grammar.num_nodes() == num_nodes);
}

}  // namespace
}  // namespace troupe::engine::constraints::test
