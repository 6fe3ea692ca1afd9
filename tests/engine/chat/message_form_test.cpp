// In which form a template reads what messages say, and what of it does not reach the prompt.
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "engine/compute/interrupt.h"
#include "tests/engine/chat/rendered.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::chat {
namespace {

using Roles = std::vector<std::string>;

std::shared_ptr<const ChatTemplate> parsed(std::string_view source) {
  auto made = ChatTemplate::parse(source, "t");
  if (!made) FAIL(made.error().message);
  return *made;
}

MessageForm form_of(std::string_view source) { return parsed(source)->form(); }

RenderedPrompt rendered_messages(std::string_view source, std::string_view messages) {
  ChatInput input;
  input.messages = test::json(messages);
  auto prompt = parsed(source)->render(input);
  if (!prompt) FAIL(prompt.error().message);
  return *std::move(prompt);
}

constexpr const char* kParts =
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %};{% endfor %}";
constexpr const char* kTexts = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

TEST_CASE("a template that goes through parts reads parts, one that writes the content reads a text") {
  const Roles all = {"user", "assistant", "system", "tool"};
  CHECK(form_of(kParts).parts_roles == all);
  CHECK(form_of("{% for m in messages %}{{ m.content[0]['text'] }}{% endfor %}").parts_roles == all);
  CHECK(form_of("{% for m in messages %}{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | "
                "join }}{% endfor %}")
            .parts_roles == all);
  CHECK(form_of(kTexts).parts_roles.empty());
  CHECK(form_of("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}"
                "{% endif %}{% endfor %}")
            .parts_roles.empty());
  for (const BuiltinTemplate& each : builtin_templates()) {
    INFO(each.name);
    CHECK(form_of(each.source).parts_roles.empty());
  }
}

TEST_CASE("the form is found out for each role") {
  CHECK(form_of("{% for m in messages %}{% if m.role == 'user' %}{{ m.content[0].text }}{% else %}{{ m.content }}"
                "{% endif %}{% endfor %}")
            .parts_roles == Roles{"user"});
  // One that refuses texts, in words of its own.
  CHECK(form_of("{% for m in messages %}{% if m.content is string %}{{ raise_exception('parts, please') }}{% endif %}"
                "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
            .parts_roles.size() == 4);
  // One that writes neither, and one that takes too many steps, read texts as far as is known.
  CHECK(form_of("nothing").parts_roles.empty());
  CHECK(
      form_of("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}").parts_roles.empty());
}

TEST_CASE("a template that tests for none is given none, others are not") {
  const auto takes = [](std::string_view source) {
    const MessageForm form = form_of(source);
    return std::pair(form.takes_null_beside_calls, form.takes_null_alone);
  };
  CHECK(takes("{% for m in messages %}{% if m.content is none %}-{% else %}{{ m.content }}{% endif %}{% endfor %}") ==
        std::pair(true, true));
  CHECK(takes("{% for m in messages %}{% if m.tool_calls and m.content is none %}-{% else %}{{ m.content }}{% endif %}"
              "{% endfor %}") == std::pair(true, false));
  CHECK(takes("{% for m in messages %}{% if m.content %}{{ m.content }}{% endif %}{% endfor %}") ==
        std::pair(true, true));
  CHECK(takes(kTexts) == std::pair(false, false));  // writes None
  CHECK(takes("{% for m in messages %}{{ m.content | tojson }}{% endfor %}") == std::pair(false, false));  // null
  CHECK(takes("{% for m in messages %}{{ '' + m.content }}{% endfor %}") == std::pair(false, false));      // fails
}

TEST_CASE("places and neighbours that a template refuses, or writes nothing of, are found out") {
  const auto taken = [](std::string_view source) {
    const MessageForm form = form_of(source);
    return std::tuple(form.reads("system"), form.takes_second_system, form.takes_later_system, form.single_roles);
  };
  const auto refuses = [](const std::string& condition) {
    return "{% for m in messages %}{% if " + condition +
           " %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}";
  };
  const Roles both = {"user", "assistant"};
  CHECK(taken(kTexts) == std::tuple(true, true, true, Roles{}));
  CHECK(taken(kParts) == std::tuple(true, true, true, Roles{}));
  CHECK(taken(refuses("m.role == 'system' and not loop.first")) == std::tuple(true, false, false, Roles{}));
  CHECK(taken(refuses("m.role == 'system' and not loop.first and loop.previtem.role == 'user'")) ==
        std::tuple(true, true, false, Roles{}));
  CHECK(taken(refuses("m.role == 'system' and not loop.first and loop.previtem.role == 'system'")) ==
        std::tuple(true, false, true, Roles{}));
  CHECK(taken(refuses("m.role == 'system'")) == std::tuple(false, false, false, Roles{}));
  CHECK(taken(refuses("m.role != 'system' and not loop.first and loop.previtem.role == m.role")) ==
        std::tuple(true, true, true, both));
  CHECK(taken(refuses("m.role == 'user' and not loop.first and loop.previtem.role == 'user'")) ==
        std::tuple(true, true, true, Roles{"user"}));
  // Without an error: the first of the system alone, the last one alone, none, and the last message of all.
  CHECK(taken("{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.content }}{% endif %}"
              "{% endfor %}") == std::tuple(true, false, false, Roles{}));
  CHECK(taken("{% set ns = namespace(s='') %}{% for m in messages if m.role == 'system' %}{% set ns.s = m.content %}"
              "{% endfor %}{{ ns.s }}{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}") ==
        std::tuple(true, false, false, Roles{}));
  CHECK(taken("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}") ==
        std::tuple(false, false, false, Roles{}));
  CHECK(taken("{{ messages[-1].content }}") == std::tuple(false, false, false, both));
}

TEST_CASE("a template that has the word developer is asked whether it writes what developers say") {
  CHECK(form_of("{% for m in messages %}{{ m.content }}{# developer #}{% endfor %}").reads("developer"));
  CHECK_FALSE(
      form_of("{% for m in messages if m.role != 'developer' %}{{ m.content }}{% endfor %}").reads("developer"));
}

TEST_CASE("the places that published templates refuse are found out in the time of a trial") {
  struct Expected {
    const char* name;
    bool reads_system, takes_second, takes_later, takes_neighbours;
  };
  for (const Expected& each : {Expected{"Qwen3.5-4B", true, false, false, true},
                               {"mistralai-Mistral-Nemo-Instruct-2407", true, false, false, false},
                               {"mistralai-Ministral-3-14B-Reasoning-2512", true, false, false, false},
                               {"google-gemma-2-2b-it", false, false, false, false},
                               {"openai-gpt-oss-120b", true, false, false, true},
                               {"HuggingFaceTB-SmolLM3-3B", true, false, false, true},
                               {"MiniMax-M2", true, false, false, true},
                               {"unsloth-mistral-Devstral-Small-2507", true, true, true, true},
                               {"GLM-4.7-Flash", true, true, true, true},
                               {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", true, true, true, true},
                               {"LFM2.5-8B-A1B", true, true, true, true},
                               {"Kimi-K2-Instruct", true, true, true, true}}) {
    const auto path = troupe::test::shared_file("thirdparty/templates/" + std::string(each.name) + ".jinja");
    if (!path) continue;
    std::ifstream file(*path, std::ios::binary);
    const auto made = ChatTemplate::parse(std::string(std::istreambuf_iterator<char>(file), {}), each.name);
    REQUIRE((made ? "" : made.error().message) == "");
    INFO(each.name);
    TimeBudget time = trial_time();
    REQUIRE((*made)->try_out(time));
    const MessageForm& form = (*made)->form();
    CHECK(form.reads("system") == each.reads_system);
    CHECK(form.takes_second_system == each.takes_second);
    CHECK(form.takes_later_system == each.takes_later);
    CHECK(form.takes_neighbours("user") == each.takes_neighbours);
    CHECK(form.takes_neighbours("assistant") == each.takes_neighbours);
  }
}

TEST_CASE("a content of which nothing is in the prompt is named, whatever the template makes of the others") {
  constexpr const char* kTurns = R"([{"role": "user", "content": "yes"}, {"role": "assistant", "content": " \n"},
                                     {"role": "user", "content": "yes"}])";
  CHECK(rendered_messages(kTexts, kTurns).left_out.empty());
  CHECK(rendered_messages("{% for m in messages %}{{ m.content | upper | replace('E', '<e>') | tojson }}{% endfor %}",
                          kTurns)
            .left_out.empty());
  // The text of another message, though it is the same, is not that of the first.
  CHECK(rendered_messages("{{ messages[-1].content }}", kTurns).left_out == std::vector<std::size_t>{0});
  CHECK(rendered_messages("yes", kTurns).left_out == std::vector<std::size_t>{0, 2});
  CHECK(rendered_messages(kParts, kTurns).left_out == std::vector<std::size_t>{0, 2});
}

TEST_CASE("each part counts, and parts that are written as a list are no text") {
  constexpr const char* kTwo = R"([{"role": "user", "content": [{"type": "text", "text": "one"},
                                                                {"type": "text", "text": "two"}]}])";
  CHECK(rendered_messages(kParts, kTwo).text() == "user:onetwo;");
  CHECK(rendered_messages(kParts, kTwo).left_out.empty());
  CHECK_FALSE(rendered_messages(kParts, kTwo).writes_whole_parts);
  CHECK(rendered_messages("{{ messages[0].content[0].text }}", kTwo).left_out == std::vector<std::size_t>{0});
  CHECK(rendered_messages(kTexts, kTwo).writes_whole_parts);
}

TEST_CASE("neighbouring texts of input are one segment") {
  const RenderedPrompt prompt =
      rendered_messages("{% for m in messages %}{{ m.content }}{% endfor %}",
                        R"([{"role": "user", "content": "<|im_"}, {"role": "user", "content": "end|>"}])");
  REQUIRE(prompt.segments.size() == 1);
  CHECK(prompt.segments[0].text == "<|im_end|>");
  CHECK(prompt.segments[0].from_input);
}

TEST_CASE("integers beyond 64 bits stay what they are, and real numbers real") {
  const Json numbers = test::json(R"({"a": 18446744073709551615, "b": -99999999999999999999999, "c": 1.0, "d": 3})");
  CHECK(
      test::rendered("{{ x | tojson }} {{ x.a }} {{ x.b is integer }} {{ x.a is float }} {{ x.a == x.a }}",
                     {{"x", numbers}}) ==
      R"({"a": 18446744073709551615, "b": -99999999999999999999999, "c": 1.0, "d": 3} 18446744073709551615 True False)"
      " True");
  CHECK(test::rendered("{{ x.a > 5 }} {{ x.b < 0 }} {{ x.a | int }} {{ x }}", {{"x", numbers}}) ==
        "True True 18446744073709551615 {'a': 18446744073709551615, 'b': -99999999999999999999999, 'c': 1.0, 'd': 3}");
}

TEST_CASE("filters that go through items give nothing of what is none") {
  CHECK(test::rendered("{{ x | select | list }}{{ x | reject('none') | list }}{{ x | map('upper') | list }}"
                       "{{ x | selectattr('a') | list }}{{ x | rejectattr('a') | list }}{{ 0 | map | list }}",
                       {{"x", Json()}}) == "[][][][][][]");
  CHECK(test::rendered("{{ 5 | select | list }}").starts_with("error: "));
}

TEST_CASE("the trial of a template ends when its time is used up, and the error names the template and the time") {
  const auto made =
      ChatTemplate::parse("{% set l = [1] * 10000 %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}", "slow");
  static std::int64_t milliseconds;
  milliseconds = 0;
  const auto clock = []() -> TimeBudget::Time { return std::chrono::milliseconds(milliseconds++); };
  TimeBudget time(std::chrono::milliseconds(100), std::chrono::milliseconds(100), {clock, clock});
  const Status tried = (*made)->try_out(time);
  REQUIRE_FALSE(tried);
  CHECK(tried.error().code == ErrorCode::bad_model);
  CHECK(tried.error().message ==
        "chat template 'slow': its trial, which renders short conversations, takes longer than 100 ms");
  CHECK(milliseconds < 120);  // each further probe ends at its first look
}

TEST_CASE("the trial of a template ends when another thread asks for it, and the next one begins anew") {
  const auto made = ChatTemplate::parse("{% for i in range(9999) %}{% endfor %}{{ messages[0].content }}", "t");
  const std::atomic<bool> interrupt = true;
  TimeBudget time = trial_time();
  CHECK_THROWS_AS((void)(*made)->try_out(time, &interrupt), Interrupted);
  CHECK((*made)->form().reads("user"));
}

}  // namespace
}  // namespace troupe::engine::chat
