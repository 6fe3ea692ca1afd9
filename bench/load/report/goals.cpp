#include "bench/load/report/goals.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "config/options/values.h"

namespace troupe::load {
namespace {

std::string rounded_percent(double share) { return config::format_number(std::round(1000 * share) / 10) + " %"; }

void check_ends(const Run& run, const Summary& summary, std::vector<std::string>& missed) {
  if (summary.never_ended > 0) missed.push_back(fmt::format("{} requests never ended", summary.never_ended));
  if (summary.ended_twice > 0) missed.push_back(fmt::format("{} requests ended more than once", summary.ended_twice));
  if (run.stray_frames > 0)
    missed.push_back(fmt::format("{} frames came for requests that had ended", run.stray_frames));
  if (!run.account) return;
  const ServerAccount& account = *run.account;
  if (account.at_rest && account.requests_before + account.received != account.ended) {
    const std::string before =
        account.requests_before > 0 ? fmt::format("{} requests were there, ", account.requests_before) : "";
    missed.push_back(fmt::format("by the server's counters {}{} requests came and {} ended", before, account.received,
                                 account.ended));
  }
  if (account.requests_left == 0 && account.blocks_held > 0)
    missed.push_back(fmt::format("the server holds {} blocks though nothing runs", account.blocks_held));
}

}  // namespace

Result<Goodput> parse_goodput(const std::vector<std::string>& texts) {
  Goodput limits;
  for (const std::string& text : texts)
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::string limit = text.substr(begin, end - begin);
      begin = end + 1;
      const std::size_t colon = limit.find(':');
      const std::string key = limit.substr(0, colon);
      const auto value = colon == std::string::npos ? std::nullopt : config::parse_number(limit.substr(colon + 1));
      std::optional<double>* const field = key == "ttft"   ? &limits.ttft_ms
                                           : key == "tpot" ? &limits.tpot_ms
                                           : key == "e2el" ? &limits.e2el_ms
                                                           : nullptr;
      if (!field || !value || *value <= 0)
        return Error{
            ErrorCode::invalid_argument,
            fmt::format("--goodput: '{}' is no limit; write ttft:MS, tpot:MS or e2el:MS, in milliseconds", limit)};
      *field = value;
    }
  return limits;
}

std::vector<std::string> missed_goals(const Run& run, const Summary& summary, const Goals& goals) {
  std::vector<std::string> missed;
  if (summary.num_requests == 0) missed.emplace_back("nothing was sent");
  check_ends(run, summary, missed);
  if (summary.mismatched > 0)
    missed.push_back(fmt::format("{} of {} answers differ from those of the same requests alone", summary.mismatched,
                                 summary.mismatched + summary.verified));
  if (run.garbage.ignored > 0)
    missed.push_back(
        fmt::format("{} of {} connections that sent garbage were not closed", run.garbage.ignored, run.garbage.sent));
  if (goals.max_failed && summary.failed > *goals.max_failed)
    missed.push_back(
        fmt::format("{} requests failed, of which {} may (--max-failed)", summary.failed, *goals.max_failed));
  if (goals.max_refused && summary.refused > *goals.max_refused)
    missed.push_back(
        fmt::format("{} requests were refused, of which {} may (--max-refused)", summary.refused, *goals.max_refused));
  if (summary.good_share < goals.good_share)
    missed.push_back(
        fmt::format("of the undisturbed requests {} were within the limits, less than {} (--require-goodput)",
                    rounded_percent(summary.good_share), rounded_percent(goals.good_share)));
  return missed;
}

}  // namespace troupe::load
