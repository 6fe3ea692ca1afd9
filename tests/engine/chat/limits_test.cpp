// What a hostile template is stopped by, each by name; and what else the door of the engine promises.
#include <atomic>
#include <chrono>
#include <string>

#include <catch2/catch.hpp>

#include "engine/chat/template.h"
#include "engine/compute/interrupt.h"
#include "tests/engine/chat/rendered.h"

namespace troupe::engine::chat {
namespace {

using test::rendered;

std::string repeated(const std::string& unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

std::string limited(std::string_view source, const Limits& limits) {
  const auto made = ChatTemplate::parse(source, "t", limits);
  if (!made) return made.error().message;
  const auto prompt = (*made)->render(
      {.messages = Json::List(), .tools = {}, .bos_token = "", .eos_token = "", .variables = {}, .now = {}});
  return prompt ? prompt->text() : prompt.error().message;
}

TEST_CASE("each limit of a template is an error that names it") {
  using Catch::Contains;
  CHECK_THAT(limited("0123456789", {.max_source_bytes = 9}), Contains("it is longer than"));
  CHECK_THAT(limited("{{ " + repeated("(", 500) + "1" + repeated(")", 500) + " }}", {}),
             Contains("nested deeper than"));
  CHECK_THAT(limited("{{ " + repeated("not ", 500) + "1 }}", {}), Contains("nested deeper than"));
  CHECK_THAT(limited("{{ " + repeated("-", 500) + "1 }}", {}), Contains("nested deeper than"));
  CHECK_THAT(limited("{{ " + repeated("1 if 1 else ", 500) + "1 }}", {}), Contains("nested deeper than"));
  CHECK_THAT(limited("{{ " + repeated("[", 500) + repeated("]", 500) + " }}", {}), Contains("nested deeper than"));
  CHECK_THAT(limited("{{ a" + repeated("[a", 500) + repeated("]", 500) + " }}", {}), Contains("nested deeper than"));
  CHECK_THAT(limited(repeated("{% if 1 %}", 500) + repeated("{% endif %}", 500), {}), Contains("nested deeper than"));
  CHECK_THAT(limited("{{ a" + repeated(".a", 5000) + " }}", {}), Contains("members, calls and filters"));
  CHECK_THAT(limited("{{ a" + repeated("|list", 5000) + " }}", {}), Contains("members, calls and filters"));
  CHECK_THAT(limited("{{ 1 " + repeated("if 1 ", 5000) + " }}", {}), Contains("members, calls and filters"));
  CHECK_THAT(limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {}), Contains("calls are nested deeper than"));
  CHECK_THAT(
      limited("{% for i in range(100) %}{% for j in range(100) %}x{% endfor %}{% endfor %}", {.max_steps = 9999}),
      Contains("takes more than 9999 steps"));
  CHECK_THAT(limited("{% for i in range(99) %}0123456789{% endfor %}", {.max_output_bytes = 900}),
             Contains("its output is longer than"));
  CHECK_THAT(limited("{{ ('x' * 100000) | length }}", {.max_value_bytes = 99999}),
             Contains("its values take more than"));
  CHECK_THAT(limited("{{ 'x' * 9000000000000000000 }}", {}), Contains("take"));
  CHECK_THAT(limited("{{ range(100001) }}", {}), Contains("Range too big"));
  CHECK_THAT(limited("{{ 'a' | map('map'" + repeated(", 'map'", 500) + ", 'string') | list }}", {}),
             Contains("filters by name are nested deeper than 100 levels"));
  CHECK_THAT(limited("{{ " + std::string(257, 'a') + " }}", {}), Contains("a name is longer than 256 bytes"));
  CHECK_THAT(limited("{{ strftime_now('a' * 1025) }}", {}),
             Contains("the format is longer than 1024 bytes") || Contains("no time was given"));
}

TEST_CASE("work that grows without end is stopped by the number of steps or by memory") {
  Limits limits;
  limits.max_steps = 200'000;
  limits.max_value_bytes = std::size_t{8} << 20;
  for (const char* source :
       {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
        "tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson "
        "}}",
        "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('x', ns.x) %}{% endfor "
        "%}{{ ns.x }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x.join(ns.x) %}{% endfor %}{{ ns.x "
        "}}",
        "{% set ns = namespace(x='%s%s') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('%s', '%s%s') %}{% "
        "endfor %}{{ ns.x }}",
        "{{ ('x' * 1000000).split('') }}", "{{ ('x ' * 2000000).split() | length }}",
        "{{ ('x' * 1000000) | list | length }}",
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{{ range(90000) | map('string') | map('length') | map('string') | list | sort | unique | list | length }}",
        "{% macro m(n) %}{% for i in range(99) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}",
        "{{ ('a' * 1000000 + 'b') in ('a' * 4000000) }}{{ ('a' * 4000000).rsplit('a' * 1000000 + 'b') | length }}"}) {
    INFO(source);
    const std::string result = limited(source, limits);
    CHECK(result.find("chat template 't'") == 0);
  }
}

TEST_CASE("a namespace that contains itself neither leaks nor loops") {
  CHECK(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me.me.l | length }}") ==
        "1");
  CHECK(rendered("{% set ns = namespace() %}{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.m = m %}{% set ns.x = 5 %}"
                 "{{ ns.m() }}") == "5");
}

TEST_CASE("a macro keeps the names of the place that defined it, after that place has ended") {
  CHECK(rendered("{% set ns = namespace(f=[]) %}{% for i in range(3) %}{% macro m() %}{{ i }}{% endmacro %}"
                 "{% set ns.f = ns.f + [m] %}{% endfor %}{% for f in ns.f %}{{ f() }}{% endfor %}") == "012");
}

TEST_CASE("errors name the template, the line and the column, and are one line whatever a template says") {
  CHECK(rendered("a\nb {{ 1 +\n }}") == "error: chat template 't', line 3, column 2: expected an expression, got '}}'");
  CHECK(rendered("a\n{{ x.y }}") == "error: chat template 't', line 2, column 5: 'x' is undefined");
  CHECK(rendered("{{ raise_exception('one\ntwo\x01') }}") ==
        "error: chat template 't', line 1, column 19: one\\ntwo\\x01");
  CHECK(rendered("{{ raise_exception('x' * 5000) }}").size() < 1100);
  CHECK(rendered("{% include 'x' %}") ==
        "error: chat template 't', line 1, column 4: the tag 'include' is not supported in chat templates");
  CHECK(rendered("\xC3\xA4\xE4\xB8\x96{% if %}") ==
        "error: chat template 't', line 1, column 9: expected an expression, got '%}'");
  CHECK(rendered("a\r\nb\rc{{ 'x") == "error: chat template 't', line 3, column 5: a string has no end");
  CHECK(rendered("{{ [1] | random }}") ==
        "error: chat template 't', line 1, column 10: the filter 'random' is not supported in chat templates");
}

TEST_CASE("rendering ends when another thread asks for it") {
  const auto made = ChatTemplate::parse("{% for i in range(99999) %}{% endfor %}", "t");
  ChatInput input;
  input.messages = Json::List();
  const std::atomic<bool> interrupt = true;
  CHECK_THROWS_AS((void)(*made)->render(input, &interrupt), Interrupted);
}

TEST_CASE("a template says which variables it mentions") {
  const auto made =
      ChatTemplate::parse("{% if enable_thinking is defined %}{{ tools[0] }}{% endif %}reasoning_effort", "t");
  CHECK((*made)->mentions("enable_thinking"));
  CHECK((*made)->mentions("tools"));
  CHECK_FALSE((*made)->mentions("reasoning_effort"));
}

TEST_CASE("messages are a list of objects, and a time is there only if it was given") {
  const auto made = ChatTemplate::parse("{{ strftime_now('%Y') }}", "t");
  ChatInput input;
  input.messages = Json::Object();
  CHECK_THAT((*made)->render(input).error().message, Catch::EndsWith("'messages' must be a list"));
  input.messages = Json::List{1};
  CHECK_THAT((*made)->render(input).error().message, Catch::EndsWith("each of 'messages' must be an object"));
  input.messages = Json::List();
  CHECK_THAT((*made)->render(input).error().message, Catch::EndsWith("no time was given"));
  input.now = [](std::string_view format) {
    return format_time(format, std::chrono::sys_days(std::chrono::year(2025) / 7 / 26) + std::chrono::hours(15));
  };
  CHECK((*made)->render(input)->text() == "2025");
}

TEST_CASE("times are written as C's strftime writes them") {
  using namespace std::chrono;
  const sys_seconds time = sys_days(year(2025) / 7 / 6) + hours(15) + minutes(4) + seconds(9);
  CHECK(format_time("%d %b %Y|%B %e, %y|%A %a|%H:%M:%S %I %p|%j|%F %T %D|%Z%z|%%|%-d/%-m|%q|%", time) ==
        "06 Jul 2025|July  6, 25|Sunday Sun|15:04:09 03 PM|187|2025-07-06 15:04:09 07/06/25|UTC+0000|%|6/7|%q|%");
  CHECK(format_time("%d.%m.%Y %I %p", sys_days(year(2024) / 2 / 29)) == "29.02.2024 12 AM");
}

TEST_CASE("JSON is read with its order, and refused where it is none") {
  CHECK(parse_json(R"({"b":1,"a":[true,null,-2.5,"\u00e9"],"b":2})")->object()->front().first == "b");
  CHECK(std::get<std::int64_t>(parse_json(R"({"b":1,"a":0,"b":2})")->find("b")->value) == 2);
  CHECK(std::get<LargeInteger>(parse_json("18446744073709551615")->value).digits == "18446744073709551615");
  CHECK_FALSE(parse_json("{\"a\":}"));
  CHECK_FALSE(parse_json("[1] 2"));
  CHECK_FALSE(parse_json("\"\xFF\""));
  CHECK(parse_json(repeated("[", 64) + repeated("]", 64)));
  CHECK_THAT(parse_json(repeated("[", 65) + repeated("]", 65)).error().message, Catch::Contains("deeper than 64"));
  CHECK_FALSE(parse_json(repeated("[", 1'000'000)));
}

}  // namespace
}  // namespace troupe::engine::chat
