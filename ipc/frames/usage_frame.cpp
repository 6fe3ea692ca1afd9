#include "ipc/frames/usage_frame.h"

#include <fmt/format.h>

#include "config/utf8.h"

namespace troupe::ipc {
namespace {

using actors::UsagePeriod;
using scheduler::Outcome;

constexpr std::uint64_t kMaxTime = 253'402'300'799;  // the end of the year 9999

static_assert(static_cast<int>(UsagePeriod::total) == v1::UsageRequest::PERIOD_TOTAL &&
              static_cast<int>(UsagePeriod::day) == v1::UsageRequest::PERIOD_DAY &&
              static_cast<int>(UsagePeriod::hour) == v1::UsageRequest::PERIOD_HOUR);

Refusal usage_refusal(const Error& error, bool is_owner) {
  switch (error.code) {
    case ErrorCode::busy:
      return {.outcome = Outcome::queue_full, .message = error.message, .field = "usage_request"};
    case ErrorCode::invalid_argument:
      return {.outcome = Outcome::too_long, .message = error.message, .field = "since", .limit = actors::kMaxUsageRows};
    default:
      return {.outcome = Outcome::unsupported,
              .message = is_owner ? error.message : "the server cannot read its account of usage; its log says why",
              .field = "usage_request"};
  }
}

}  // namespace

std::variant<actors::UsageQuery, Refusal> to_query(const v1::UsageRequest& request) {
  if (request.since() > kMaxTime)
    return scheduler::invalid("since",
                              fmt::format("{} is no time; it is given in seconds since 1970", request.since()));
  if (!v1::UsageRequest::Period_IsValid(request.by()))
    return scheduler::invalid(
        "by", fmt::format("there is no period {}; 0 is the total, 1 a day, 2 an hour", static_cast<int>(request.by())));
  return actors::UsageQuery{.since = static_cast<std::int64_t>(request.since()),
                            .by = static_cast<UsagePeriod>(request.by())};
}

v1::ServerFrame usage_frame(std::uint64_t stream, const Result<actors::UsageReport>& report, bool is_owner) {
  if (!report) return to_frame(stream, usage_refusal(report.error(), is_owner));
  v1::ServerFrame frame;
  v1::UsageReport& out = *frame.mutable_usage_report();
  out.set_stream(stream);
  out.set_own_only(!is_owner);
  if (is_owner) out.set_note(valid_utf8(report->note));
  for (const actors::UsageRow& row : report->rows) {
    v1::UsageReport::Row& added = *out.add_rows();
    added.set_begin(static_cast<std::uint64_t>(row.begin));
    if (row.tenant.uid) added.set_uid(*row.tenant.uid);
    added.set_tenant(valid_utf8(row.tenant.name));
    added.set_done(row.counts.done);
    added.set_cancelled(row.counts.cancelled);
    added.set_refused(row.counts.refused);
    added.set_failed(row.counts.failed);
    added.set_prompt_tokens(row.counts.prompt_tokens);
    added.set_cached_tokens(row.counts.cached_tokens);
    added.set_answer_tokens(row.counts.answer_tokens);
    added.set_embed_tokens(row.counts.embed_tokens);
    added.set_cpu_seconds(row.counts.cpu_seconds);
    added.set_block_seconds(row.counts.block_seconds);
  }
  return frame;
}

}  // namespace troupe::ipc
