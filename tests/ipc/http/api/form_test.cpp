// Forms of answers: the fields of four dialects that ask for them.
#include <string>

#include <catch2/catch.hpp>

#include "actors/requests/answer_form.h"
#include "tests/ipc/http/api/api_support.h"

namespace troupe::ipc::api {
namespace {

using engine::constraints::Constraint;
using Kind = Constraint::Kind;

constexpr const char* kFormSchema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";

// The form that a call asks for; none: any text.
std::optional<Constraint> form_of(Endpoint endpoint, const std::string& body) {
  const ApiCall call = taken(endpoint, body);
  return call.request.form ? std::optional(call.request.form->constraint()) : std::nullopt;
}

std::string chat(const std::string& fields) { return R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}"; }

TEST_CASE("each API's field for the form of an answer is read") {
  const std::string schema = kFormSchema;
  const Constraint spaced{.kind = Kind::json_schema, .text = schema, .spaces = true};
  const std::string nested =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" + schema + "}}";
  const std::string flat = R"({"type":"json_schema","name":"n","schema":)" + schema + "}";
  CHECK(form_of(Endpoint::chat_completions, chat(nested)) == spaced);
  CHECK(form_of(Endpoint::completions, R"({"prompt":"x",)" + nested + "}") == spaced);
  CHECK(form_of(Endpoint::responses, R"({"input":"x","text":{"format":)" + flat + "}}") == spaced);
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":9,)";
  CHECK(form_of(Endpoint::messages,
                messages + R"("output_config":{"format":{"type":"json_schema","schema":)" + schema + "}}}") == spaced);
  CHECK(form_of(Endpoint::messages, messages + R"("output_format":{"type":"json_schema","schema":)" + schema + "}}") ==
        spaced);
  CHECK(form_of(Endpoint::chat_completions, chat(R"("guided_json":)" + schema)) == spaced);
  CHECK(form_of(Endpoint::chat_completions, chat(R"("guided_json":"{\"type\":\"null\"}")")) ==
        Constraint{.kind = Kind::json_schema, .text = R"({"type":"null"})", .spaces = true});
  CHECK(form_of(Endpoint::chat_completions, chat(R"("json_schema":)" + schema)) == spaced);
  CHECK(form_of(Endpoint::chat_completions,
                chat(R"("structured_outputs":{"disable_any_whitespace":true,"json":)" + schema + "}")) ==
        Constraint{.kind = Kind::json_schema, .text = schema});
  CHECK(form_of(Endpoint::chat_completions, chat(R"("response_format":{"type":"json_object"})")) ==
        Constraint{.kind = Kind::json_object, .spaces = true});
  for (const char* const field :
       {R"("guided_regex":"a+")", R"("regex":"a+")", R"("structured_outputs":{"regex":"a+"})"})
    CHECK(form_of(Endpoint::chat_completions, chat(field)) == Constraint{.kind = Kind::regex, .text = "a+"});
  for (const char* const field : {R"("guided_choice":["a","b"])", R"("structured_outputs":{"choice":["a","b"]})"})
    CHECK(form_of(Endpoint::chat_completions, chat(field)) == Constraint{.kind = Kind::choice, .choices = {"a", "b"}});
  for (const char* const field : {R"("grammar":"root ::= .")", R"("guided_grammar":"root ::= .")",
                                  R"("ebnf":"root ::= .")", R"("structured_outputs":{"grammar":"root ::= ."})"})
    CHECK(form_of(Endpoint::chat_completions, chat(field)) == Constraint{.kind = Kind::grammar, .text = "root ::= ."});
  for (const char* const field : {R"("response_format":{"type":"text"})", R"("json_schema":{})", R"("grammar":"")",
                                  R"("response_format":null)", R"("structured_outputs":{"json_object":false})"})
    CHECK_FALSE(form_of(Endpoint::chat_completions, chat(field)));
}

TEST_CASE("wrong forms are refused by the field that has them") {
  const auto refusal = [](const std::string& fields) { return refused(Endpoint::chat_completions, chat(fields)); };
  CHECK(refusal(R"("response_format":{"type":"json_schema"})").param == "response_format");
  CHECK(refusal(R"("response_format":{"type":"xml"})").param == "response_format.type");
  CHECK(refusal(R"("guided_choice":[])").param == "guided_choice");
  CHECK(refusal(R"("guided_grammar":1)").param == "guided_grammar");
  CHECK(refusal(R"("grammar":"root ::= \"x\"","regex":"a")").param == "grammar");
  CHECK(refusal(R"("structured_outputs":{"structural_tag":"x"})").param == "structured_outputs.structural_tag");
  const ApiError twice = refusal(R"("response_format":{"type":"json_object"},"guided_regex":"a")");
  CHECK(twice.param == "guided_regex");
  CHECK(twice.message.find("response_format") != std::string::npos);
  const ApiError beside =
      refusal(R"("response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}])");
  CHECK(beside.param == "response_format");
  CHECK(beside.message.find("tool_choice to none") != std::string::npos);
  CHECK(refusal(R"("response_format":{"type":"json_object"},"ignore_eos":true)").param == "ignore_eos");
  CHECK(refusal("\"guided_regex\":\"" + std::string(engine::constraints::kMaxConstraintBytes + 1, 'a') + "\"").param ==
        "guided_regex");
}

}  // namespace
}  // namespace troupe::ipc::api
