// The log of requests: its lines as text and JSON, what clients may put into them, and which are left out.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/serve/access_log.h"
#include "config/printable.h"
#include "tests/support/temp_folder.h"

namespace troupe::cli {
namespace {

using actors::EndedRequest;
using Catch::Matchers::Contains;
using nlohmann::json;
using scheduler::Outcome;
using troupe::test::TempFolder;

EndedRequest answered() {
  return {.tenant = {.id = TenantId{1000}},
          .protocol = actors::Protocol::http,
          .kind = "generate",
          .request = 17,
          .client_id = "trace-1/a",
          .model = "tales-5m",
          .outcome = Outcome::length,
          .usage = {.prompt_tokens = 12,
                    .cached_tokens = 8,
                    .completion_tokens = 20,
                    .queue_seconds = 0.00025,
                    .ttft_seconds = 0.0125},
          .total_seconds = 1.5};
}

EndedRequest refused_for(TenantId tenant, bool is_owner = false) {
  return {.tenant = {.id = tenant, .is_owner = is_owner}, .kind = "generate", .outcome = Outcome::queue_full};
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("access log: a line has the request's ids, tenant, model, end, counts and times") {
  CHECK(
      access_line(answered(), 0, false) ==
      "request id=17 client_id=trace-1/a tenant=1000 protocol=http kind=generate choice=0 model=tales-5m outcome=done "
      "code=length prompt_tokens=12 cached_tokens=8 answer_tokens=20 queue_ms=0.250 ttft_ms=12.500 "
      "total_ms=1500.000");
  const json line = json::parse(access_line(answered(), 3, true));
  CHECK(line == json{{"id", 17},
                     {"client_id", "trace-1/a"},
                     {"tenant", "1000"},
                     {"protocol", "http"},
                     {"kind", "generate"},
                     {"choice", 0},
                     {"model", "tales-5m"},
                     {"outcome", "done"},
                     {"code", "length"},
                     {"prompt_tokens", 12},
                     {"cached_tokens", 8},
                     {"answer_tokens", 20},
                     {"queue_ms", 0.25},
                     {"ttft_ms", 12.5},
                     {"total_ms", 1500.0},
                     {"left_out", 3}});
}

TEST_CASE("access log: what a request does not have is a dash, or null") {
  const EndedRequest refused = refused_for(TenantId{5});
  CHECK(access_line(refused, 7, false) ==
        "request id=- client_id=- tenant=5 protocol=frames kind=generate choice=0 model=- outcome=refused "
        "code=queue_full prompt_tokens=0 cached_tokens=0 answer_tokens=0 queue_ms=- ttft_ms=- total_ms=0.000 "
        "left_out=7");
  const json line = json::parse(access_line(refused, 0, true));
  for (const char* name : {"id", "client_id", "model", "queue_ms", "ttft_ms"}) CHECK(line.at(name).is_null());
  CHECK(line.count("left_out") == 0);
}

TEST_CASE("access log: every outcome is done, cancelled, refused or failed, as usage counts it") {
  EndedRequest request = answered();
  std::map<std::string, int> counts;
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes()) {
    request.outcome = row.outcome;
    const json line = json::parse(access_line(request, 0, true));
    CHECK(line.at("code") == std::string(row.name));
    ++counts[line.at("outcome").get<std::string>()];
  }
  CHECK(counts == std::map<std::string, int>{{"done", 5}, {"cancelled", 2}, {"refused", 11}, {"failed", 6}});
}

TEST_CASE("access log: a name from a client forges no field and no line, plays with no terminal, and is cut off") {
  EndedRequest request = answered();
  const auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->name = "a lab";
  request.tenant.policy = policy;
  const std::string huge(4 << 20, 'x');
  const std::string names[] = {"a b",
                               "x outcome=done",
                               "-",
                               "\"",
                               "\\",
                               "a\nrequest id=1",
                               "\x1b]0;owned\a",
                               "\xe2\x80\xaeslug",
                               "\xff\xfe",
                               "x=y",
                               "{}",
                               "null",
                               huge};
  for (const std::string& name : names) {
    request.model = name;
    const std::string text = access_line(request, 0, false);
    INFO(text.substr(0, 1000));
    CHECK(text.size() < 600);
    CHECK(Printable(text, kMaxMessageBytes) == text);
    CHECK_THAT(text, Contains(" tenant=\"a lab\" "));
    // Fields begin where no quote is open.
    std::vector<std::string> fields;
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\\')
        ++at;
      else if (text[at] == '"')
        quoted = !quoted;
      else if (text[at] == '=' && !quoted)
        fields.push_back(text.substr(0, at).substr(text.rfind(' ', at) + 1));
    }
    CHECK_FALSE(quoted);
    CHECK(fields == std::vector<std::string>{"id", "client_id", "tenant", "protocol", "kind", "choice", "model",
                                             "outcome", "code", "prompt_tokens", "cached_tokens", "answer_tokens",
                                             "queue_ms", "ttft_ms", "total_ms"});
    const std::string object = access_line(request, 0, true);
    CHECK(object.size() < 700);
    CHECK(Printable(object, kMaxMessageBytes) == object);
    CHECK(json::parse(object).at("model") == Printable(name, kMaxAccessTextBytes).text());
  }
}

TEST_CASE("access quota: a guest has a quarter, the owner all, and what is left out is told with the next line") {
  AccessQuota quota(8);
  const scheduler::Tenant guest{.id = TenantId{1}}, owner{.id = TenantId{0}, .is_owner = true};
  const auto taken = [&](const scheduler::Tenant& tenant, bool is_refused, int asked, double now) {
    int lines = 0;
    for (int i = 0; i < asked; ++i) lines += quota.take(tenant, is_refused, now).has_value();
    return lines;
  };
  CHECK(taken(guest, true, 100, 10) == 10);  // five seconds of two lines
  CHECK(quota.num_untold() == 90);
  CHECK(quota.take(guest, false, 10) == std::optional<std::uint64_t>(90));  // others have an allowance of their own
  CHECK(quota.num_untold() == 0);
  CHECK(taken(guest, false, 100, 10) == 9);
  CHECK(taken(owner, true, 100, 10) == 30);  // what is left of the 40
  CHECK(taken(guest, true, 100, 11) == 2);
  CHECK(taken(owner, true, 100, 11) == 6);
  CHECK(quota.num_untold() == 91 + 70 + 98 + 94 - 91 - 70);
}

TEST_CASE("access quota: a guest that is refused again and again takes no line from a neighbour") {
  AccessQuota quota(100);
  const scheduler::Tenant flooder{.id = TenantId{1}}, neighbour{.id = TenantId{2}};
  for (int second = 0; second < 20; ++second) {
    for (int i = 0; i < 10'000; ++i) (void)quota.take(flooder, true, second);
    for (int i = 0; i < 20; ++i) {
      CHECK(quota.take(neighbour, true, second) == std::optional<std::uint64_t>(0));
      CHECK(quota.take(neighbour, false, second) == std::optional<std::uint64_t>(0));
    }
  }
}

TEST_CASE("access quota: however many tenants there are, lines stay within the limit, and the rest is counted") {
  AccessQuota quota(10);
  std::uint64_t lines = 0, told = 0;
  constexpr std::uint64_t kTenants = 3 * AccessQuota::kMaxTenants;
  for (std::uint64_t tenant = 0; tenant < kTenants; ++tenant)
    if (const auto left_out = quota.take({.id = TenantId{tenant}}, true, 1)) {
      ++lines;
      told += *left_out;
    }
  CHECK(lines == 50);
  CHECK(told + quota.num_untold() == kTenants - lines);
}

TEST_CASE("access log: to a file, from then on to another one, off, and what was left out is told at the end") {
  const TempFolder folder;
  config::LogOptions options;
  options.access_log = folder.path("access.log");
  options.max_access_lines_per_second = 4;
  const actors::TimePoint now{};
  {
    AccessLog log;
    log.add(answered(), now);  // goes nowhere
    REQUIRE(log.open(options));
    for (int i = 0; i < 8; ++i) log.add(refused_for(TenantId{1}), now);
    options.access_log = folder.path("none/access.log");
    const Status failed = log.open(options);
    REQUIRE_FALSE(failed);
    CHECK_THAT(failed.error().message, Contains("--access-log: " + options.access_log + ": No such file"));
    log.add(answered(), now);
    options.access_log = folder.path("other.log");
    options.log_format = "json";
    REQUIRE(log.open(options));
    log.add(answered(), now);
    MetricList metrics;
    log.append_metrics(metrics);
    CHECK(metrics.count("access_lines_left_out") == 3);
    options.access_log = "off";
    REQUIRE(log.open(options));
    log.add(answered(), now);
  }
  const auto lines = lines_of(folder.path("access.log"));
  REQUIRE(lines.size() == 7);
  CHECK_THAT(lines[0], Contains(" info request id=- "));
  CHECK_THAT(lines[5], Contains(" id=17 "));
  CHECK_THAT(lines[6], Contains(" warning 3 lines about requests were left out"));
  const auto objects = lines_of(folder.path("other.log"));
  REQUIRE(objects.size() == 1);
  const json line = json::parse(objects[0]);
  CHECK(line.at("message") == "request");
  CHECK(line.at("level") == "info");
  CHECK(line.at("time").get<std::string>().size() == 24);
  CHECK(line.at("id") == 17);
  CHECK(line.at("answer_tokens") == 20);
}

}  // namespace
}  // namespace troupe::cli
