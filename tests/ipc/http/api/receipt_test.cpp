// The JSON of receipts: what is written reads the same, and what is wrong is refused by name.
#include "ipc/http/json/receipt.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "actors/requests/request.h"

namespace troupe::ipc::api {
namespace {

using actors::Proof;
using Catch::Matchers::Contains;
using scheduler::Outcome;

Proof some_proof() {
  Proof proof;
  proof.numerics_id = "6-avx512vnni-f16-92f12d9bef3d2293";
  proof.model = "a \"model\"";
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1, 424, 437});
  proof.sampling.temperature = 0.8f;
  proof.sampling.min_p = 0.05f;
  proof.sampling.repeat_last_n = -1;
  proof.sampling.seed = std::numeric_limits<std::uint64_t>::max();
  proof.sampling.choice = 63;
  proof.sampling.max_tokens = 40;
  proof.sampling.min_tokens = 3;
  proof.sampling.ignore_eos = true;
  proof.sampling.logit_bias = {{5, -1.5f}, {7, -std::numeric_limits<float>::infinity()}, {5, 0.1f}};
  proof.sampling.stop_ids = {2, 9};
  proof.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = 12};
  proof.stop_strings = {"The end", "\n"};
  proof.stop_scope = actors::StopScope::behind_reasoning;
  proof.begins_with = "<tool_call>\n{\"name\": \"";
  proof.shown_ids = {3, 4};
  proof.ids = {7, 8, 9};
  proof.text = "and \xC3\xBC";
  proof.outcome = Outcome::stop_string;
  proof.stop = "\n";
  return proof;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("receipts: one that does not say min_tokens means none") {
  Proof proof = some_proof();
  proof.sampling.min_tokens = 0;
  const std::string text = receipt_file(std::vector{proof});
  CHECK(text.find("min_tokens") == std::string::npos);
  const auto read = read_receipts(text);
  REQUIRE(read);
  CHECK((*read)[0].sampling.min_tokens == 0);
}

TEST_CASE("receipts: one that does not say where stop strings were looked for means all of the text") {
  Proof proof = some_proof();
  proof.stop_scope = actors::StopScope::text;
  const std::string text = receipt_file(std::vector{proof});
  CHECK(text.find("stop_scope") == std::string::npos);
  const auto read = read_receipts(text);
  REQUIRE(read);
  CHECK((*read)[0].stop_scope == actors::StopScope::text);
  const auto wrong = read_receipts(with(receipt_file(std::vector{some_proof()}), "behind_reasoning", "somewhere"));
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().message, Contains("stop_scope must be"));
}

TEST_CASE("receipts: one that does not say how its answer had to begin means that it had not to") {
  Proof proof = some_proof();
  proof.begins_with.clear();
  proof.shown_ids.clear();
  const std::string text = receipt_file(std::vector{proof});
  CHECK(text.find("begins_with") == std::string::npos);
  CHECK(text.find("shown_ids") == std::string::npos);
  REQUIRE(read_receipts(text));
  CHECK((*read_receipts(text))[0].begins_with.empty());
  proof.begins_with = std::string(actors::kMaxBeginningBytes + 1, 'b');
  const auto wrong = read_receipts(receipt_file(std::vector{proof}));
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().message, Contains("sampling.begins_with must be a text of at most 1024 bytes"));
}

TEST_CASE("receipts: one whose prompt is of a session that was recomputed says under which numerics it was") {
  Proof proof = some_proof();
  CHECK(receipt_file(std::vector{proof}).find("recomputed_from") == std::string::npos);
  proof.recomputed_from = "6-avx2-f16-1234567812345678";
  const std::string text = receipt_file(std::vector{proof});
  const auto read = read_receipts(text);
  if (!read) FAIL(read.error().message);
  CHECK((*read)[0].recomputed_from == proof.recomputed_from);
  CHECK(receipt_file(*read) == text);
  for (const char* const bad : {"\"\"", "\"6 avx2\"", "7"}) {
    const auto wrong = read_receipts(with(text, "\"6-avx2-f16-1234567812345678\"", bad));
    REQUIRE_FALSE(wrong);
    CHECK_THAT(wrong.error().message, Contains("recomputed_from must be a text"));
  }
}

TEST_CASE("receipts: the form that an answer had to have is read as it was written") {
  using engine::constraints::Constraint;
  using Kind = Constraint::Kind;
  const Constraint forms[] = {
      {.kind = Kind::json_object},
      {.kind = Kind::json_object, .spaces = true},
      {.kind = Kind::json_schema, .text = R"({"type":"array"})", .spaces = true},
      {.kind = Kind::regex, .text = "a\"\\\\d+"},
      {.kind = Kind::choice, .choices = {"yes", "n\no"}},
      {.kind = Kind::calls,
       .text = R"([{"type":"function"}])",
       .calls = {.must_call = true, .name = "f", .may_call_several = false, .strict = {"f", "g"}, .format = "hermes"}},
      {.kind = Kind::calls, .text = "[]", .calls = {.format = "lfm2"}}};
  for (const Constraint& form : forms) {
    Proof proof = some_proof();
    proof.form = std::make_shared<const actors::AnswerForm>(form, "response_format");
    const std::string text = receipt_file(std::vector{proof});
    INFO(text);
    const auto read = read_receipts(text);
    if (!read) FAIL(read.error().message);
    REQUIRE((*read)[0].form);
    CHECK((*read)[0].form->constraint() == form);
  }
  CHECK_FALSE((*read_receipts(receipt_file(std::vector{some_proof()})))[0].form);
  Proof proof = some_proof();
  proof.form = std::make_shared<const actors::AnswerForm>(forms[2], "response_format");
  const std::string text = receipt_file(std::vector{proof});
  const auto refuses = [&](const std::string& from, const std::string& to, const std::string& why) {
    const auto wrong = read_receipts(with(text, from, to));
    REQUIRE_FALSE(wrong);
    CHECK_THAT(wrong.error().message, Contains(why));
  };
  refuses(R"("json_schema")", R"("poem")", "sampling.form.kind must be one of json_object, json_schema, regex, choice");
  refuses(R"("kind":"json_schema")", R"("kind":"json_schema","more":1)", "sampling.form.more is no field");
  proof.form = std::make_shared<const actors::AnswerForm>(forms[5], "tools");
  const std::string of_calls = receipt_file(std::vector{proof});
  for (const auto& [from, to, why] : {std::tuple(R"("single":true)", R"("single":2)", "calls.single must be"),
                                      std::tuple(R"("calls":{)", R"("calls":{"x":1,)", "calls.x is no field"),
                                      std::tuple(R"("calls":{)", R"("cells":{)", "cells is no field")}) {
    const auto wrong = read_receipts(with(of_calls, from, to));
    REQUIRE_FALSE(wrong);
    CHECK_THAT(wrong.error().message, Contains(why));
  }
  refuses(R"("compact_json":false)", R"("compact_json":0)", "sampling.form.compact_json must be true or false");
}

TEST_CASE("receipts: what is written reads the same, alone and among several") {
  const Proof proof = some_proof();
  const std::string text = receipt_file(std::vector{proof});
  const auto read = read_receipts(text);
  if (!read) FAIL(read.error().message);
  REQUIRE(read->size() == 1);
  const Proof& back = (*read)[0];
  CHECK(back.numerics_id == proof.numerics_id);
  CHECK(back.model == proof.model);
  CHECK(*back.prompt == *proof.prompt);
  CHECK(back.sampling.temperature == proof.sampling.temperature);
  CHECK(back.sampling.min_p == proof.sampling.min_p);
  CHECK(back.sampling.repeat_last_n == -1);
  CHECK(back.sampling.seed == proof.sampling.seed);
  CHECK(back.sampling.choice == 63);
  CHECK(back.stop_scope == proof.stop_scope);
  CHECK(back.begins_with == proof.begins_with);
  CHECK(back.shown_ids == proof.shown_ids);
  CHECK(back.sampling.max_tokens == 40);
  CHECK(back.sampling.min_tokens == 3);
  CHECK(back.sampling.ignore_eos);
  CHECK(back.sampling.logit_bias == proof.sampling.logit_bias);
  CHECK(back.sampling.stop_ids == proof.sampling.stop_ids);
  REQUIRE(back.sampling.reasoning_budget);
  CHECK(back.sampling.reasoning_budget->num_tokens == 12);
  CHECK(back.stop_strings == proof.stop_strings);
  CHECK(back.ids == proof.ids);
  CHECK(back.text == proof.text);
  CHECK(back.outcome == Outcome::stop_string);
  CHECK(back.stop == "\n");
  CHECK(receipt_file(*read) == text);

  Proof open = proof;
  open.sampling.max_tokens = std::numeric_limits<std::uint32_t>::max();
  open.sampling.reasoning_budget.reset();
  const std::string both = receipt_file(std::vector{proof, open});
  const auto two = read_receipts(both);
  if (!two) FAIL(two.error().message);
  CHECK(two->size() == 2);
  CHECK((*two)[1].sampling.max_tokens == open.sampling.max_tokens);
  CHECK(receipt_file(*two) == both);
}

TEST_CASE("receipts: every field must be there, with a value that can be, and no other") {
  const std::string good = receipt_file(std::vector{some_proof()});
  const auto refused = [&](const std::string& text) {
    const auto read = read_receipts(text);
    REQUIRE_FALSE(read);
    CHECK(read.error().code == ErrorCode::invalid_argument);
    return read.error().message;
  };
  for (const char* field :
       {"receipt_version", "numerics_id", "model",      "name",          "hash",        "prompt_ids",
        "sampling",        "temperature", "top_k",      "repeat_last_n", "seed",        "choice",
        "max_tokens",      "ignore_eos",  "logit_bias", "stop_ids",      "stop",        "reasoning_budget",
        "answer",          "ids",         "text",       "end",           "matched_stop"}) {
    INFO(field);
    const std::string name = "\"" + std::string(field) + "\":";
    CHECK_THAT(refused(with(good, name, "\"x" + std::string(field) + "\":")),
               Contains(std::string(field) + " is missing") || Contains("x" + std::string(field) + " is no field"));
  }
  const std::pair<std::pair<const char*, const char*>, const char*> wrong[] = {
      {{"\"receipt_version\":1", "\"receipt_version\":2"}, "receipt_version must be 1"},
      {{"\"numerics_id\":\"6-", "\"numerics_id\":\"\\u001b6-"}, "numerics_id must be a text of visible"},
      {{"\"hash\":\"9", "\"hash\":\"8"}, "model.hash must be the hash in numerics_id"},
      {{"[1,424,437]", "[]"}, "prompt_ids must be an array of at least one"},
      {{"[1,424,437]", "[1,-1]"}, "prompt_ids must be an array of token ids"},
      {{"[1,424,437]", "[1,2147483648]"}, "prompt_ids must be an array of token ids"},
      {{"[1,424,437]", "[1,\"2\"]"}, "prompt_ids must be an array of token ids"},
      {{"\"temperature\":0.8", "\"temperature\":-1"}, "sampling.temperature"},
      {{"\"temperature\":0.8", "\"temperature\":1e300"}, "sampling.temperature must be a number"},
      {{"\"top_p\":1", "\"top_p\":\"1\""}, "sampling.top_p must be a number"},
      {{"\"seed\":\"18446744073709551615\"", "\"seed\":\"18446744073709551616\""}, "sampling.seed must be the digits"},
      {{"\"seed\":\"18446744073709551615\"", "\"seed\":7"}, "sampling.seed must be the digits"},
      {{"\"seed\":\"18446744073709551615\"", "\"seed\":\"07\""}, "sampling.seed must be the digits"},
      {{"\"choice\":63", "\"choice\":64"}, "sampling.choice must be an integer from 0 to 63"},
      {{"\"max_tokens\":40", "\"max_tokens\":2"}, "at most sampling.max_tokens, 2, ids"},
      {{"\"max_tokens\":40", "\"max_tokens\":-1"}, "sampling.max_tokens must be an integer"},
      {{"\"min_tokens\":3", "\"min_tokens\":-3"}, "sampling.min_tokens must be an integer"},
      {{"\"ignore_eos\":true", "\"ignore_eos\":1"}, "sampling.ignore_eos must be true or false"},
      {{"\"bias\":-1.5", "\"bias\":\"inf\""}, "sampling.logit_bias[].bias must be a number"},
      {{"\"id\":5", "\"id\":-5"}, "sampling.logit_bias[].id must be a token id"},
      {{"\"The end\"", "\"\""}, "sampling.stop must be an array of texts"},
      {{"\"end\":\"stop_string\"", "\"end\":\"queue_full\""}, "answer.end must be how an answer ends"},
      {{"{\"receipt_version\"", "{\"sampling\":1,\"receipt_version\""}, "sampling"},
  };
  for (const auto& [change, message] : wrong) {
    INFO(change.second);
    CHECK_THAT(refused(with(good, change.first, change.second)), Contains(message));
  }
  CHECK_THAT(refused("[" + good + ",{}]"), Contains("receipt 2: receipt_version is missing"));
  CHECK_THAT(refused("[]"), Contains("0 receipts; a file has 1 to 64"));
  CHECK_THAT(refused("7"), Contains("must be a JSON object"));
  CHECK_THAT(refused(good.substr(0, 100)), !Contains("receipt_version"));
  CHECK_THAT(refused(std::string(kMaxReceiptBytes + 1, ' ')), Contains("at most 16777216"));
}

TEST_CASE("receipts: of mutated files none is read wrongly: written again it is the same") {
  const std::string good = receipt_file(std::vector{some_proof()});
  std::mt19937 random(20172);
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % text.size();
      if (random() % 2 != 0)
        text[at] = static_cast<char>(" 019\"-.e,:[]{}antu"[random() % 18]);
      else if (random() % 2 != 0)
        text.erase(at, 1 + random() % 4);
      else
        text.insert(at, text.substr(random() % text.size(), random() % 16));
    }
    const auto read = read_receipts(text);
    if (!read) {
      REQUIRE_FALSE(read.error().message.empty());
      continue;
    }
    ++taken;
    const std::string again = receipt_file(*read);
    const auto back = read_receipts(again);
    REQUIRE(back);
    REQUIRE(receipt_file(*back) == again);
  }
  CHECK(taken > 100);
  CHECK(taken < 19000);
}

}  // namespace
}  // namespace troupe::ipc::api
