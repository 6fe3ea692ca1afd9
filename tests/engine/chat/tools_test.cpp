// Calls of tools in answers: what each format's answers mean, in whatever pieces they come.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "engine/chat/tools/json_text.h"
#include "engine/chat/tools/tool_call_parser.h"
#include "engine/chat/tools/tool_form.h"
#include "tests/engine/chat/rendered.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::chat {
namespace {

using Kind = AnswerPart::Kind;
using Parts = std::vector<AnswerPart>;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "note", "description": "Keeps a note", "parameters": {
    "type": "object", "properties": {"text": {"type": "string"}, "tags": {"type": "array"}}}}}])";

std::shared_ptr<const ToolSet> two_tools() {
  const auto tools = ToolSet::make(test::json(kTools));
  REQUIRE(tools);
  return std::make_shared<const ToolSet>(*tools);
}

const ToolFormat& format_of(std::string_view name) {
  const ToolFormat* const format = find_tool_format(name);
  REQUIRE(format != nullptr);
  return *format;
}

void add(Parts& parts, const Parts& more) {
  for (const AnswerPart& each : more) {
    const bool continues = each.kind == Kind::text || each.kind == Kind::arguments;
    if (continues && !parts.empty() && parts.back().kind == each.kind)
      parts.back().text += each.text;
    else
      parts.push_back(each);
  }
}

Parts parse_whole(const ToolFormat& format, std::string_view text, std::shared_ptr<const ToolSet> tools) {
  ToolCallParser parser(format, std::move(tools));
  Parts parts = parser.push(text);
  add(parts, parser.finish());
  return parts;
}

// In pieces of 1 to `most` bytes.
Parts parse_in_pieces(const ToolFormat& format, std::string_view text, std::shared_ptr<const ToolSet> tools,
                      std::mt19937& random, std::size_t most) {
  ToolCallParser parser(format, std::move(tools));
  Parts parts;
  while (!text.empty()) {
    const std::size_t length = std::min<std::size_t>(1 + random() % most, text.size());
    add(parts, parser.push(text.substr(0, length)));
    text.remove_prefix(length);
  }
  add(parts, parser.finish());
  return parts;
}

// As one line for each part: "text|...", "call|get_weather", "args|{...}", "end".
std::string lines_of(const Parts& parts) {
  std::string lines;
  for (const AnswerPart& each : parts) {
    if (each.kind == Kind::text) lines += "text|" + each.text + "\n";
    if (each.kind == Kind::call) lines += "call|" + each.text + "\n";
    if (each.kind == Kind::arguments) lines += "args|" + each.text + "\n";
    if (each.kind == Kind::call_end) lines += "end\n";
  }
  return lines;
}

struct Answer {
  const char* format;
  const char* text;
  const char* lines;
};

constexpr const char* kBern = "call|get_weather\nargs|{\"city\": \"Bern\"}\nend\n";

const std::vector<Answer>& answers() {
  static const std::vector<Answer> all = {
      {"hermes",
       "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>",
       "text|Let me see.\ncall|get_weather\nargs|{\"city\": \"Bern\"}\nend\n"},
      {"hermes", "<tool_call>{\"arguments\": {\"city\": \"Bern\"}, \"name\": \"get_weather\"}</tool_call>\n", kBern},
      {"hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}</tool_call>", kBern},
      {"hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Bern\\\"}\"}</tool_call>",
       kBern},
      {"hermes",
       "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Bern\"}}}</tool_call>",
       kBern},
      {"hermes", "<tool_call>{\"name\": \"get_weather\"}</tool_call> Done.",
       "call|get_weather\nargs|{}\nend\ntext|Done.\n"},
      // A marker within a text of the arguments is text.
      {"hermes",
       "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"a \\\"b\\\" </tool_call> \"}}</tool_call>",
       "call|note\nargs|{\"text\": \"a \\\"b\\\" </tool_call> \"}\nend\n"},
      {"hermes",
       "<tool_call>{\"name\": \"note\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"note\", "
       "\"arguments\": {\"a\": [1, {}]}}</tool_call>",
       "call|note\nargs|{}\nend\ncall|note\nargs|{\"a\": [1, {}]}\nend\n"},
      // Not a call: text, byte for byte.
      {"hermes", "Use <tool_call> like this: <tool_call>[1]</tool_call>  ",
       "text|Use <tool_call> like this: <tool_call>[1]</tool_call>  \n"},
      {"hermes", "<tool_call>{\"name\": 5}</tool_call>", "text|<tool_call>{\"name\": 5}</tool_call>\n"},
      {"hermes", "a <b> \n <tool_cal", "text|a <b> \n <tool_cal\n"},
      // Cut before the name is whole, and behind it.
      {"hermes", "Now: <tool_call>{\"name\": \"get_we", "text|Now: <tool_call>{\"name\": \"get_we\n"},
      {"hermes", "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"a",
       "call|note\nargs|{\"text\": \"a\nend\n"},
      {"qwen3-coder",
       "I look.\n\n<tool_call>\n<function=note>\n<parameter=text>\nline 1\n\nline 2\n</parameter>\n"
       "<parameter=tags>\n[\"x\"]\n</parameter>\n</function>\n</tool_call>",
       "text|I look.\ncall|note\nargs|{\"text\": \"line 1\\n\\nline 2\", \"tags\": [\"x\"]}\nend\n"},
      {"qwen3-coder",
       "<function=get_weather>\n<parameter=city>\n5\n</parameter>\n<parameter=days>\n5\n</parameter>\n"
       "<parameter=more>\n5\n</parameter>\n</function>\n</tool_call>",
       "call|get_weather\nargs|{\"city\": \"5\", \"days\": 5, \"more\": 5}\nend\n"},
      {"qwen3-coder", "<tool_call>\n<function=note>\n</function>\n</tool_call>", "call|note\nargs|{}\nend\n"},
      {"qwen3-coder", "<tool_call>\n<function=note>\n<parameter=text>\nhal", "call|note\nargs|{\"text\": \"hal\nend\n"},
      {"seed-oss",
       "<seed:tool_call>\n<function=note>\n<parameter=text>a\nb\n</parameter>\n<parameter=tags>['x', True]"
       "</parameter>\n</function>\n</seed:tool_call>",
       "call|note\nargs|{\"text\": \"a\\nb\\n\", \"tags\": [\"x\", true]}\nend\n"},
      {"glm-4", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>", kBern},
      {"glm-4", "Yes.<tool_call>note</tool_call>", "text|Yes.\ncall|note\nargs|{}\nend\n"},
      {"minimax-m2",
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n"
       "</invoke>\n</minimax:tool_call>",
       kBern},
      {"deepseek-v3.2",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"x\">\n<｜DSML｜parameter name=\"a\" string=\"true\">5"
       "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">5</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "call|x\nargs|{\"a\": \"5\", \"b\": 5}\nend\n"},
      {"deepseek-v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"Bern\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       kBern},
      {"kimi-k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
       "{\"city\": \"Bern\"}<|tool_call_end|><|tool_calls_section_end|>",
       kBern},
      {"mistral", "See.[TOOL_CALLS]get_weather[CALL_ID]abc[ARGS]{\"city\": \"Bern\"}[TOOL_CALLS]note[ARGS]{}",
       "text|See.\ncall|get_weather\nargs|{\"city\": \"Bern\"}\nend\ncall|note\nargs|{}\nend\n"},
      {"mistral-list",
       "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"name\": \"note\", "
       "\"arguments\": {}}]",
       "call|get_weather\nargs|{\"city\": \"Bern\"}\nend\ncall|note\nargs|{}\nend\n"},
      {"mistral-list", "[TOOL_CALLS]{\"name\": \"note\", \"arguments\": {}}", "call|note\nargs|{}\nend\n"},
      {"mistral-list", "[TOOL_CALLS] []", "text|[TOOL_CALLS] []\n"},
      {"llama-3", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}", kBern},
      {"llama-3",
       "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}; {\"name\": \"note\", "
       "\"parameters\": {}}",
       "call|get_weather\nargs|{\"city\": \"Bern\"}\nend\ncall|note\nargs|{}\nend\n"},
      {"llama-3", "{\"name\": \"Anna\", \"age\": 5}", "text|{\"name\": \"Anna\", \"age\": 5}\n"},
      {"llama-3", "{\"type\": \"function\", \"function\": {\"name\": \"note\", \"parameters\": {\"text\": \"a\"}}}",
       "call|note\nargs|{\"text\": \"a\"}\nend\n"},
      // Without a mark the name comes first.
      {"llama-3", "{\"parameters\": {}, \"name\": \"note\"}", "text|{\"parameters\": {}, \"name\": \"note\"}\n"},
      {"gpt-oss", " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Bern\"}<|call|>", kBern},
      {"gpt-oss",
       "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}",
       "text|I look.\ncall|get_weather\nargs|{\"city\": \"Bern\"}\nend\n"},
      {"gpt-oss", "<|channel|>analysis to=note code<|message|>{}", "call|note\nargs|{}\nend\n"},
      {"gpt-oss", "<|channel|>analysis to=python code<|message|>{}", "text|{}\n"},
      {"gpt-oss", "<|channel|>final<|message|>Done.", "text|Done.\n"},
      {"gpt-oss", "Plain.", "text|Plain.\n"},
      {"gemma-4",
       "<|tool_call>call:note{tags:[<|\"|>x<|\"|>,5,true],text:<|\"|>a 'b' \\n<|\"|>,more:{deep:null}}<tool_call|>",
       "call|note\nargs|{\"tags\": [\"x\", 5, true], \"text\": \"a 'b' \\\\n\", \"more\": {\"deep\": null}}\nend\n"},
      {"lfm2",
       "<|tool_call_start|>[get_weather(city='Bern'), note(text=\"it's\\n\", tags=['x', (1, None)], more={'a': "
       "-1.5})]<|tool_call_end|>Done.",
       "call|get_weather\nargs|{\"city\": \"Bern\"}\nend\ncall|note\nargs|{\"text\": \"it's\\n\", \"tags\": [\"x\", "
       "[1, "
       "null]], \"more\": {\"a\": -1.5}}\nend\ntext|Done.\n"},
      {"pythonic", "[get_weather(city='Bern')]", kBern},
      {"pythonic", "[see (below)]", "text|[see (below)]\n"},
      {"command-r7b",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": "
       "{\"city\": \"Bern\"}}\n]<|END_ACTION|>",
       kBern},
      {"functionary-v3.2", "all\nLet me see.>>>get_weather\n{\"city\": \"Bern\"}",
       "text|Let me see.\ncall|get_weather\nargs|{\"city\": \"Bern\"}\nend\n"},
      {"functionary-v3.1", "<function=get_weather>{\"city\": \"Bern\"}</function>", kBern},
      {"apertus", "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Bern\"}}, {\"note\": {}}]<|tools_suffix|>",
       "call|get_weather\nargs|{\"city\": \"Bern\"}\nend\ncall|note\nargs|{}\nend\n"},
      {"minicpm5",
       "<function name=\"note\"><param name=\"text\"><![CDATA[a </param> b]]></param><param "
       "name=\"tags\">['x']</param></function>",
       "call|note\nargs|{\"text\": \"a </param> b\", \"tags\": [\"x\"]}\nend\n"},
      {"granite-3", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}]", kBern},
      {"functools", "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}]", kBern},
      {"functools", "functools [{\"name\": \"note\", \"arguments\": {}}]", "call|note\nargs|{}\nend\n"},
      {"functools", "functools {\"name\": \"note\"}", "text|functools {\"name\": \"note\"}\n"},
      {"generic", "Hm.\n\n<tool_call>\n{\"name\": \"note\", \"arguments\": {}}\n</tool_call>\n\n",
       "text|Hm.\ncall|note\nargs|{}\nend\n"},
  };
  return all;
}

TEST_CASE("an answer is read as its model's format means it") {
  const auto tools = two_tools();
  for (const Answer& each : answers()) {
    INFO(each.format << ": " << each.text);
    CHECK(lines_of(parse_whole(format_of(each.format), each.text, tools)) == each.lines);
  }
}

TEST_CASE("an answer means the same in whatever pieces it comes, also when it is cut or has more behind it") {
  const auto tools = two_tools();
  std::mt19937 random(52);
  for (const Answer& each : answers()) {
    const ToolFormat& format = format_of(each.format);
    const std::string text = each.text;
    for (int i = 0; i < 60; ++i) {
      // Cut anywhere, with another answer of any format behind it.
      std::string other = i < 20 ? "" : text.substr(0, random() % (text.size() + 1));
      if (i >= 40) other += answers()[random() % answers().size()].text;
      const std::string& answer = i < 20 ? text : other;
      const Parts whole = parse_whole(format, answer, tools);
      const Parts pieces = parse_in_pieces(format, answer, tools, random, i % 2 == 0 ? 1 : 9);
      INFO(each.format << ": " << answer);
      REQUIRE(lines_of(pieces) == lines_of(whole));
    }
  }
}

TEST_CASE("an answer without a call is text, byte for byte") {
  std::mt19937 random(7);
  for (const ToolFormat& format : tool_formats()) {
    if (format.syntax == CallSyntax::recipients || !format.user_name.empty()) continue;  // their texts have marks, too
    for (int i = 0; i < 200; ++i) {
      std::string text;
      const std::string_view opening = openings_of(format).empty() ? "[" : openings_of(format).front();
      for (int part = 0; part < 6; ++part) {
        const std::string_view parts[] = {
            opening, opening.substr(0, opening.size() / 2), " ", "\n\n", "{\"a\": 1}", "word", "<", "\xC3\xA9"};
        text += parts[random() % std::size(parts)];
      }
      ToolCallParser parser(format, two_tools());
      std::string read;
      Parts all;
      for (const char c : text) add(all, parser.push({&c, 1}));
      add(all, parser.finish());
      for (const AnswerPart& each : all)
        if (each.kind == Kind::text) read += each.text;
      INFO(format.name << ": " << text);
      if (parser.num_calls() == 0) REQUIRE(read == text);
    }
  }
}

TEST_CASE("what is held back is bounded, and a call is one as soon as its name is known") {
  ToolCallParser parser(format_of("hermes"), two_tools());
  CHECK(lines_of(parser.push("<tool_call>{\"name\": \"note\"")) == "call|note\n");
  CHECK(parser.is_within_call());
  CHECK(lines_of(parser.push(", \"arguments\": {\"text\": \"so f")) == "args|{\"text\": \"so f\n");
  CHECK(lines_of(parser.push("ar\"}}")) == "args|ar\"}\nend\n");
  CHECK(parser.num_ended() == 1);

  ToolCallParser endless(format_of("hermes"), two_tools());
  std::string read;
  const std::string begin = "<tool_call>{\"x\": \"";
  for (const AnswerPart& each : endless.push(begin + std::string(kMaxHeldCallBytes, 'x'))) read += each.text;
  CHECK(read == begin + std::string(kMaxHeldCallBytes, 'x'));
}

TEST_CASE("calls beyond the limit are text") {
  const std::string call = "<tool_call>{\"name\": \"note\", \"arguments\": {}}</tool_call>";
  std::string text;
  for (std::size_t i = 0; i <= kMaxCallsPerAnswer; ++i) text += call;
  ToolCallParser parser(format_of("hermes"), two_tools());
  Parts parts = parser.push(text);
  add(parts, parser.finish());
  CHECK(parser.num_calls() == kMaxCallsPerAnswer);
  CHECK(parts.back() == AnswerPart{Kind::text, call});
}

TEST_CASE("a beginning of a call is one") {
  for (const ToolFormat& format : tool_formats()) {
    INFO(format.name);
    const std::string text = call_beginning(format, "note");
    ToolCallParser parser(format, two_tools());
    // Behind the reasoning gpt-oss begins with a channel, and GLM's name ends with what follows.
    Parts parts = parser.push(text + (format.after_name.empty() ? "\n" : ""));
    add(parts, parser.finish());
    CHECK(parser.num_calls() == 1);
    CHECK(text.starts_with(call_beginning(format)));
  }
}

TEST_CASE("tools are checked, and say of which type their parameters are") {
  const auto error_of = [](const char* tools) {
    const auto set = ToolSet::make(test::json(tools));
    return set ? std::string() : set.error().message;
  };
  CHECK(error_of("{}") == "tools are a list");
  CHECK(error_of(R"([{"type": "function"}])") ==
        R"(tools[0] has no function: a tool is {"type": "function", "function": {"name": ...}})");
  CHECK(error_of(R"([{"function": {}}])") == "tools[0].function has no name");
  CHECK_THAT(error_of(R"([{"function": {"name": "a b"}}])"),
             Catch::StartsWith("tools[0].function.name 'a b' is no name"));
  CHECK(error_of(R"([{"function": {"name": "a"}}, {"function": {"name": "a"}}])") ==
        "tools[1].function.name 'a' is taken");
  std::string many = "[";
  for (std::size_t i = 0; i <= kMaxTools; ++i)
    many += (i == 0 ? "" : ",") + std::string(R"({"function": {"name": "t)") + std::to_string(i) + "\"}}";
  CHECK_THAT(error_of((many + "]").c_str()), Catch::Contains("may have 1024"));

  const auto types = [](const char* schema) {
    const Json root = test::json(schema);
    const ValueTypes found = types_of_schema(root, root);
    return std::string(found.text ? "text" : "") + (found.other ? "other" : "");
  };
  CHECK(types(R"({"type": "string"})") == "text");
  CHECK(types(R"({"type": "integer"})") == "other");
  CHECK(types(R"({"type": ["string", "null"]})") == "textother");
  CHECK(types(R"({"enum": ["a", "b"]})") == "text");
  CHECK(types(R"({"const": 5})") == "other");
  CHECK(types(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})") == "textother");
  CHECK(types(R"({"allOf": [{"type": ["string", "integer"]}, {"enum": ["a"]}]})") == "text");
  CHECK(types(R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "number"}}})") == "other");
  CHECK(types(R"({"$ref": "#"})") == "textother");
  CHECK(types("{}") == "textother");
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

ChatInput conversation_of(const Json& rendered) {
  ChatInput input;
  input.messages = *rendered.find("messages");
  input.tools = *rendered.find("tools");
  input.add_generation_prompt = true;
  if (const Json* const bos = rendered.find("bos_token")) input.bos_token = *bos->text();
  if (const Json* const eos = rendered.find("eos_token")) input.eos_token = *eos->text();
  input.now = [](std::string_view) { return "26 Jul 2025"; };
  return input;
}

nlohmann::json plain(const Json& value) {
  if (const Json::Object* const object = value.object()) {
    nlohmann::json members = nlohmann::json::object();
    for (const auto& [name, each] : *object) members[name] = plain(each);
    return members;
  }
  if (const Json::List* const list = value.list()) {
    nlohmann::json items = nlohmann::json::array();
    for (const Json& each : *list) items.push_back(plain(each));
    return items;
  }
  if (value.text() != nullptr) return *value.text();
  if (const auto* const number = std::get_if<std::int64_t>(&value.value)) return *number;
  if (const auto* const number = std::get_if<double>(&value.value)) return *number;
  if (const auto* const is = std::get_if<bool>(&value.value)) return *is;
  return nullptr;
}
// With the members of objects in order of their names.
std::string sorted_text(const Json& value) { return plain(value).dump(); }

// The calls of the messages: "get_weather {...}".
std::vector<std::string> calls_of(const Json& messages) {
  std::vector<std::string> calls;
  for (const Json& message : *messages.list())
    if (const Json* const list = message.find("tool_calls"))
      for (const Json& call : *list->list())
        calls.push_back(*call.find("function")->find("name")->text() + " " +
                        sorted_text(*call.find("function")->find("arguments")));
  return calls;
}

std::vector<std::string> calls_of(const Parts& parts) {
  std::vector<std::string> calls;
  std::string arguments;
  for (const AnswerPart& each : parts) {
    if (each.kind == Kind::call) calls.push_back(each.text + " ");
    if (each.kind == Kind::arguments) arguments += each.text;
    if (each.kind != Kind::call_end) continue;
    const auto json = parse_json(arguments);
    calls.back() += json ? sorted_text(*json) : "no JSON: " + arguments;
    arguments.clear();
  }
  return calls;
}

TEST_CASE("a trial with tools that runs out of time decides nothing: the names in the template do") {
  // The loop has the clock looked at several times in each rendering.
  constexpr const char* kLong = "{% for i in range(20000) %}{% endfor %}";
  constexpr const char* kTools =
      "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
      "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}";
  constexpr const char* kNoTools = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  static std::int64_t looks_left;
  const auto now = []() -> TimeBudget::Time { return std::chrono::hours(looks_left-- > 0 ? 0 : 1); };
  for (const bool knows_tools : {true, false}) {
    const auto parsed = ChatTemplate::parse(std::string(kLong) + (knows_tools ? kTools : kNoTools), "long");
    REQUIRE(parsed);
    looks_left = std::numeric_limits<std::int64_t>::max();
    TimeBudget enough(std::chrono::milliseconds(1000), std::chrono::milliseconds(100), {now, now});
    REQUIRE((*parsed)->try_out(enough));
    const ToolForm known = find_tool_form(**parsed, nullptr, &format_of("hermes"), enough);
    CHECK(known.reads_tools == knows_tools);
    CHECK(known.reads_calls == knows_tools);
    CHECK(known.warning.empty());
    const std::int64_t num_looks = std::numeric_limits<std::int64_t>::max() - looks_left;
    REQUIRE(num_looks > 20);
    for (std::int64_t looks = 2; looks < num_looks; looks += 3) {
      INFO(looks);
      looks_left = looks;
      TimeBudget time(std::chrono::milliseconds(1000), std::chrono::milliseconds(100), {now, now});
      const ToolForm form = find_tool_form(**parsed, nullptr, &format_of("hermes"), time);
      CHECK(form.format == known.format);
      CHECK(form.reads_tools == knows_tools);
      CHECK(form.reads_calls == knows_tools);
      CHECK(form.reads_several_calls == known.reads_several_calls);
      CHECK(form.text_beside_calls == ToolForm{}.text_beside_calls);
      if (time.was_used_up()) CHECK(form.warning.find("takes longer than 100 ms") != std::string::npos);
    }
  }
}

TEST_CASE("published templates with tools render as with Jinja2, and the calls that they write are read back") {
  const auto cases = troupe::test::shared_file("thirdparty/templates/tools.jsonl");
  if (!cases) return;
  std::ifstream lines(*cases);
  std::mt19937 random(1);
  int num_cases = 0, num_read = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const Json rendered = test::json(line);
    const std::string name = *rendered.find("template")->text();
    INFO(name << ", " << *rendered.find("case")->text());
    const auto path = troupe::test::shared_file("thirdparty/templates/" + name);
    REQUIRE(path);
    const auto parsed = ChatTemplate::parse(whole_file(*path), name);
    REQUIRE((parsed ? "" : parsed.error().message) == "");
    const auto prompt = (*parsed)->render(conversation_of(rendered));
    const Json* const expected = rendered.find("expected");
    if (expected == nullptr) {
      CHECK_FALSE(prompt);
      continue;
    }
    REQUIRE((prompt ? prompt->text() : prompt.error().message) == *expected->text());
    const std::vector<std::string> put_in = calls_of(*rendered.find("messages"));
    TimeBudget time = trial_time();
    const ToolForm form = find_tool_form(**parsed, nullptr, nullptr, time);
    CHECK(form.warning == "");
    if (put_in.empty() || !form.reads_calls) continue;
    // From the first answer on.
    ChatInput before = conversation_of(rendered);
    before.messages = Json::List(before.messages.list()->begin(), before.messages.list()->begin() + 1);
    const auto asked = (*parsed)->render(before);
    REQUIRE(asked);
    const std::string whole = *expected->text(), question = asked->text();
    const std::string_view answer = answer_in(whole, question);
    const auto tools = std::make_shared<const ToolSet>(*ToolSet::make(*rendered.find("tools")));
    if (put_in.size() > 1 && !form.reads_several_calls) continue;  // gpt-oss writes the first of several
    CHECK(calls_of(parse_whole(*form.format, answer, tools)) == put_in);
    CHECK(calls_of(parse_in_pieces(*form.format, answer, tools, random, 5)) == put_in);
    ++num_read;
  }
  CHECK(num_cases == 192);
  CHECK(num_read >= 80);
}

}  // namespace
}  // namespace troupe::engine::chat
