// Compiled forms that are kept: found by their tenant alone, within its bytes and those of all.
#include "actors/requests/form_cache.h"

#include <string>

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

using engine::constraints::Constraint;
using Kind = Constraint::Kind;

constexpr TenantId kFormAnna{1001}, kFormBert{1002}, kFormCarl{1003};

Constraint regex_form(const std::string& text) { return {.kind = Kind::regex, .text = text}; }

std::shared_ptr<const engine::constraints::CompiledForm> compiled_form(const Constraint& form) {
  auto grammar = engine::constraints::grammar_of(form);
  REQUIRE(grammar);
  return std::make_shared<const engine::constraints::CompiledForm>(
      engine::constraints::CompiledForm{.grammar = std::move(*grammar)});
}

// Keeps the form; all with names of one length take the same bytes.
std::shared_ptr<const engine::constraints::CompiledForm> keep_form(FormCache& cache, TenantId tenant,
                                                                   const std::string& text) {
  const Constraint form = regex_form(text);
  auto grammar = compiled_form(form);
  cache.keep(tenant, form, grammar);
  return grammar;
}

std::size_t bytes_of_one() {
  FormCache cache;
  (void)keep_form(cache, kFormAnna, "a0");
  return cache.bytes();
}

TEST_CASE("a form is found by the tenant that asked for it, and by no other") {
  FormCache cache;
  const auto kept = keep_form(cache, kFormAnna, "a0");
  CHECK(cache.find(kFormAnna, regex_form("a0")) == kept);
  CHECK(cache.find(kFormBert, regex_form("a0")) == nullptr);
  CHECK(cache.find(kFormAnna, regex_form("a1")) == nullptr);
  CHECK(cache.bytes() == cache.bytes_of(kFormAnna));
  CHECK(cache.bytes() >= kept->bytes_used() + 2);
  CHECK(cache.bytes_of(kFormBert) == 0);
}

TEST_CASE("forms are told apart by all that they say") {
  FormCache cache;
  const std::vector<Constraint> forms = {
      {.kind = Kind::json_object},
      {.kind = Kind::json_object, .spaces = true},
      {.kind = Kind::json_schema, .text = "{}"},
      {.kind = Kind::json_schema, .text = "{}", .spaces = true},
      {.kind = Kind::choice, .choices = {"a", "b"}},
      {.kind = Kind::choice, .choices = {"ab"}},
      {.kind = Kind::regex, .text = "a"},
      {.kind = Kind::grammar, .text = "root ::= \"a\""},
  };
  std::vector<std::shared_ptr<const engine::constraints::CompiledForm>> grammars;
  for (const Constraint& form : forms) {
    CHECK(cache.find(kFormAnna, form) == nullptr);
    grammars.push_back(compiled_form(form));
    cache.keep(kFormAnna, form, grammars.back());
  }
  for (std::size_t at = 0; at < forms.size(); ++at) CHECK(cache.find(kFormAnna, forms[at]) == grammars[at]);
  CHECK(cache.size() == forms.size());
}

TEST_CASE("a form that is kept already is kept once") {
  FormCache cache;
  const auto first = keep_form(cache, kFormAnna, "a0");
  const std::size_t bytes = cache.bytes();
  (void)keep_form(cache, kFormAnna, "a0");
  CHECK(cache.bytes() == bytes);
  CHECK(cache.find(kFormAnna, regex_form("a0")) == first);
}

TEST_CASE("beyond a tenant's bytes its own least recently used form goes") {
  const std::size_t one = bytes_of_one();
  FormCache cache(3 * one, 100 * one);
  for (const char* const text : {"a0", "a1", "a2"}) (void)keep_form(cache, kFormAnna, text);
  (void)keep_form(cache, kFormBert, "b0");
  CHECK(cache.find(kFormAnna, regex_form("a0")) != nullptr);  // used now
  (void)keep_form(cache, kFormAnna, "a3");
  CHECK(cache.find(kFormAnna, regex_form("a1")) == nullptr);
  for (const char* const text : {"a0", "a2", "a3"}) CHECK(cache.find(kFormAnna, regex_form(text)) != nullptr);
  CHECK(cache.find(kFormBert, regex_form("b0")) != nullptr);
  CHECK(cache.bytes_of(kFormAnna) == 3 * one);
  // Larger than all that it may keep.
  const std::string large(1000, 'x');
  (void)keep_form(cache, kFormAnna, large);
  CHECK(cache.find(kFormAnna, regex_form(large)) == nullptr);
  CHECK(cache.bytes_of(kFormAnna) == 3 * one);
}

TEST_CASE("beyond the bytes of all, the tenant that holds most loses a form, and one with little none") {
  const std::size_t one = bytes_of_one();
  FormCache cache(5 * one, 6 * one);
  for (const char* const text : {"a0", "a1", "a2", "a3", "a4"}) (void)keep_form(cache, kFormAnna, text);
  (void)keep_form(cache, kFormBert, "b0");
  (void)keep_form(cache, kFormCarl, "c0");  // Anna's a0 goes
  CHECK(cache.bytes() == 6 * one);
  CHECK(cache.find(kFormAnna, regex_form("a0")) == nullptr);
  (void)keep_form(cache, kFormAnna, "a5");  // her own a1 does
  CHECK(cache.find(kFormAnna, regex_form("a1")) == nullptr);
  CHECK(cache.find(kFormBert, regex_form("b0")) != nullptr);
  for (int each = 0; each < 50; ++each)
    (void)keep_form(cache, kFormAnna, {static_cast<char>('A' + each % 26), static_cast<char>('0' + each / 26)});
  CHECK(cache.find(kFormBert, regex_form("b0")) != nullptr);
  CHECK(cache.find(kFormCarl, regex_form("c0")) != nullptr);
  (void)keep_form(cache, kFormBert, "b1");  // until all hold as much
  (void)keep_form(cache, kFormCarl, "c1");
  CHECK(cache.bytes_of(kFormAnna) == 2 * one);
  (void)keep_form(cache, TenantId{1004}, "d0");
  CHECK(cache.bytes() == 6 * one);
  CHECK(cache.bytes_of(TenantId{1004}) == one);
}

TEST_CASE("a newcomer that would hold most itself takes nothing from the others") {
  const std::size_t one = bytes_of_one();
  FormCache cache(100 * one, 2 * one + one / 2);
  (void)keep_form(cache, kFormAnna, "a0");
  (void)keep_form(cache, kFormBert, "b0");
  (void)keep_form(cache, kFormCarl, "c0");
  CHECK(cache.bytes_of(kFormCarl) == 0);
  CHECK(cache.find(kFormAnna, regex_form("a0")) != nullptr);
  CHECK(cache.find(kFormBert, regex_form("b0")) != nullptr);
}

}  // namespace
}  // namespace troupe::actors
