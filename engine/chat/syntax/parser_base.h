// What the parsers of expressions and of statements share: the tokens and the bounds.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/syntax/ast.h"
#include "engine/chat/syntax/lexer.h"
#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {

class ExpressionParser {
 protected:
  ExpressionParser(std::string_view source, const Limits& limits) : limits_(limits), tokens_(read_tokens(source)) {}

  // Counts a level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) { parser_.enter(); }
    ~Level() { --parser_.nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool take_op(std::string_view symbol);
  bool take_name(std::string_view name);
  void expect_op(std::string_view symbol);
  void expect_name(std::string_view name);
  void expect(TokenType type, std::string_view what);
  std::string expect_identifier();
  [[noreturn]] void fail(Place place, std::string_view what) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  // One expression, without a comma outside of brackets.
  ExpressionPtr parse_expression(bool with_condition = true);
  // Several with commas between are a tuple. Ends before `end_name`, if given.
  ExpressionPtr parse_tuple(bool with_condition = true, std::string_view end_name = {}, bool in_parentheses = false);
  // name(arguments)|name...; `input` null: the first filter follows without `|`.
  ExpressionPtr parse_filters(ExpressionPtr input, bool begins_inline);
  // A name, `name.member` (if `with_member`), or a tuple of names.
  ExpressionPtr parse_target(bool with_member, std::string_view end_name = {});
  // Bounds how much one tag chains: a.b.c|d(e)
  void begin_tag() { num_chained_ = 0; }

  Limits limits_;
  std::set<std::string, std::less<>> names_;

 private:
  void enter();
  void count_chained();

  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dictionary();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_slice(ExpressionPtr object, ExpressionPtr start, Place place);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_single_target(bool with_member);
  Arguments parse_arguments();
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t nesting_ = 0;
  std::uint32_t num_chained_ = 0;
};

}  // namespace troupe::engine::chat
