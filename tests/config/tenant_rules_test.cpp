#include "config/options/tenant_rules.h"

#include <catch2/catch.hpp>

#include "config/options/options.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::config;
using Catch::Matchers::Contains;

namespace {

Result<Parsed> parse_rules(const test::TempFolder& folder, const std::string& content,
                           Command command = Command::serve) {
  const std::vector<std::string> arguments{"--config", folder.write("t.toml", content)};
  return parse(command, arguments, {.variables = {}, .system_file = "/nonexistent"});
}

std::vector<TenantRule> rules_of(const std::string& content) {
  const test::TempFolder folder;
  const auto parsed = parse_rules(folder, content);
  if (!parsed) FAIL(parsed.error().message);
  return parsed->tenants;
}

// Without the path of the folder.
std::string rule_error(const std::string& content) {
  const test::TempFolder folder;
  const auto parsed = parse_rules(folder, content);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::bad_config);
  const std::string& message = parsed.error().message;
  REQUIRE(message.starts_with(folder.path("t.toml:")));
  return message.substr(folder.path("t.toml:").size());
}

const std::string kAllKeys = R"(threads = 2

[[tenant]]
name = "web"
uid = [33, 34]
user = "www-data"
gid = 33
group = ["www-data", "staff"]
cgroup = "/system.slice/web.service"
weight = 2.5
most-urgent-priority = -10
cache-scope = "public"
max-running = 8
max-queued = 100
max-prompt-tokens-per-minute = 1000000000000
max-answer-tokens-per-minute = 50000
min-kv-blocks = 64
max-kv-blocks = 512
max-context = 4096
max-choices = 4
predict = 100
trusted-proxy = true
models = ["qwen*", "embed"]
may-load = "idle"

# the others
[[tenant]]
default = true
weight = 1
)";

}  // namespace

TEST_CASE("tenant rules are read with all keys, in their order, with their lines") {
  const std::vector<TenantRule> rules = rules_of(kAllKeys);
  REQUIRE(rules.size() == 2);
  const TenantRule& web = rules[0];
  CHECK(web.line == 3);
  CHECK(web.name == "web");
  CHECK(web.uid == std::vector<std::int64_t>{33, 34});
  CHECK(web.user == std::vector<std::string>{"www-data"});
  CHECK(web.gid == std::vector<std::int64_t>{33});
  CHECK(web.group == std::vector<std::string>{"www-data", "staff"});
  CHECK(web.cgroup == "/system.slice/web.service");
  CHECK(web.weight == 2.5);
  CHECK(web.most_urgent_priority == -10);
  CHECK(web.cache_scope == "public");
  CHECK(web.max_running == 8);
  CHECK(web.max_queued == 100);
  CHECK(web.max_prompt_tokens_per_minute == 1'000'000'000'000);
  CHECK(web.max_answer_tokens_per_minute == 50000);
  CHECK(web.min_kv_blocks == 64);
  CHECK(web.max_kv_blocks == 512);
  CHECK(web.max_context == 4096);
  CHECK(web.max_choices == 4);
  CHECK(web.predict == 100);
  CHECK(web.trusted_proxy);
  CHECK(web.models == std::vector<std::string>{"qwen*", "embed"});
  CHECK(web.may_load == "idle");
  CHECK(rules[1].models.empty());
  CHECK(rules[1].may_load.empty());
  CHECK(rules[1].line == 27);
  CHECK(rules[1].is_default);
  CHECK(rules[1].most_urgent_priority == 0);
  CHECK(rules[1].cache_scope == "own");
  CHECK_FALSE(rules[1].max_running);
  CHECK(rules_of("tenant = []\n").empty());
  CHECK(rules_of("tenant = [{uid = 1}]\n").front().uid == std::vector<std::int64_t>{1});
}

TEST_CASE("--print-config prints the rules so that they read back") {
  const test::TempFolder folder;
  const auto parsed = parse_rules(folder, kAllKeys);
  REQUIRE(parsed);
  const std::string printed = print_config(Command::serve, *parsed);
  CHECK_THAT(printed, Contains("[[tenant]]  # from " + folder.path("t.toml:3")) && Contains("\nweight = 2.5\n"));
  const test::TempFolder other;
  const auto again = parse_rules(other, printed);
  if (!again) FAIL(again.error().message);
  CHECK(again->options.threads == 2);
  CHECK(again->tenants == parsed->tenants);
  CHECK(again->tenants[0].line != parsed->tenants[0].line);
  CHECK(again->tenants[0].trusted_proxy);
}

TEST_CASE("other subcommands check the rules and have none of them") {
  const test::TempFolder folder;
  const auto parsed = parse_rules(folder, kAllKeys, Command::run);
  REQUIRE(parsed);
  CHECK(parsed->tenants.empty());
  CHECK_FALSE(parse_rules(folder, "[[tenant]]\n", Command::run));
}

TEST_CASE("a rule that can match nothing is refused with its line") {
  CHECK_THAT(rule_error("\n[[tenant]]\nweight = 2\n"), Contains("2: this rule matches nothing: give it uid"));
  CHECK_THAT(rule_error("[[tenant]]\ndefault = false\n"), Contains("1: this rule matches nothing"));
  CHECK_THAT(rule_error("[[tenant]]\ndefault = true\n[[tenant]]\nuid = 1\n"),
             Contains("3: this rule matches nothing: the one in line 1"));
  CHECK_THAT(rule_error("[[tenant]]\nuid = []\n"), Contains("2: uid takes at least one number"));
  CHECK_THAT(rule_error("[[tenant]]\nuser = ''\n"), Contains("2: user takes a name"));
  CHECK_THAT(rule_error("[[tenant]]\ncgroup = ''\n"), Contains("2: cgroup takes a string that is not empty"));
  CHECK_THAT(rule_error("[[tenant]]\ncgroup = 'web.service'\n"), Contains("1: cgroup is 'web.service'; it must begin"));
}

TEST_CASE("an unknown key of a rule is refused with the nearest, an option behind a rule with its place") {
  CHECK(rule_error("[[tenant]]\nuid = 1\nwieght = 2\n") == "3: unknown key wieght of a tenant; did you mean weight?");
  CHECK_THAT(rule_error("[[tenant]]\nzzzzzz = 2\n"),
             Contains("2: unknown key zzzzzz of a tenant; there are uid, user"));
  CHECK(rule_error("[[tenant]]\nuid = 1\nthreads = 2\n") ==
        "3: threads is no key of a tenant; options stand above the first [[tenant]]");
  CHECK(rule_error("[[tenants]]\nuid = 1\n") == "1: unknown key tenants; did you mean tenant?");
  CHECK_THAT(rule_error("[tenant]\nuid = 1\n"), Contains("1: there may be several tenants"));
  CHECK_THAT(rule_error("tenant = 'a'\n"), Contains("1: there may be several tenants"));
  CHECK_THAT(rule_error("tenant = [1]\n"), Contains("1: tenant is a table"));
}

TEST_CASE("values of a rule that are out of range or of the wrong type are refused") {
  const auto with_uid = [](const std::string& line) { return rule_error("[[tenant]]\nuid = 1\n" + line + "\n"); };
  CHECK(with_uid("weight = 0") == "3: weight is 0; it may be from 0.001 to 1000");
  CHECK(with_uid("weight = -1") == "3: weight is -1; it may be from 0.001 to 1000");
  CHECK(with_uid("weight = 1000.5") == "3: weight is 1000.5; it may be from 0.001 to 1000");
  CHECK_THAT(with_uid("weight = nan"), Contains("3: weight is nan"));
  CHECK_THAT(with_uid("weight = 'much'"), Contains("3: weight takes a number"));
  CHECK_THAT(with_uid("weight = [1]"), Contains("3: weight takes a number"));
  CHECK_THAT(with_uid("weight = {a = 1}"), Contains("3: weight takes no date and no table"));
  CHECK_THAT(with_uid("gid = 4294967295"), Contains("3: gid is 4294967295; it may be from 0 to 4294967294"));
  CHECK_THAT(with_uid("gid = 'staff'"), Contains("3: gid takes a whole number"));
  CHECK_THAT(with_uid("user = 1"), Contains("3: user takes a name in quotes"));
  CHECK_THAT(with_uid("name = 1"), Contains("3: name takes a string"));
  CHECK_THAT(with_uid("trusted-proxy = 1"), Contains("3: trusted-proxy takes true or false"));
  CHECK_THAT(with_uid("most-urgent-priority = -1001"),
             Contains("3: most-urgent-priority is -1001; it may be from -1000"));
  CHECK_THAT(with_uid("max-running = 0"), Contains("3: max-running is 0; it may be from 1"));
  CHECK_THAT(with_uid("max-running = 1.5"), Contains("3: max-running takes a whole number"));
  CHECK_THAT(with_uid("max-choices = 65"), Contains("3: max-choices is 65; it may be from 1 to 64"));
  CHECK_THAT(with_uid("predict = 0"), Contains("1: predict is 0; an answer has at least one token"));
  CHECK_THAT(with_uid("predict = -2"), Contains("3: predict is -2; it may be from -1"));
  CHECK_THAT(with_uid("cache-scope = 'all'"), Contains("1: cache-scope is 'all'"));
}

TEST_CASE("rules that contradict themselves or each other are refused") {
  CHECK_THAT(rule_error("[[tenant]]\nuid = 1\nmin-kv-blocks = 5\nmax-kv-blocks = 4\n"),
             Contains("1: min-kv-blocks is 5, above max-kv-blocks, which is 4"));
  CHECK_THAT(rule_error("[[tenant]]\nuid = 1\nname = 'a'\n[[tenant]]\nuid = 2\nname = 'a'\n"),
             Contains("4: the rule in line 1 has the name a, too"));
  CHECK_THAT(rule_error("[[tenant]]\nuid = 1\ndefault = true\n"), Contains("1: default = true matches all users"));
  CHECK_THAT(rule_error("[[tenant]]\ndefault = true\ntrusted-proxy = true\n"),
             Contains("1: trusted-proxy = true with"));
  CHECK_THAT(rule_error("[[tenant]]\ntcp = true\n"), Contains("1: tcp = true matches clients that have no uid"));
  CHECK_THAT(rule_error("[[tenant]]\nname = 'a'\ntcp = true\ntrusted-proxy = true\n"),
             Contains("1: trusted-proxy = true with tcp = true"));
  CHECK(rules_of("[[tenant]]\ndefault = true\n[[tenant]]\nname = 'a'\ntcp = true\n")[1].tcp);
  CHECK_THAT(rule_error("[[tenant]]\ngroup = 'a'\nmin-kv-blocks = 5\n"),
             Contains("1: min-kv-blocks of a rule without"));
  CHECK(rules_of("[[tenant]]\nuid = [1, 2]\nmin-kv-blocks = 5\n").size() == 1);
  for (const char* name : {"1000", "a b", "-a", "\\u00e9", "a/b"}) {
    CAPTURE(name);
    CHECK_THAT(rule_error(std::string("[[tenant]]\nuid = 1\nname = \"") + name + "\"\n"), Contains("it must begin"));
  }
}

TEST_CASE("more rules than the limit are refused") {
  std::string file;
  for (std::size_t i = 0; i <= kMaxTenantRules; ++i) file += "[[tenant]]\nuid = 1\n";
  CHECK(rule_error(file) == "2049: there may be at most 1024 tables [[tenant]]");
}

TEST_CASE("a reload takes over new rules, and bad ones leave the old ones") {
  const test::TempFolder folder;
  const auto before = parse_rules(folder, "[[tenant]]\nuid = 1\n");
  REQUIRE(before);
  const Surroundings surroundings{.variables = {}, .system_file = "/nonexistent"};
  const auto same = read_again(Command::serve, *before, surroundings);
  REQUIRE(same);
  CHECK_FALSE(same->tenants_changed);
  folder.write("t.toml", "\n\n[[tenant]]\nuid = 1\n");
  CHECK_FALSE(read_again(Command::serve, *before, surroundings)->tenants_changed);
  folder.write("t.toml", "[[tenant]]\nuid = 1\nweight = 2\n");
  const auto changed = read_again(Command::serve, *before, surroundings);
  REQUIRE(changed);
  CHECK(changed->tenants_changed);
  REQUIRE(changed->in_effect.tenants.size() == 1);
  CHECK(changed->in_effect.tenants[0].weight == 2);
  folder.write("t.toml", "[[tenant]]\nuid = 1\nweight = 0\n");
  const auto bad = read_again(Command::serve, *before, surroundings);
  REQUIRE_FALSE(bad);
  CHECK_THAT(bad.error().message, Contains("t.toml:3: weight is 0"));
}
