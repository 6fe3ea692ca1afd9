// troupe usage: prints what each tenant has used.
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/client/client_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/usage/usage_database.h"
#include "cli/usage/usage_report.h"
#include "cli/usage/user_groups.h"

namespace troupe::cli {
namespace {

using client::UsagePeriod;

UsagePeriod period_of(const std::string& by) {
  if (by == "hour") return UsagePeriod::hour;
  return by == "day" ? UsagePeriod::day : UsagePeriod::total;
}

// Reads the file itself, which only its owner and root can.
Result<client::UsageReport> read_file(const std::string& path, UsagePeriod by, std::int64_t since) {
  const auto database = UsageDatabase::open_to_read(path);
  if (!database) return database.error();
  const auto rows = (*database)->rows({.since = since, .by = static_cast<actors::UsagePeriod>(by)});
  if (!rows) return rows.error();
  client::UsageReport report;
  for (const actors::UsageRow& row : *rows)
    report.rows.push_back({.begin = row.begin,
                           .uid = row.tenant.uid,
                           .tenant = row.tenant.name,
                           .done = row.counts.done,
                           .cancelled = row.counts.cancelled,
                           .refused = row.counts.refused,
                           .failed = row.counts.failed,
                           .prompt_tokens = row.counts.prompt_tokens,
                           .cached_tokens = row.counts.cached_tokens,
                           .answer_tokens = row.counts.answer_tokens,
                           .embed_tokens = row.counts.embed_tokens,
                           .cpu_seconds = row.counts.cpu_seconds,
                           .block_seconds = row.counts.block_seconds});
  return report;
}

// The file to read where no server answers; empty: there is none.
std::string file_to_read(const config::UsageOptions& options) {
  if (options.usage_db == "off") return "";
  const auto path = usage_path(options.usage_db);
  std::error_code ignored;
  return path && std::filesystem::exists(*path, ignored) ? *path : "";
}

}  // namespace

Result<int> usage(const config::UsageOptions& options, const config::Given& given) {
  const UsagePeriod by = period_of(options.by);
  std::optional<std::int64_t> since;
  if (!options.since.empty()) {
    since = parse_since(options.since, static_cast<std::int64_t>(std::time(nullptr)));
    if (!since)
      return config::bad_value(given, "since",
                               fmt::format("'{}' is no time; write \"24h\", \"7d\", \"2026-11-01\" or "
                                           "\"2026-11-01T08:00\"",
                                           options.since));
  }
  const bool grouped = options.by == "group";
  const auto origin = given.origins.find("usage-group");
  if (!grouped && origin != given.origins.end() && origin->second.starts_with("--"))
    return config::bad_value(given, "usage-group", "groups are lines with --by group alone; add it");
  const auto groups = UserGroups::of(options.usage_group);
  if (grouped && !groups) return config::bad_value(given, "usage-group", groups.error().message);
  const auto client = connect(options, "troupe usage");
  const std::string file = client ? "" : file_to_read(options);
  if (!client && (client.error().code != ErrorCode::io || file.empty())) return client.error();
  if (!client) complain("troupe usage", fmt::format("no server answers; this is what {} has", file));
  auto report = client ? (*client)->usage(by, since) : read_file(file, by, since.value_or(0));
  if (!report) return report.error();
  if (grouped) *report = by_group(*report, [&](std::uint32_t uid) { return groups->group_of(uid); });
  const UsageOf of = grouped ? UsageOf::group : UsageOf::user;
  const auto& name_of = grouped ? group_name : user_name;
  if (options.json) {
    write_json(usage_json(*report, by, name_of, of), std::cout);
  } else {
    std::cout << usage_text(*report, by, name_of, of);
    if (!report->note.empty()) complain("troupe usage", report->note);
  }
  return kExitOk;
}

}  // namespace troupe::cli
