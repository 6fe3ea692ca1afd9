#include "cli/usage/usage_report.h"

#include <catch2/catch.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/usage/user_groups.h"

using namespace troupe;
using namespace troupe::cli;
using client::UsagePeriod;

namespace {

constexpr std::int64_t kNoon = 1'793'448'000;  // 2026-10-31 12:00 UTC

std::string named(std::uint32_t uid) { return uid == 1000 ? "ann" : std::to_string(uid); }

client::UsageReport two_tenants() {
  client::UsageReport report;
  report.rows.push_back(
      {.begin = kNoon, .uid = 1000, .done = 12, .prompt_tokens = 3400, .cpu_seconds = 1.25, .block_seconds = 90.4});
  report.rows.push_back({.begin = kNoon, .uid = {}, .tenant = "lab\x1b", .refused = 3, .embed_tokens = 7});
  return report;
}

}  // namespace

TEST_CASE("usage: --since is a duration before now, or a date in local time") {
  CHECK(parse_since("24h", kNoon) == kNoon - 24 * 3600);
  CHECK(parse_since("7d", kNoon) == kNoon - 7 * 24 * 3600);
  CHECK(parse_since("0.5d", kNoon) == kNoon - 12 * 3600);
  CHECK(parse_since("90", kNoon) == kNoon - 90);
  std::tm local{};
  local.tm_year = 126;
  local.tm_mon = 10;
  local.tm_mday = 1;
  local.tm_isdst = -1;
  CHECK(parse_since("2026-11-01", kNoon) == std::mktime(&local));
  local.tm_hour = 8;
  local.tm_min = 30;
  local.tm_isdst = -1;
  CHECK(parse_since("2026-11-01T08:30", kNoon) == std::mktime(&local));
  for (const char* wrong : {"", "d", "-1d", "nand", "1e99d", "2026-13-01", "2026-06-31", "2026-11-01T25:00",
                            "2026-11-01 x", "yesterday", "1600-01-01"}) {
    INFO(wrong);
    CHECK_FALSE(parse_since(wrong, kNoon));
  }
}

TEST_CASE("usage: the table has a line for each tenant and their sum") {
  CHECK(usage_text(two_tenants(), UsagePeriod::total, named) ==
        "tenant   done  cancelled  refused  failed  prompt  cached  answer  embedded  CPU s  block s\n"
        "ann        12          0        0       0    3400       0       0         0    1.2       90\n"
        "lab\\x1b     0          0        3       0       0       0       0         7    0.0        0\n"
        "total      12          0        3       0    3400       0       0         7    1.2       90\n");
  CHECK(usage_text({}, UsagePeriod::total, named) == "nothing was used\n");
}

TEST_CASE("usage: by day and by hour each line has its period, in UTC") {
  client::UsageReport report = two_tenants();
  report.rows.pop_back();
  CHECK(usage_text(report, UsagePeriod::day, named).find("\n2026-10-31  ann ") != std::string::npos);
  CHECK(usage_text(report, UsagePeriod::hour, named).find("\n2026-10-31 12:00  ann ") != std::string::npos);
  CHECK(usage_text(report, UsagePeriod::hour, named).find("total") == std::string::npos);  // one line
}

TEST_CASE("usage: JSON has every count, and what identifies the tenant") {
  const auto json = usage_json(two_tenants(), UsagePeriod::hour, named);
  REQUIRE(json["rows"].size() == 2);
  CHECK(json["rows"][0]["tenant"] == "ann");
  CHECK(json["rows"][0]["uid"] == 1000);
  CHECK(json["rows"][0]["begin"] == kNoon);
  CHECK(json["rows"][0]["requests_done"] == 12);
  CHECK(json["rows"][0]["block_seconds"] == 90.4);
  CHECK_FALSE(json["rows"][1].contains("uid"));
  CHECK(json["rows"][1]["requests_refused"] == 3);
  CHECK(json["own_only"] == false);
}

TEST_CASE("usage: by group users are summed up, and other tenants stay apart") {
  client::UsageReport report = two_tenants();
  report.rows.push_back({.uid = 1001, .done = 30, .cpu_seconds = 2});
  report.rows.push_back({.uid = 1002, .done = 400});
  report.rows.push_back({.uid = 1003, .done = 5000});
  report.note = "some are missing";
  const auto grouped = by_group(report, [](std::uint32_t uid) -> std::optional<std::uint32_t> {
    if (uid == 1003) return std::nullopt;
    return uid == 1002 ? 50 : 60;
  });
  CHECK(grouped.note == report.note);
  const auto name_of = [](std::uint32_t gid) -> std::string { return gid == 50 ? "vision" : "speech"; };
  CHECK(usage_text(grouped, UsagePeriod::total, name_of, UsageOf::group) ==
        "group           done  cancelled  refused  failed  prompt  cached  answer  embedded  CPU s  block s\n"
        "vision           400          0        0       0       0       0       0         0    0.0        0\n"
        "speech            42          0        0       0    3400       0       0         0    3.2       90\n"
        "(no group)      5000          0        0       0       0       0       0         0    0.0        0\n"
        "tenant lab\\x1b     0          0        3       0       0       0       0         7    0.0        0\n"
        "total           5442          0        3       0    3400       0       0         7    3.2       90\n");
  const auto json = usage_json(grouped, UsagePeriod::total, name_of, UsageOf::group)["rows"];
  REQUIRE(json.size() == 4);
  CHECK(json[0]["group"] == "vision");
  CHECK(json[0]["gid"] == 50);
  CHECK(json[1]["requests_done"] == 42);
  CHECK(json[2]["tenant"] == "(no group)");
  CHECK(json[3]["tenant"] == "lab\\x1b");
  CHECK_FALSE(json[3].contains("gid"));
}

TEST_CASE("usage: a user counts for its primary group, or for the first of the named ones that it is in") {
  const auto primary = UserGroups::of({});
  REQUIRE(primary);
  CHECK(primary->group_of(0) == 0);  // root
  CHECK_FALSE(primary->group_of(4'000'000'000));
  CHECK(group_name(0) == "root");
  CHECK(group_name(4'000'000'000) == "4000000000");
  const auto named = UserGroups::of({"daemon,root", "sys"});
  REQUIRE(named);
  CHECK(named->group_of(0) == 0);
  CHECK(UserGroups::of({"daemon"})->group_of(0) == std::nullopt);
  const auto unknown = UserGroups::of({"root,no-such-group"});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message == "this system has no group 'no-such-group'");
}
