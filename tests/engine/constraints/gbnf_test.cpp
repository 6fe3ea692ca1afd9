// Grammars of GBNF: what they let through, against tables and a naive reading of random ones, and what is refused.
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/constraint.h"
#include "engine/constraints/gbnf/gbnf_document.h"
#include "engine/constraints/gbnf/gbnf_grammar.h"
#include "tests/engine/constraints/grammar_cases.h"

namespace troupe::engine::constraints::test {
namespace {

Machine gbnf_machine(std::string_view text) {
  auto grammar = grammar_of_gbnf(text);
  if (!grammar) FAIL(text << ": " << grammar.error().message);
  return Machine(std::move(*grammar));
}

Error gbnf_refusal(const std::string& text) {
  auto grammar = grammar_of({.kind = Constraint::Kind::grammar, .text = text});
  if (grammar) FAIL(text << " is taken");
  return grammar.error();
}

struct GbnfCase {
  std::string_view grammar;
  std::vector<std::string_view> in, out;
};

void check_grammars(const std::vector<GbnfCase>& cases) {
  for (const GbnfCase& each : cases) {
    Machine machine = gbnf_machine(each.grammar);
    for (const std::string_view text : each.in) {
      INFO(each.grammar << "\nin: " << text);
      CHECK(accepts(machine, text));
    }
    for (const std::string_view text : each.out) {
      INFO(each.grammar << "\nnot in: " << text);
      CHECK_FALSE(accepts(machine, text));
    }
  }
}

// JSON as RFC 8259 has it, without spaces.
constexpr std::string_view kJsonGrammar = R"g(
# The whole answer is one value.
root    ::= value
value   ::= object | array | string | number | ("true" | "false" | "null")
object  ::= "{" (member ("," member)*)? "}"
member  ::= string ":" value
array   ::= "[" (value ("," value)*)? "]"
string  ::= "\"" character* "\""
character ::= [^"\\\x00-\x1F] |
  "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number  ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
)g";

TEST_CASE("parts of GBNF's rules mean what llama.cpp says of them") {
  check_grammars({
      {R"g(root ::= "ab")g", {"ab"}, {"", "a", "abc", "AB"}},
      {R"g(root ::= "")g", {""}, {"a"}},
      {R"g(root ::=)g", {""}, {"a"}},
      {R"g(root ::= | "a" | )g", {"", "a"}, {"aa"}},
      {R"g(root ::= "a" "b" | "c")g", {"ab", "c"}, {"ac", "a", "abc"}},
      {R"g(root ::= "a" ("b" | "c") "d")g", {"abd", "acd"}, {"ad", "abcd"}},
      {R"g(root ::= "a"*)g", {"", "a", "aaa"}, {"b"}},
      {R"g(root ::= "ab"+)g", {"ab", "abab"}, {"", "aba"}},
      {R"g(root ::= "a" ? "b")g", {"b", "ab"}, {"aab"}},
      {R"g(root ::= [a-c]{2})g", {"ab", "cc"}, {"a", "abc", "ad"}},
      {R"g(root ::= [a-c]{ 2 , })g", {"ab", "abcabc"}, {"a", ""}},
      {R"g(root ::= ("a" "b"){1,2})g", {"ab", "abab"}, {"", "ababab"}},
      {R"g(root ::= "a"{0})g", {""}, {"a"}},
      {R"g(root ::= "a"{0,2} "b"{0,0})g", {"", "aa"}, {"aaa", "b"}},
      {R"g(root ::= "a"?{2}+)g", {"", "a", "aaaaa"}, {"b"}},
      {"root ::= x y-2 Z_z\nx ::= \"x\"\ny-2 ::= \"y\"\nZ_z ::= \"z\"", {"xyz"}, {"xy"}},
  });
}

TEST_CASE("texts and classes are of characters, written as they are or escaped") {
  check_grammars({
      {R"g(root ::= "\n\t\r\"\\\[\]\x41\u00e9\U0001F600")g", {"\n\t\r\"\\[]A\u00e9\U0001F600"}, {"nt"}},
      {R"g(root ::= "é" "日本")g", {"é日本"}, {"é日"}},
      {R"g(root ::= .)g", {"a", "\n", "é", "\U0001F600"}, {"", "ab", "\xc3", "\xff"}},
      {R"g(root ::= [^\n])g", {"a", "é", "\r"}, {"\n", "", "\x80"}},
      {R"g(root ::= [ぁ-ゟ]+)g", {"ひらがな"}, {"カ", "a", ""}},
      {R"g(root ::= [\x41-\x43\u00e9])g", {"A", "C", "é"}, {"D", "x"}},
      {R"g(root ::= [a-])g", {"a", "-"}, {"b"}},
      {R"g(root ::= [-a])g", {"a", "-"}, {"b"}},
      {R"g(root ::= [a-c-e])g", {"b", "-", "e"}, {"d"}},
      {R"g(root ::= [+--])g", {"+", ",", "-"}, {"."}},
      {R"g(root ::= [\]\[\\^"])g", {"]", "[", "\\", "^", "\""}, {"a"}},
      {R"g(root ::= [^^\-])g", {"a"}, {"^", "-"}},
      {R"g(root ::= [[#])g", {"[", "#"}, {"a"}},
      {R"g(root ::= "#" # a text, and a remark)g", {"#"}, {""}},
      {R"g(root ::= "\'\?\-\/\.")g", {"'?-/."}, {"'"}},
      {"root ::= \"a\nb\" [\n]", {"a\nb\n"}, {"ab"}},
      {R"g(root ::= [^\uD800-\uDFFF])g", {"a"}, {"ab"}},
  });
}

TEST_CASE("rules go on over lines, and remarks and empty lines stand anywhere between them") {
  check_grammars({
      {"\xEF\xBB\xBF# first\n\n  root ::= a b  # why\r\n# between\n\ta ::= \"a\"\r\n\r\nb::=\"b\"# last",
       {"ab"},
       {"a"}},
      {"root ::= (\n  # one\n  \"a\"\n\n  | \"b\"\n)+\n", {"a", "ba"}, {"c"}},
      {"root ::= \"a\" |\n\n  # two\n  \"b\"\n", {"a", "b"}, {"ab"}},
      {"root ::=\n  \"a\"\n  | \"b\"\n  | c\nc ::= \"c\"", {"a", "b", "c"}, {"ab"}},
      {"root ::= a\n  \"x\" # goes on\n  a\na ::= \"a\"", {"axa"}, {"ax"}},
      {"a ::= \"a\" root ::= a a", {"aa"}, {"a"}},
      {"root\n ::= \"a\"", {"a"}, {""}},
  });
}

TEST_CASE("a grammar of JSON lets through what the grammar of any JSON value does") {
  Machine machine = gbnf_machine(kJsonGrammar);
  Machine other = machine_of("{}");
  for (const std::string_view text :
       {R"g({"a":[1,-2.5e+10,{"b":null}],"":"\u00e9\n"})g", "[]", "{}", "[[[[]]]]", "true", "\"\"", "\"\U0001F600\"",
        "0", "[1,2", "01", "{\"a\"}", "[,]", "\"\n\"", "nul", "", "-", "1.", "{\"a\":1,}", "\"\\x\""}) {
    INFO(text);
    CHECK(accepts(machine, text) == accepts(other, text));
  }
  CHECK(machine.shortest(machine.begin()) == 1);
}

TEST_CASE("rules call themselves in the middle, at their end and at their begin") {
  check_grammars({
      {R"g(root ::= "(" root ")" | "")g", {"", "()", "((()))"}, {"(", ")(", "())"}},
      {R"g(root ::= "a" root | "b")g", {"b", "ab", "aaab"}, {"", "a", "ba"}},
      {R"g(root ::= root "a" | "b")g", {"b", "ba", "baaa"}, {"", "a", "ab"}},
      {R"g(root ::= ("a" root)?)g", {"", "a", "aa"}, {"b"}},
      {R"g(root ::= root? "a")g", {"a", "aa"}, {"", "b"}},
      {R"g(root ::= root | "a")g", {"a"}, {"", "aa"}},
      {R"g(root ::= root root | "a")g", {"a", "aa", "aaaa"}, {"", "b"}},
      {R"g(root ::= list
          list ::= list "," item | item
          item ::= [a-z] | "(" list ")")g",
       {"a", "a,b", "(a,b),c", "((a))"},
       {"", ",a", "a,", "(a", "a,,b"}},
      // Of one another.
      {R"g(root ::= a
          a ::= b "x" | "1"
          b ::= a "y" | "(" a ")" "2")g",
       {"1", "1yx", "1yxyx", "(1)2x", "(1yx)2xyx"},
       {"", "1x", "1y", "(1)2", "1xy"}},
      {R"g(root ::= sum
          sum ::= sum [+-] product | product
          product ::= product [*/] power | power
          power ::= atom "^" power | atom
          atom ::= [0-9]+ | "(" sum ")" | "-" atom)g",
       {"1", "1+2*3", "(1+2)*3^2^1", "--1", "12*(3-4)/5"},
       {"", "1+", "*1", "(1", "1^", "()"}},
      // What may be empty, before and behind.
      {R"g(root ::= list
          list ::= | list item
          item ::= "a" | "(" list ")")g",
       {"", "a", "aa", "(a)a", "()()"},
       {"(", "b"}},
      {R"g(root ::= a "."
          a ::= a b | ""
          b ::= "x"? "y" | "(" a ")")g",
       {".", "y.", "xyy.", "(y)xy."},
       {"", "x.", "(."}},
  });
}

TEST_CASE("what repeats and calls rules is counted") {
  check_grammars({
      {R"g(root ::= t{2,3}
          t ::= "a" | "(" t ")")g",
       {"aa", "a(a)a", "((a))a"},
       {"", "a", "aaaa", "(aa)"}},
      {R"g(root ::= (t ","){0,2} t
          t ::= "a" | "(" t ")")g",
       {"a", "a,a", "a,(a),a"},
       {"", "a,", "a,a,a,a"}},
      {R"g(root ::= ((t ","){2}){2,}
          t ::= "a" | "(" t ")")g",
       {"a,a,a,a,", "a,a,a,a,(a),a,"},
       {"a,a,", "a,a,a,", "a,a,a,a,a,"}},
      {R"g(root ::= (t | "b"){0} "c"
          t ::= "a" | "(" t ")")g",
       {"c"},
       {"ac", "bc"}},
      {R"g(root ::= (t? "b")* t*
          t ::= "a" | "(" t ")")g",
       {"", "b", "abb", "aa", "bab(a)"},
       {"c", "(b"}},
  });
}

TEST_CASE("rules that are too large for one expression are the same as small ones") {
  // Doubled 24 times: a text of 16 million characters.
  std::string doubled = "root ::= r0 \"b\"\n";
  for (int each = 0; each < 24; ++each)
    doubled +=
        "r" + std::to_string(each) + " ::= r" + std::to_string(each + 1) + " r" + std::to_string(each + 1) + "\n";
  Machine many = gbnf_machine(doubled + "r24 ::= \"a\" | \"c\"");
  CHECK(many.shortest(many.begin()) == (1u << 24) + 1);
  CHECK(many.shortest(many.after(many.begin(), "aca")) == (1u << 24) - 2);
  CHECK(many.after(many.begin(), "acb") == kStuck);
  // 3,000 words, and a list of them.
  std::string words = "root ::= word (\",\" word)*\nword ::= \"w0\"";
  for (int each = 1; each < 3000; ++each) words += " | \"w" + std::to_string(each) + "\"";
  Machine list = gbnf_machine(words);
  CHECK(accepts(list, "w0,w2999,w17"));
  CHECK_FALSE(accepts(list, "w0,w3000"));
  CHECK_FALSE(accepts(list, "w0,"));
  // A list of rules, each of which names the next.
  std::string chain = "root ::= r0\n";
  for (int each = 0; each < 5000; ++each)
    chain += "r" + std::to_string(each) + " ::= [a-z] r" + std::to_string(each + 1) + " | \"\"\n";
  Machine chained = gbnf_machine(chain + "r5000 ::= \".\"");
  CHECK(accepts(chained, "abc"));
  CHECK(accepts(chained, std::string(5000, 'x') + "."));
  CHECK_FALSE(accepts(chained, std::string(5001, 'x')));
}

TEST_CASE("what is no grammar is refused by line and column, with what is expected there") {
  struct Wrong {
    std::string grammar;
    std::string place;
    std::string message;
  };
  const std::vector<Wrong> wrong = {
      {"", "", "no rule; a rule is written name ::= ..."},
      {"# nothing\n", "", "no rule"},
      {"a ::= \"x\"", "", "no rule root"},
      {"root ::= a\n\nb ::= \"b\" a", "line 1, column 10", "there is no rule a"},
      {"root ::= \"a\"\nx ::= root\nroot ::= \"b\"", "line 3, column 1",
       "root is defined a second time; the first is in line 1"},
      {"root ::= \"abc", "line 1, column 10", "no closing quote"},
      {"root ::= \"a\"\nx ::= [a-z", "line 2, column 7", "no closing bracket"},
      {"root ::= (\"a\"", "line 1, column 14", "')' is expected, not the end; the '(' in line 1 is open"},
      {"root ::= (\"a\"\nb ::= \"b\"", "line 2, column 1", "for the '(' in line 1"},
      {"root ::= \"a\")", "line 1, column 13", "this ')' has no '('"},
      {"root ::= *", "line 1, column 10", "'*' has nothing before it"},
      {"root ::= | {2}", "line 1, column 12", "'{' has nothing before it"},
      {"root ::= \"a\"{,3}", "line 1, column 14", "at most 5 is {0,5}"},
      {"root ::= \"a\"{3", "line 1, column 15", "'}' is expected, not the end"},
      {"root ::= \"a\"{3,2}", "line 1, column 13", "{3,2} ends before it begins"},
      {"root ::= \"a\"{x}", "line 1, column 14", "a number is expected, not 'x'"},
      {"root ::= [z-a]", "line 1, column 11", "ends before it begins"},
      {"root ::= []", "line 1, column 10", "an empty class"},
      {"root ::= [^]", "line 1, column 10", "any character is '.'"},
      {R"g(root ::= "\q")g", "line 1, column 11", "this is no escape"},
      {R"g(root ::= "\d")g", "line 1, column 11", "\\d is of patterns"},
      {R"g(root ::= "\x4")g", "line 1, column 11", "\\x has 2 hexadecimal digits"},
      {R"g(root ::= "\u12")g", "line 1, column 11", "\\u has 4 hexadecimal digits"},
      {R"g(root ::= "\U00110000")g", "line 1, column 11", "above U+10FFFF"},
      {R"g(root ::= "\uD83D\uDE00")g", "line 1, column 11", "surrogate pair"},
      {"root ::= \"a\\", "line 1, column 12", "a backslash ends the grammar"},
      {"root ::= \"é\" 'a'", "line 1, column 14", "double quotes"},
      {"root = \"a\"", "line 1, column 6", "'::=' is expected, not '='; a rule is written name ::= ..."},
      {"start: \"a\"", "line 1, column 6", "Lark's notation"},
      {"?start: \"a\"", "line 1, column 1", "Lark's notation"},
      {"%import common.WS", "line 1, column 1", "Lark's notation"},
      {"root ::= a /b/\na ::= \"a\"", "line 1, column 12", "Lark's notation"},
      {"root ::= \"a\";", "line 1, column 13", "not ';'"},
      {"root ::= \"a\"\nb : \"b\"", "line 2, column 3", "a rule is written name ::= ..."},
      {"root ::= \"a\" & b", "line 1, column 14", "not '&'"},
      {"root ::= \"a\x01\" \x01", "line 1, column 15", "not '\\x01'"},
      {"root ::= \"\xff\"", "line 1, column 11", "not UTF-8"},
      // No text.
      {"root ::= \"a\" root", "line 1, column 1", "the rule root has no text"},
      {"root ::= a\na ::= \"x\" b\nb ::= \"y\" c \"z\"\nc ::= [^\\x00-\\U0010FFFF]", "line 4, column 1",
       "the rule c has no text"},
      {"root ::= a | a a\na ::= \"(\" b \")\"\nb ::= a \"x\" | b \"y\"", "", "has no text"},
  };
  for (const Wrong& each : wrong) {
    const Error error = gbnf_refusal(each.grammar);
    INFO(each.grammar << "\n" << error.message);
    CHECK(error.code == ErrorCode::invalid_argument);
    CHECK(error.message.find(each.place) != std::string::npos);
    CHECK(error.message.find(each.message) != std::string::npos);
  }
}

TEST_CASE("what GBNF has and is not supported is refused by name, as are limits") {
  std::string deep = "root ::= ", many = "root ::= ";
  for (std::size_t each = 0; each <= kMaxGbnfDepth; ++each) deep += "(";
  for (std::size_t each = 0; each <= kMaxGbnfParts; ++each) many += ". ";
  const std::vector<std::pair<std::string, std::string>> unsupported = {
      {"root ::= <[1000]>", "line 1, column 10: a token"},
      {"root ::= <think> .*", "a token"},
      {"root ::= !</think>*", "a token"},
      {"root ::= (= \"a\") \"b\"", "look-ahead"},
      {"root ::= \"a\"{1000000}", "100000 times"},
      {"root ::= \"a\"*********", "8 repetitions"},
      {deep, "64 deep"},
      {many, "100000 parts"},
      {"root ::= " + std::string(200, 'a'), "128 characters"},
      {"root ::= a{100000} a{100000} a{100000}\na ::= \"a\" | \"(\" a \")\"", "500000 parts"},
      {"root ::= a\na ::= \"x\"? a \"y\" | \"z\"",
       "line 2, column 1: the rule a begins with itself behind parts that may be empty"},
      {"root ::= a\na ::= b a \"y\" | \"z\"\nb ::= \"\" | \"(\" b \")\"", "the rule a begins with itself"},
  };
  for (const auto& [grammar, message] : unsupported) {
    const Error error = gbnf_refusal(grammar);
    INFO(grammar.substr(0, 200) << "\n" << error.message);
    CHECK(error.code == ErrorCode::unsupported);
    CHECK(error.message.find(message) != std::string::npos);
  }
}

// A random grammar of rules over "a", "b" and "c".
std::string random_part(std::mt19937& random, int depth) {
  static const std::vector<std::string> leaves = {"\"a\"", "\"b\"", "\"ab\"", "\"\"", "[ab]",
                                                  "[^a]",  "root",  "r1",     "r2"};
  const unsigned kind = depth == 0 ? 0 : random() % 8;
  if (kind < 3) return leaves[random() % leaves.size()];
  const auto inner = [&] { return random_part(random, depth - 1); };
  if (kind < 5) return inner() + " " + inner();
  if (kind == 5) return "(" + inner() + " | " + inner() + ")";
  static const std::vector<std::string> repetitions = {"?", "*", "+", "{2}", "{0,2}", "{1,}"};
  return "(" + inner() + ")" + repetitions[random() % repetitions.size()];
}

// All texts of the rules with at most so many bytes, read naively: again and again, until no more are found.
class NaiveTexts {
 public:
  NaiveTexts(const GbnfDocument& document, std::size_t max_bytes)
      : max_bytes_(max_bytes), texts_(document.rules.size()) {
    for (bool grows = true; grows;) {
      grows = false;
      for (std::size_t rule = 0; rule < texts_.size(); ++rule) {
        std::set<std::string> found = of(document.rules[rule].body);
        grows = grows || found.size() > texts_[rule].size();
        texts_[rule] = std::move(found);
      }
    }
  }
  const std::set<std::string>& of_rule(std::size_t rule) const { return texts_[rule]; }

 private:
  std::set<std::string> product(const std::set<std::string>& first, const std::set<std::string>& second) const {
    std::set<std::string> found;
    for (const std::string& a : first)
      for (const std::string& b : second)
        if (a.size() + b.size() <= max_bytes_) found.insert(a + b);
    return found;
  }

  std::set<std::string> of(const GbnfNode& node) const {
    std::set<std::string> found;
    switch (node.kind) {
      case GbnfNode::Kind::text:
        return {node.text};
      case GbnfNode::Kind::character:
        for (const char each : {'a', 'b', 'c'})
          if (node.characters.contains(static_cast<char32_t>(each))) found.insert(std::string(1, each));
        return found;
      case GbnfNode::Kind::reference:
        return texts_[node.rule];
      case GbnfNode::Kind::sequence:
        found = {""};
        for (const GbnfNode& each : node.parts) found = product(found, of(each));
        return found;
      case GbnfNode::Kind::alternatives:
        for (const GbnfNode& each : node.parts) found.merge(of(each));
        return found;
      case GbnfNode::Kind::repetition: {
        const std::set<std::string> once = of(node.parts[0]);
        std::set<std::string> power = {""};
        for (std::uint32_t count = 0; count < node.min; ++count) power = product(power, once);
        found = power;
        for (std::uint32_t count = node.min; count < std::min<std::uint32_t>(node.max, node.min + 8); ++count) {
          power = product(power, once);
          found.insert(power.begin(), power.end());
        }
        return found;
      }
    }
    return found;
  }

  std::size_t max_bytes_;
  std::vector<std::set<std::string>> texts_;
};

TEST_CASE("random grammars let through what a naive reading of them does") {
  constexpr std::size_t kMaxBytes = 5;
  std::vector<std::string> all{""};
  for (std::size_t at = 0; at < all.size(); ++at)
    if (all[at].size() < kMaxBytes)
      for (const char each : {'a', 'b', 'c'}) all.push_back(all[at] + each);
  std::mt19937 random(11);
  std::size_t num_taken = 0, num_left_recursive = 0;
  for (int each = 0; each < 600; ++each) {
    std::string text;
    for (const std::string_view name : {"root", "r1", "r2"}) {
      text += std::string(name) + " ::= ";
      const unsigned num_branches = 1 + random() % 3;
      for (unsigned branch = 0; branch < num_branches; ++branch)
        text += (branch == 0 ? "" : " | ") + random_part(random, 3);
      text += "\n";
    }
    INFO(text);
    const auto document = parse_gbnf(text);
    REQUIRE(document);
    const NaiveTexts naive(*document, kMaxBytes);
    const std::set<std::string>& expected = naive.of_rule(document->root);
    auto grammar = grammar_of({.kind = Constraint::Kind::grammar, .text = text});
    if (!grammar) {
      INFO(grammar.error().message);
      const bool is_empty = grammar.error().message.find("has no text") != std::string::npos;
      CHECK((grammar.error().code == ErrorCode::unsupported || (is_empty && expected.empty())));
      continue;
    }
    ++num_taken;
    num_left_recursive += text.find("::= root") != std::string::npos;
    try {
      Machine machine(std::move(*grammar));
      std::vector<std::string> wrong;
      for (const std::string& one : all)
        if (const StateId state = machine.after(machine.begin(), one);
            (state != kStuck && machine.may_end(state)) != expected.contains(one))
          wrong.push_back(one);
      CHECK(wrong == std::vector<std::string>());
      if (!expected.empty()) {
        std::size_t shortest = kMaxBytes;
        for (const std::string& one : expected) shortest = std::min(shortest, one.size());
        CHECK(machine.shortest(machine.begin()) == shortest);
      }
    } catch (const ConstraintLimit&) {
      // Ambiguous without end.
    }
  }
  CHECK(num_taken > 300);
  CHECK(num_left_recursive > 10);
}

}  // namespace
}  // namespace troupe::engine::constraints::test
