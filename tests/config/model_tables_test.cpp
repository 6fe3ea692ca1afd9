#include "config/options/model_tables.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "config/options/options.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::config;
using Catch::Matchers::Contains;

namespace {

Result<Parsed> parse_file(const test::TempFolder& folder, const std::string& content,
                          std::vector<std::string> arguments = {}, Command command = Command::serve,
                          std::map<std::string, std::string, std::less<>> variables = {}) {
  arguments.insert(arguments.end(), {"--config", folder.write("t.toml", content)});
  return parse(command, arguments, {.variables = std::move(variables), .system_file = "/nonexistent"});
}

std::string table_error(const std::string& content) {
  const test::TempFolder folder;
  const auto parsed = parse_file(folder, content);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::bad_config);
  return parsed.error().message;
}

const std::string kTwo = R"(threads = 2

[[model]]
path = "/models/llama.gguf"
name = "llama3"
aliases = ["gpt-4o-mini", "l3"]
ctx-size = 8192
kv-type = "int8"
kv-blocks = 512
predict = 400
chat-template = "chatml"
tool-format = "hermes"
draft = "/models/small.gguf"
memory = "8GiB"
weight = 2.5
pinned = true
replace = "unload-first"

# the other
[[model]]
path = "qwen.gguf"
load = "on-request"
keep-alive = "10m"
)";

}  // namespace

TEST_CASE("models: a table for each, in their order, with every key") {
  const test::TempFolder folder;
  const auto parsed = parse_file(folder, kTwo);
  REQUIRE(parsed);
  REQUIRE(parsed->models.size() == 2);
  const ModelTable& first = parsed->models[0];
  CHECK(first.line == 3);
  CHECK(first.path == "/models/llama.gguf");
  CHECK(first.name == "llama3");
  CHECK(first.aliases == std::vector<std::string>{"gpt-4o-mini", "l3"});
  CHECK(first.tool_format == "hermes");
  CHECK(first.ctx_size == 8192);
  CHECK(first.kv_type == "int8");
  CHECK(first.kv_blocks == 512);
  CHECK(first.predict == 400);
  CHECK(first.chat_template == "chatml");
  CHECK(first.draft == "/models/small.gguf");
  CHECK(first.memory.count == std::uint64_t{8} << 30);
  CHECK(first.weight == 2.5);
  CHECK(first.pinned);
  CHECK(first.replace == "unload-first");
  CHECK(parsed->models[1].path == "qwen.gguf");
  CHECK(parsed->models[1].name.empty());
  CHECK_FALSE(parsed->models[1].ctx_size);
  CHECK(parsed->models[1].weight == 1);
  CHECK(first.load.empty());
  CHECK_FALSE(is_on_request(first));
  CHECK(is_on_request(parsed->models[1]));
  CHECK(parsed->models[1].keep_alive == "10m");
}

TEST_CASE("models: a keep-alive is a time, at once or forever") {
  CHECK(parse_keep_alive("10m") == 600);
  CHECK(parse_keep_alive("90") == 90);
  CHECK(parse_keep_alive("0") == 0);
  CHECK(parse_keep_alive("250ms") == 0.25);
  CHECK(parse_keep_alive("forever") == std::numeric_limits<double>::infinity());
  for (const char* text : {"", "-1", "soon", "1 h", "10m ", "nan", "inf"}) {
    INFO(text);
    CHECK_FALSE(parse_keep_alive(text));
  }
  const test::TempFolder folder;
  const std::string start = "[[model]]\npath = \"a\"\nload = \"on-request\"\nkeep-alive = ";
  const auto seconds = parse_file(folder, start + "600\n");
  REQUIRE(seconds);
  CHECK(seconds->models[0].keep_alive == "600");
  const auto of_all = parse_file(folder, "keep-alive = 600\n");
  REQUIRE(of_all);
  CHECK(of_all->options.keep_alive == "600");
  CHECK_THAT(table_error("keep-alive = true\n"), Contains("takes a number of seconds or a string such as \"10m\""));
  CHECK_THAT(table_error(start + "[5]\n"), Contains("t.toml:4: keep-alive takes a string in quotes"));
  CHECK_THAT(table_error(start + "-1\n"), Contains("keep-alive is '-1'; it may be a time such as 10m or 90s, 0"));
  CHECK_THAT(table_error(start + "60\npinned = true\n"), Contains("a pinned model is never put out"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nkeep-alive = 5\n"), Contains("add load = \"on-request\""));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nload = \"later\"\n"),
             Contains("load is 'later'; it may be start, on-request"));
}

TEST_CASE("models: a table that says that its model is loaded at the start is the one that says nothing") {
  ModelTable says, nothing, on_request;
  says.path = nothing.path = on_request.path = "a";
  says.load = "start";
  on_request.load = "on-request";
  CHECK(says == nothing);
  CHECK_FALSE(says == on_request);
  CHECK_FALSE(on_request == nothing);
}

TEST_CASE("models: what --print-config prints reads back to the same tables") {
  const test::TempFolder folder;
  const auto parsed = parse_file(folder, kTwo);
  REQUIRE(parsed);
  const std::string printed = print_config(Command::serve, *parsed);
  const auto again = parse_file(folder, printed);
  if (!again) FAIL(again.error().message);
  CHECK(again->models == parsed->models);
}

TEST_CASE("models: -m and TROUPE_MODEL are taken instead of the tables, whose first model others than serve take") {
  const test::TempFolder folder;
  const auto by_flag = parse_file(folder, kTwo, {"-m", "a.gguf", "-m", "b=c.gguf"});
  REQUIRE(by_flag);
  CHECK(by_flag->models.empty());
  CHECK(by_flag->options.model == std::vector<std::string>{"a.gguf", "b=c.gguf"});
  const auto by_variable = parse_file(folder, kTwo, {}, Command::serve, {{"TROUPE_MODEL", "v.gguf"}});
  REQUIRE(by_variable);
  CHECK(by_variable->models.empty());
  CHECK(by_variable->options.model == std::vector<std::string>{"v.gguf"});
  const auto bench = parse_file(folder, kTwo, {}, Command::bench);
  REQUIRE(bench);
  CHECK(bench->options.model == std::vector<std::string>{"/models/llama.gguf"});
  CHECK(bench->origins.at("model") == folder.path("t.toml:3"));
  const auto list = parse_file(folder, "model = [\"a.gguf\", \"b=c.gguf\"]\n");
  REQUIRE(list);
  CHECK(list->options.model == std::vector<std::string>{"a.gguf", "b=c.gguf"});
}

TEST_CASE("models: a table that cannot be used is an error with its line") {
  CHECK_THAT(table_error("[[model]]\nname = \"a\"\n"), Contains("t.toml:1: this model has no path"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nctx-sise = 5\n"),
             Contains("t.toml:3: unknown key ctx-sise of a model; did you mean ctx-size?"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nthreads = 5\n"),
             Contains("t.toml:3: threads is no key of a model; options stand above the first [[model]]"));
  CHECK_THAT(table_error("[[model]]\npath = 5\n"), Contains("t.toml:2: path takes a string in quotes"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nmemory = \"much\"\n"),
             Contains("t.toml:3: memory takes a number of bytes or a string such as \"4GiB\""));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nmemory = -1\n"),
             Contains("t.toml:3: memory takes a number of bytes"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nkv-type = \"q4_0\"\n"),
             Contains("t.toml:1: kv-type is 'q4_0'; it may be f16, f32, int8, q8_0"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nweight = 0\n"),
             Contains("weight is 0; it may be from 0.001 to 1000"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nname = \"x\"\n[[model]]\npath = \"b\"\nname = \"x\"\n"),
             Contains("t.toml:4: the model in line 1 has the name x, too"));
  CHECK_THAT(table_error("[[model]]\npath = \"a\"\nname = \"x\\ny\"\n"),
             Contains("is not a name of at most 128 bytes"));
  const std::string a = "[[model]]\npath = \"a\"\nname = \"x\"\naliases = ";
  CHECK_THAT(table_error(a + "[\"y\", \"x\"]\n"), Contains("t.toml:1: aliases: 'x' is there twice"));
  CHECK_THAT(table_error(a + "[\"y\\nz\"]\n"), Contains("aliases: 'y\\nz' is not a name of at most 128 bytes"));
  CHECK_THAT(table_error(a + "[]\n"), Contains("t.toml:4: aliases takes at least one name"));
  CHECK_THAT(table_error(a + "[\"y\"]\n[[model]]\npath = \"b\"\nname = \"y\"\n"),
             Contains("t.toml:5: the model in line 1 has the name y, too; choose another name"));
  CHECK_THAT(table_error(a + "[\"y\"]\n[[model]]\npath = \"b\"\naliases = [\"z\", \"y\"]\n"),
             Contains("the model in line 1 has the name y, too"));
  std::string names;
  for (std::size_t i = 0; i <= kMaxModelAliases; ++i) names += (i > 0 ? ", \"n" : "\"n") + std::to_string(i) + "\"";
  CHECK_THAT(table_error(a + "[" + names + "]\n"), Contains("t.toml:1: 17 aliases; a model has at most 16"));
  CHECK_THAT(table_error("[model]\npath = \"a\"\n"), Contains("each begins with a line [[model]]"));
  std::string many;
  for (std::size_t i = 0; i <= kMaxModelTables; ++i) many += "[[model]]\npath = \"a\"\n";
  CHECK_THAT(table_error(many), Contains("there may be at most 64 tables [[model]]"));
}

TEST_CASE("models: what is wrong is told with its key, wherever the values come from") {
  const auto key_of = [](const std::function<void(ModelKeys&)>& change) -> std::string {
    ModelKeys model{.path = "/a.gguf", .name = "x", .predict = -1, .weight = 0.5};
    CHECK_FALSE(problem_of(model));
    change(model);
    const auto problem = problem_of(model);
    return problem ? std::string(problem->key) : "none";
  };
  CHECK(key_of([](auto& m) { m.path.clear(); }) == "path");
  CHECK(key_of([](auto& m) { m.name = "a\nb"; }) == "name");
  CHECK(key_of([](auto& m) { m.aliases = {"y", "x"}; }) == "aliases");
  CHECK(key_of([](auto& m) { m.aliases = {""}; }) == "aliases");
  CHECK(key_of([](auto& m) { m.kv_type = "q4_0"; }) == "kv-type");
  CHECK(key_of([](auto& m) { m.replace = "now"; }) == "replace");
  CHECK(key_of([](auto& m) { m.load = "now"; }) == "load");
  CHECK(key_of([](auto& m) { m.keep_alive = "5m"; }) == "keep-alive");
  CHECK(key_of([](auto& m) { m.predict = 0; }) == "predict");
  CHECK(key_of([](auto& m) { m.predict = -2; }) == "predict");
  CHECK(key_of([](auto& m) { m.ctx_size = -1; }) == "ctx-size");
  CHECK(key_of([](auto& m) { m.kv_blocks = std::int64_t{1} << 40; }) == "kv-blocks");
  CHECK(key_of([](auto& m) { m.memory = std::uint64_t{1} << 61; }) == "memory");
  CHECK(key_of([](auto& m) { m.weight = 0; }) == "weight");
  CHECK(key_of([](auto& m) { m.weight = std::nan(""); }) == "weight");
}

TEST_CASE("models: every key is a member of the structs, and a key of the table") {
  std::size_t num_members = 0;
  for_each_model_key(ModelKeys{}, [&](const auto&) { ++num_members; });
  const std::vector<std::string> keys = model_keys();
  const auto num_defaults = std::ranges::count_if(keys, [](const auto& key) { return key.starts_with("defaults."); });
  CHECK(keys.size() - static_cast<std::size_t>(num_defaults) == num_members - 3);  // without path, name and defaults
}

TEST_CASE("models: [model.defaults] says what answers are made with") {
  const test::TempFolder folder;
  const auto parsed = parse_file(folder, R"([[model]]
path = "a.gguf"
[model.defaults]
temp = 0.6
top-k = 20
repeat-last-n = -1
reasoning = "low"
reasoning-budget = 512
system = "Be brief."

[[model]]
path = "b.gguf"
)");
  REQUIRE(parsed);
  const std::vector<ModelTable>& models = parsed->models;
  const ModelDefaults& defaults = models.front().defaults;
  CHECK(defaults.temperature == 0.6);
  CHECK(defaults.top_k == 20);
  CHECK(defaults.repeat_last_n == -1);
  CHECK_FALSE(defaults.top_p);
  CHECK(defaults.reasoning == "low");
  CHECK(defaults.reasoning_budget == 512);
  CHECK(defaults.system == "Be brief.");
  CHECK(models.back().defaults.empty());

  const auto again = parse_file(folder, "[[model]]\n" + to_toml(models.front()));
  REQUIRE(again);
  CHECK(again->models.front() == models.front());
}

TEST_CASE("models: defaults that cannot be are refused with their line") {
  const auto refusal = [](const std::string& line) {
    return table_error("[[model]]\npath = \"a.gguf\"\n[model.defaults]\n" + line + "\n");
  };
  CHECK_THAT(refusal("temp = -1"), Contains(":3: temp is -1; it must be from 0 (greedy) to 100"));
  CHECK_THAT(refusal("top-p = 0"), Contains("top-p is 0; it must be above 0"));
  CHECK_THAT(refusal("top-k = 1.5"), Contains(":4: top-k takes a whole number"));
  CHECK_THAT(refusal("reasoning = \"much\""), Contains("it may be none, minimal"));
  CHECK_THAT(refusal("reasoning-budget = -1"), Contains("may be from 0"));
  CHECK_THAT(refusal("temperature = 1"), Contains("unknown key temperature of a model.defaults"));
  CHECK_THAT(table_error("[[model]]\npath = \"a.gguf\"\n[model.presets]\ntemp = 1\n"),
             Contains("a model has no table presets; there is [model.defaults]"));
  CHECK_THAT(table_error("[[tenant]]\nuid = 1\n[tenant.more]\nweight = 1\n"),
             Contains("more takes no date and no table"));
}

TEST_CASE("models: a word sets a default as a table does") {
  const std::vector<std::string> words{"m=/a.gguf", "defaults.temp=0", "defaults.system=no"};
  const auto model = parse_model(words);
  REQUIRE(model);
  CHECK(model->defaults.temperature == 0.0);
  CHECK(model->defaults.system == "no");
  const std::vector<std::string> wrong{"m=/a.gguf", "defaults.temp=hot"};
  REQUIRE_FALSE(parse_model(wrong));
  CHECK(parse_model(wrong).error().message == "defaults.temp takes a number");
}

TEST_CASE("models: -m names a model before the first =, unless a slash comes first") {
  const auto plain = parse_model("dir/a=b.gguf");
  REQUIRE(plain);
  CHECK(plain->path == "dir/a=b.gguf");
  CHECK(plain->name.empty());
  const auto named = parse_model("tales=dir/a=b.gguf");
  REQUIRE(named);
  CHECK(named->name == "tales");
  CHECK(named->path == "dir/a=b.gguf");
  for (const char* text : {"", "=a.gguf", "a=", "a\nb=c.gguf"}) {
    INFO(text);
    const auto bad = parse_model(text);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE("models: a list of names has each of them once") {
  CHECK(*parse_names("one") == std::vector<std::string>{"one"});
  CHECK(*parse_names("one,two,a b") == std::vector<std::string>{"one", "two", "a b"});
  const auto error_of = [](const std::string& list) {
    const auto names = parse_names(list);
    REQUIRE_FALSE(names);
    return names.error().message;
  };
  CHECK(error_of("one,,two") == "a name is empty");
  CHECK(error_of("one,") == "a name is empty");
  CHECK(error_of("one,two,one") == "'one' is there twice");
  CHECK_THAT(error_of("one,t\no"), Contains("is not a name of at most 128 bytes"));
  std::string many = "n";
  for (std::size_t i = 0; i <= kMaxModelAliases; ++i) many += ",n" + std::to_string(i);
  CHECK(error_of(many) == "17 aliases; a model has at most 16");

  const std::vector<std::string> words = {"a=/a.gguf", "aliases=b,c", "tool-format=hermes"};
  const auto loaded = parse_model(words);
  REQUIRE(loaded);
  CHECK(loaded->aliases == std::vector<std::string>{"b", "c"});
  CHECK(loaded->tool_format == "hermes");
  const std::vector<std::string> twice = {"a=/a.gguf", "aliases=b,a"};
  REQUIRE_FALSE(parse_model(twice));
  CHECK(parse_model(twice).error().message == "aliases: 'a' is there twice");
}

TEST_CASE("models: `troupe model --help` names every key that load takes") {
  const auto told = info(Command::model).description;
  std::istringstream table(kTwo.substr(kTwo.find("[[model]]"), kTwo.rfind("[[model]]") - kTwo.find("[[model]]")));
  std::size_t num_keys = 0;
  for (std::string key, line; table >> key && std::getline(table, line);) {
    if (key == "[[model]]" || key == "#" || key == "path" || key == "name") continue;
    ++num_keys;
    INFO(key);
    CHECK_THAT(std::string(told), Contains(key));
  }
  CHECK(num_keys == 12);
}
