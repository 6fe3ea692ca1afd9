#include "cli/usage/usage_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/options/values.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using client::UsagePeriod;
using client::UsageRow;

constexpr double kSecondsOfDay = 24 * 3600;
constexpr double kMaxDays = 1e6;

// In UTC, in which the server counts: "2026-11-23", or "2026-11-23 17:00".
std::string period_name(std::int64_t begin, UsagePeriod by) {
  const auto time = static_cast<std::time_t>(begin);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return fmt::format("{}", begin);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), by == UsagePeriod::day ? "%Y-%m-%d" : "%Y-%m-%d %H:00", &parts);
  return text.data();
}

std::string name_in(const UsageRow& row, const std::function<std::string(std::uint32_t)>& name_of) {
  return Printable(row.uid ? name_of(*row.uid) : row.tenant).text();
}

std::vector<std::string> cells_of(const UsageRow& row) {
  std::vector<std::string> cells;
  for (const std::uint64_t count : {row.done, row.cancelled, row.refused, row.failed, row.prompt_tokens,
                                    row.cached_tokens, row.answer_tokens, row.embed_tokens})
    cells.push_back(fmt::format("{}", count));
  cells.push_back(fmt::format("{:.1f}", row.cpu_seconds));
  cells.push_back(fmt::format("{:.0f}", row.block_seconds));
  return cells;
}

void add(UsageRow& sum, const UsageRow& row) {
  sum.done += row.done;
  sum.cancelled += row.cancelled;
  sum.refused += row.refused;
  sum.failed += row.failed;
  sum.prompt_tokens += row.prompt_tokens;
  sum.cached_tokens += row.cached_tokens;
  sum.answer_tokens += row.answer_tokens;
  sum.embed_tokens += row.embed_tokens;
  sum.cpu_seconds += row.cpu_seconds;
  sum.block_seconds += row.block_seconds;
}

// Lines of columns that are as wide as their widest cell; the first num_left are aligned to the left.
std::string columns(const std::vector<std::vector<std::string>>& lines, std::size_t num_left) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char* const gap = i == 0 ? "" : "  ";
      text += i < num_left ? fmt::format("{}{:<{}}", gap, line[i], widths[i])
                           : fmt::format("{}{:>{}}", gap, line[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::optional<std::int64_t> parse_since(const std::string& text, std::int64_t now) {
  if (text.ends_with('d')) {
    const auto days = config::parse_number(std::string_view(text).substr(0, text.size() - 1));
    if (!days || *days < 0 || *days > kMaxDays) return std::nullopt;
    return now - static_cast<std::int64_t>(*days * kSecondsOfDay);
  }
  for (const char* const format : {"%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* const end = ::strptime(text.c_str(), format, &parts);
    if (end == nullptr || *end != '\0') continue;
    const std::tm asked = parts;
    const std::time_t time = std::mktime(&parts);
    const bool exists = parts.tm_mday == asked.tm_mday && parts.tm_mon == asked.tm_mon;  // there is no 31st of June
    return time < 0 || !exists ? std::nullopt : std::optional<std::int64_t>(time);
  }
  const auto duration = config::parse_duration(text);
  if (!duration) return std::nullopt;
  return now - std::chrono::duration_cast<std::chrono::seconds>(*duration).count();
}

client::UsageReport by_group(const client::UsageReport& report,
                             const std::function<std::optional<std::uint32_t>(std::uint32_t)>& group_of) {
  std::map<std::uint32_t, UsageRow> groups;
  UsageRow without;
  without.tenant = "(no group)";
  bool any_without = false;
  client::UsageReport summed = report;
  summed.rows.clear();
  std::vector<UsageRow> others;
  for (const UsageRow& row : report.rows) {
    if (!row.uid) {
      others.push_back(row);
      continue;
    }
    const auto gid = group_of(*row.uid);
    if (gid) groups[*gid].uid = gid;
    any_without |= !gid;
    add(gid ? groups[*gid] : without, row);
  }
  for (const auto& [gid, row] : groups) summed.rows.push_back(row);
  if (any_without) summed.rows.push_back(without);
  summed.rows.insert(summed.rows.end(), others.begin(), others.end());
  return summed;
}

std::string usage_text(const client::UsageReport& report, UsagePeriod by,
                       const std::function<std::string(std::uint32_t)>& name_of, UsageOf of) {
  if (report.rows.empty()) return "nothing was used\n";
  const bool has_periods = by != UsagePeriod::total;
  std::vector<std::vector<std::string>> lines;
  const auto add_line = [&](const std::string& period, const std::string& tenant, std::vector<std::string> cells) {
    cells.insert(cells.begin(), tenant);
    if (has_periods) cells.insert(cells.begin(), period);
    lines.push_back(std::move(cells));
  };
  add_line(by == UsagePeriod::day ? "day (UTC)" : "hour (UTC)", of == UsageOf::group ? "group" : "tenant",
           {"done", "cancelled", "refused", "failed", "prompt", "cached", "answer", "embedded", "CPU s", "block s"});
  UsageRow sum;
  for (const UsageRow& row : report.rows) {
    const bool is_named = of == UsageOf::group && !row.uid && !row.tenant.starts_with('(');
    add_line(period_name(row.begin, by), (is_named ? "tenant " : "") + name_in(row, name_of), cells_of(row));
    add(sum, row);
  }
  if (report.rows.size() > 1) add_line("total", has_periods ? "" : "total", cells_of(sum));
  return columns(lines, has_periods ? 2 : 1);
}

nlohmann::ordered_json usage_json(const client::UsageReport& report, UsagePeriod by,
                                  const std::function<std::string(std::uint32_t)>& name_of, UsageOf of) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const UsageRow& row : report.rows) {
    const bool is_group = of == UsageOf::group && row.uid;
    nlohmann::ordered_json object{{is_group ? "group" : "tenant", name_in(row, name_of)}};
    if (row.uid) object[is_group ? "gid" : "uid"] = *row.uid;
    if (by != UsagePeriod::total) object["begin"] = row.begin;
    object.update({{"requests_done", row.done},
                   {"requests_cancelled", row.cancelled},
                   {"requests_refused", row.refused},
                   {"requests_failed", row.failed},
                   {"prompt_tokens", row.prompt_tokens},
                   {"cached_tokens", row.cached_tokens},
                   {"answer_tokens", row.answer_tokens},
                   {"embed_tokens", row.embed_tokens},
                   {"cpu_seconds", row.cpu_seconds},
                   {"block_seconds", row.block_seconds}});
    rows.push_back(std::move(object));
  }
  nlohmann::ordered_json all{{"own_only", report.own_only}, {"rows", std::move(rows)}};
  if (!report.note.empty()) all["note"] = report.note;
  return all;
}

}  // namespace troupe::cli
