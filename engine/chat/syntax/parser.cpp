#include "engine/chat/syntax/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/chat/syntax/parser_base.h"

namespace troupe::engine::chat {
namespace {

class TemplateParser : private ExpressionParser {
 public:
  TemplateParser(std::string_view source, const Limits& limits) : ExpressionParser(source, limits) {}

  ParsedTemplate parse() {
    ParsedTemplate parsed;
    parsed.body = parse_body({});
    parsed.names = std::move(names_);
    return parsed;
  }

 private:
  using EndNames = std::vector<std::string_view>;
  using StatementPtr = std::unique_ptr<const Statement>;

  // Up to a tag with one of these names, which is the current token then; without names up to the end of the source.
  Body parse_body(const EndNames& ends) {
    const Level level(*this);
    Body body;
    while (now().type != TokenType::end) {
      const Place place = now().place;
      if (now().type == TokenType::data) {
        body.push_back(std::make_unique<TextOutput>(take().text, place));
      } else if (now().type == TokenType::variable_begin) {
        take();
        begin_tag();
        body.push_back(std::make_unique<Output>(parse_tuple(), place));
        expect(TokenType::variable_end, "'}}'");
      } else {
        expect(TokenType::block_begin, "a tag");
        begin_tag();
        if (now().type == TokenType::name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
        body.push_back(parse_statement());
        expect(TokenType::block_end, "'%}'");
      }
    }
    if (!ends.empty()) fail(now().place, fmt::format("unexpected end of template, expected '{}'", ends.back()));
    return body;
  }

  // The end of an opening tag, the body, and the name of the tag that ended it.
  Body parse_block(const EndNames& ends) {
    take_op(":");
    expect(TokenType::block_end, "'%}'");
    return parse_body(ends);
  }
  Body parse_only_block(std::string_view end) {
    Body body = parse_block({end});
    take();
    return body;
  }

  StatementPtr parse_statement() {
    if (now().type != TokenType::name) fail_unexpected("the name of a tag");
    const Token& tag = take();
    if (tag.text == "if") return parse_if(tag.place);
    if (tag.text == "for") return parse_for(tag.place);
    if (tag.text == "set") return parse_set(tag.place);
    if (tag.text == "macro") return parse_macro(tag.place);
    if (tag.text == "call") return parse_call_block(tag.place);
    if (tag.text == "filter") return parse_filter_block(tag.place);
    if (tag.text == "with") return parse_with(tag.place);
    if (tag.text == "generation") {
      auto scope = std::make_unique<With>(StatementKind::scope, tag.place);
      scope->body = parse_only_block("endgeneration");
      return scope;
    }
    if (tag.text == "break" || tag.text == "continue") return parse_jump(tag);
    for (const std::string_view known : {"block", "extends", "include", "import", "from", "print", "autoescape", "do"})
      if (tag.text == known) fail(tag.place, fmt::format("the tag '{}' is not supported in chat templates", known));
    fail(tag.place, fmt::format("Encountered unknown tag '{}'.", tag.text));
  }

  StatementPtr parse_jump(const Token& tag) {
    if (loops_ == 0) fail(tag.place, fmt::format("'{}' outside of a loop", tag.text));
    return std::make_unique<Jump>(tag.text == "break" ? StatementKind::leave_loop : StatementKind::next_item,
                                  tag.place);
  }

  StatementPtr parse_if(Place place) {
    auto made = std::make_unique<Condition>(place);
    while (true) {
      ExpressionPtr condition = parse_tuple(false);
      made->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
      const Token& ended_by = take();
      if (ended_by.is_name("else")) made->otherwise = parse_only_block("endif");
      if (!ended_by.is_name("elif")) return made;
    }
  }

  StatementPtr parse_for(Place place) {
    auto loop = std::make_unique<Loop>(place);
    loop->target = parse_target(false, "in");
    expect_name("in");
    loop->items = parse_tuple(false, "recursive");
    if (take_name("if")) loop->filter = parse_expression();
    if (now().is_name("recursive")) fail(place, "recursive loops are not supported in chat templates");
    ++loops_;
    loop->body = parse_block({"endfor", "else"});
    --loops_;
    if (take().text == "else") loop->otherwise = parse_only_block("endfor");
    return loop;
  }

  StatementPtr parse_set(Place place) {
    ExpressionPtr target = parse_target(true);
    const bool is_block = !now().is_op("=");
    auto made =
        std::make_unique<Assignment>(is_block ? StatementKind::block_assignment : StatementKind::assignment, place);
    made->target = std::move(target);
    if (is_block) {
      if (now().is_op("|")) made->value = parse_filters(nullptr, false);
      made->body = parse_only_block("endset");
    } else {
      take();
      made->value = parse_tuple();
    }
    return made;
  }

  std::vector<Parameter> parse_parameters() {
    std::vector<Parameter> parameters;
    expect_op("(");
    while (!now().is_op(")")) {
      if (!parameters.empty()) expect_op(",");
      Parameter parameter;
      const Place place = now().place;
      parameter.name = expect_identifier();
      if (take_op("="))
        parameter.fallback = parse_expression();
      else if (!parameters.empty() && parameters.back().fallback)
        fail(place, "non-default argument follows default argument");
      parameters.push_back(std::move(parameter));
    }
    take();
    return parameters;
  }

  // The body of a macro, and which of the special names it mentions.
  void parse_macro_body(Macro& macro, std::string_view end) {
    std::set<std::string, std::less<>> outside;
    std::swap(outside, names_);
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_only_block(end);
    loops_ = loops;
    macro.uses_varargs = names_.contains("varargs");
    macro.uses_kwargs = names_.contains("kwargs");
    macro.uses_caller = names_.contains("caller");
    names_.merge(outside);
  }

  StatementPtr parse_macro(Place place) {
    auto macro = std::make_unique<Macro>(StatementKind::macro, place);
    macro->name = expect_identifier();
    macro->parameters = parse_parameters();
    parse_macro_body(*macro, "endmacro");
    return macro;
  }

  StatementPtr parse_call_block(Place place) {
    auto made = std::make_unique<CallBlock>(place);
    auto body = std::make_unique<Macro>(StatementKind::macro, place);
    body->name = "caller";
    if (now().is_op("(")) body->parameters = parse_parameters();
    made->call = parse_expression();
    if (made->call->kind != ExpressionKind::call) fail(place, "expected call");
    parse_macro_body(*body, "endcall");
    made->body = std::move(body);
    return made;
  }

  StatementPtr parse_filter_block(Place place) {
    auto made = std::make_unique<FilterBlock>(place);
    made->filter = parse_filters(nullptr, true);
    made->body = parse_only_block("endfilter");
    return made;
  }

  StatementPtr parse_with(Place place) {
    auto made = std::make_unique<With>(StatementKind::with, place);
    while (now().type != TokenType::block_end) {
      if (!made->assignments.empty()) expect_op(",");
      ExpressionPtr target = parse_target(false);
      expect_op("=");
      made->assignments.emplace_back(std::move(target), parse_expression());
    }
    made->body = parse_only_block("endwith");
    return made;
  }

  int loops_ = 0;  // around the current tag
};

}  // namespace

ParsedTemplate parse_template(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes)
    throw TemplateError(fmt::format("it is longer than {} KiB", limits.max_source_bytes >> 10));
  return TemplateParser(source, limits).parse();
}

}  // namespace troupe::engine::chat
