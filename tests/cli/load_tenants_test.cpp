// --tenant and --tenants of `troupe load`.
#include "cli/load/load_tenants.h"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <string_view>

#include "config/options/option.h"
#include "config/sampling/sampling_numbers.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::cli;

namespace {

config::LoadOptions run_with(std::vector<std::string> tenants) {
  config::LoadOptions options;
  options.load_tenants = std::move(tenants);
  return options;
}

TenantOptions one(const std::string& text) {
  auto tenants = make_tenants(run_with({text}), {});
  if (!tenants) FAIL(tenants.error().message);
  REQUIRE(tenants->size() == 1);
  return std::move(tenants->front());
}

std::string tenant_error(const std::string& text) {
  const auto tenants = make_tenants(run_with({text}), {});
  INFO(text);
  REQUIRE_FALSE(tenants);
  CHECK(tenants.error().code == ErrorCode::invalid_argument);
  return tenants.error().message;
}

}  // namespace

TEST_CASE("a run without --tenant has no tenants") { CHECK(make_tenants({}, {})->empty()); }

TEST_CASE("a tenant has its own keys, and flags of the run that it changes") {
  const TenantOptions tenant =
      one("A:weight=3,start=1500ms,priority=-2,clients=64,rate=2.5,prompt-len=normal:64,16,think-time=1s,deadline=2s,"
          "output-len=4..8");
  CHECK(tenant.name == "A");
  CHECK(tenant.weight == 3);
  CHECK(tenant.start_s == 1.5);
  CHECK(tenant.priority == -2);
  CHECK(tenant.kind == load::RequestKind::generate);
  CHECK_FALSE(tenant.user);
  CHECK(tenant.options.clients == 64);
  CHECK(tenant.options.rate == 2.5);
  CHECK(tenant.options.prompt_len == "normal:64,16");  // a comma within a value
  CHECK(tenant.options.output_len == "4..8");
  CHECK(tenant.options.think_time == std::chrono::seconds(1));
  CHECK(tenant.options.deadline == std::chrono::seconds(2));
}

TEST_CASE(
    "a tenant may have every flag of sampling, pace, requests and faults, but for those that say what the run does") {
  // The largest value of each, or a text that all texts of these groups allow.
  std::size_t num_sampling_numbers = 0;
  config::for_each_sampling_number([&](const config::SamplingNumber& number) {
    ++num_sampling_numbers;
    one(fmt::format("A:{}={:.0f}", number.option, number.max));
  });
  CHECK(num_sampling_numbers >= 8);
  const std::set<std::string_view> of_the_run = {"patience", "warm", "trace", "trace-out", "openai", "api-key"};
  const std::set<std::string_view> headings = {"Sampling (llama.cpp's defaults)", "Pace", "Requests",
                                               "Faults (shares of the requests, 0 to 1)"};
  std::set<std::string_view> met;
  for (const config::Option& option : config::option_table()) {
    if (!option.belongs_to(config::Command::load) || !headings.contains(option.group)) continue;
    met.insert(option.group);
    INFO(option.name);
    const bool is_text = std::holds_alternative<std::string config::Options::*>(option.field);
    const bool is_time = std::holds_alternative<std::chrono::milliseconds config::Options::*>(option.field);
    const std::string text = fmt::format("A:{}={}", option.name, is_text ? "4..8" : is_time ? "1s" : "1");
    if (of_the_run.contains(option.name))
      CHECK_THAT(tenant_error(text), Catch::Contains("is not a key of a tenant"));
    else
      one(text);
  }
  CHECK(met == headings);
  CHECK(one("A:frequency-penalty=1.5,repeat-last-n=7").options.frequency_penalty == 1.5);
  CHECK(one("A:frequency-penalty=1.5,repeat-last-n=7").options.repeat_last_n == 7);
}

TEST_CASE("what a tenant does not name is as the flags say") {
  config::LoadOptions run = run_with({"A:clients=2", "B"});
  run.clients = 16;
  run.prompt_len = "300";
  run.top_k = 7;
  run.scope = "s";
  const auto tenants = make_tenants(run, {.ttft_ms = 500});
  REQUIRE(tenants);
  CHECK(tenants->at(0).options.clients == 2);
  CHECK(tenants->at(1).options.clients == 16);
  for (const TenantOptions& tenant : *tenants) {
    CHECK(tenant.options.prompt_len == "300");
    CHECK(tenant.options.top_k == 7);
    CHECK(tenant.options.scope == "s");
    CHECK(tenant.limits.ttft_ms == 500);
    CHECK(tenant.weight == 1);
  }
}

TEST_CASE("tenants have seeds of their own, from that of the run and their places") {
  config::LoadOptions run = run_with({"A", "B:seed=99", "C"});
  run.seed = 7;
  const auto tenants = make_tenants(run, {});
  REQUIRE(tenants);
  CHECK(tenants->at(0).options.seed == 7);
  CHECK(tenants->at(1).options.seed == 99);
  CHECK(tenants->at(2).options.seed == 9);
}

TEST_CASE("a tenant's limits replace those of the run") {
  config::LoadOptions run = run_with({"A:goodput=tpot:50,e2el:4000,clients=1"});
  const auto tenants = make_tenants(run, {.ttft_ms = 500});
  REQUIRE(tenants);
  CHECK_FALSE(tenants->front().limits.ttft_ms);
  CHECK(tenants->front().limits.tpot_ms == 50);
  CHECK(tenants->front().limits.e2el_ms == 4000);
  CHECK(tenants->front().options.clients == 1);
}

TEST_CASE("a tenant may ask for vectors or token ids: then there is no answer to cancel or read slowly") {
  config::LoadOptions run = run_with({"A:embed,clients=3", "B:prompt-len=lognormal:100,50,tokenize"});
  run.fault_cancel = run.fault_slow_reader = run.fault_disconnect = 0.1;
  const auto tenants = make_tenants(run, {});
  REQUIRE(tenants);
  CHECK(tenants->at(0).kind == load::RequestKind::embed);
  CHECK(tenants->at(0).options.clients == 3);
  CHECK(tenants->at(1).kind == load::RequestKind::tokenize);
  CHECK(tenants->at(1).options.prompt_len == "lognormal:100,50");
  for (const TenantOptions& tenant : *tenants) {
    CHECK(tenant.options.output_len == "1");
    CHECK(tenant.options.fault_cancel == 0);
    CHECK(tenant.options.fault_slow_reader == 0);
    CHECK(tenant.options.fault_disconnect == 0.1);
  }
}

TEST_CASE("a tenant's user is checked before the run") {
  const std::string self = std::to_string(::geteuid());
  CHECK(one("A:uid=" + self).user->uid == ::geteuid());
  CHECK_THAT(tenant_error("A:uid=no such user"), Catch::Contains("tenant A: uid: there is no user 'no such user'"));
  const auto other = make_tenants(run_with({"A:uid=34567"}), {});
  if (::geteuid() == 0) {
    REQUIRE(other);
    CHECK(other->front().user->uid == 34567);
  } else {
    REQUIRE_FALSE(other);
    CHECK(other.error().code == ErrorCode::permission);
    CHECK_THAT(other.error().message, Catch::Contains("tenant A: only root can connect as uid 34567"));
  }
}

TEST_CASE("an error names the tenant, the key and what it may be") {
  CHECK_THAT(tenant_error("A:clients=many"),
             Catch::Contains("tenant A: clients: 'many' is not a whole number (0 to 100000)"));
  CHECK_THAT(tenant_error("A:clients=100001"), Catch::Contains("tenant A: clients: 100001 is out of range"));
  CHECK_THAT(tenant_error("A:wieght=2"), Catch::Contains("'wieght' is not a key of a tenant (did you mean weight?)"));
  CHECK_THAT(tenant_error("A:socket=s"), Catch::Contains("'socket' is not a key of a tenant"));
  CHECK_THAT(tenant_error("A:tenant=B"), Catch::Contains("'tenant' is not a key of a tenant"));
  CHECK_THAT(tenant_error("A:clients"), Catch::Contains("clients needs a value"));
  CHECK_THAT(tenant_error("A:"), Catch::Contains("'' is not a key"));
  CHECK_THAT(tenant_error("A:embed=yes"), Catch::Contains("embed takes no value"));
  CHECK_THAT(tenant_error("A:embed,tokenize"), Catch::Contains("contradict each other"));
  for (const char* weight : {"0", "-1", "nan", "1e9", "x"})
    CHECK_THAT(tenant_error(std::string("A:weight=") + weight), Catch::Contains("is no weight: a number above 0"));
  CHECK_THAT(tenant_error("A:start=later"), Catch::Contains("start: 'later' is not a duration"));
  CHECK_THAT(tenant_error("A:priority=1001"), Catch::Contains("priority: '1001' is no priority"));
  CHECK_THAT(tenant_error("A:goodput=fast:1"), Catch::Contains("'fast:1' is no limit"));
}

TEST_CASE("names are short, plain and unique") {
  for (const char* name : {"", ":clients=1", "a b", "all", "a\x1b[1m", "seventeen-letters"})
    CHECK_THAT(tenant_error(name), Catch::Contains("is no name: 1 to 16"));
  CHECK(one("sixteen-letters.").name == "sixteen-letters.");
  const auto twice = make_tenants(run_with({"A", "B", "A"}), {});
  REQUIRE_FALSE(twice);
  CHECK(twice.error().message == "there are two tenants A");
}

TEST_CASE("a file has a tenant on each line, after those of the flags") {
  const test::TempFolder folder;
  config::LoadOptions run = run_with({"A"});
  run.load_tenants_file = folder.write("tenants", "# a crowd\nB:clients=64\r\n\n  C:weight=2  \n");
  const auto tenants = make_tenants(run, {});
  REQUIRE(tenants);
  REQUIRE(tenants->size() == 3);
  CHECK(tenants->at(1).options.clients == 64);
  CHECK(tenants->at(2).name == "C");
  CHECK(tenants->at(2).weight == 2);

  const auto message = [&](const std::string& path) {
    run.load_tenants_file = path;
    const auto failed = make_tenants(run, {});
    REQUIRE_FALSE(failed);
    return failed.error().message;
  };
  CHECK_THAT(message(folder.write("wrong", "B\n\nC:x=1\n")), Catch::Contains("wrong:3: tenant C: 'x' is not a key"));
  CHECK_THAT(message(folder.write("again", "A\n")), Catch::Contains("again:1: there are two tenants A"));
  CHECK_THAT(message(folder.write("empty", "")), Catch::Contains("there is no tenant in it"));
  CHECK_THAT(message(folder.path("missing")), Catch::Contains("cannot read the tenants of"));
  CHECK_THAT(message(folder.path()), Catch::Contains("cannot read the tenants of"));
  CHECK_THAT(message(folder.write("large", std::string(kMaxTenantsFile + 1, '#'))),
             Catch::Contains("at most 65536 bytes"));
}

TEST_CASE("a run has a bounded number of tenants") {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kMaxTenants; ++i) names.push_back("t" + std::to_string(i));
  CHECK(make_tenants(run_with(names), {})->size() == kMaxTenants);
  names.emplace_back("more");
  CHECK_THAT(make_tenants(run_with(names), {}).error().message, Catch::Contains("at most 64 tenants, not 65"));
}

TEST_CASE("tenants that are to run alone are named, or all") {
  config::LoadOptions run = run_with({"A", "B", "C"});
  const auto compared = [&](std::vector<std::string> names) {
    run.compare_alone = std::move(names);
    std::string marked;
    const auto tenants = make_tenants(run, {});
    REQUIRE(tenants);
    for (const TenantOptions& tenant : *tenants)
      if (tenant.compare_alone) marked += tenant.name;
    return marked;
  };
  CHECK(compared({}).empty());
  CHECK(compared({"B"}) == "B");
  CHECK(compared({"C,A"}) == "AC");
  CHECK(compared({"A", "B"}) == "AB");
  CHECK(compared({"all"}) == "ABC");
  run.compare_alone = {"D"};
  CHECK_THAT(make_tenants(run, {}).error().message, Catch::Contains("there is no tenant 'D'"));
  run.load_tenants.clear();
  run.compare_alone = {"all"};
  CHECK_FALSE(make_tenants(run, {}));
}

TEST_CASE("traces and servers of other kinds know no tenants") {
  for (std::string config::LoadOptions::*flag :
       {static_cast<std::string config::LoadOptions::*>(&config::LoadOptions::trace),
        static_cast<std::string config::LoadOptions::*>(&config::LoadOptions::trace_out),
        static_cast<std::string config::LoadOptions::*>(&config::LoadOptions::openai)}) {
    config::LoadOptions run = run_with({"A"});
    run.*flag = "x";
    CHECK_THAT(make_tenants(run, {}).error().message, Catch::Contains("knows no tenants"));
    run.load_tenants.clear();
    CHECK(make_tenants(run, {}));
  }
}
