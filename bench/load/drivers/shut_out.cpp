#include "bench/load/drivers/shut_out.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe::load {
namespace {

bool is_denied(const RequestRecord& record) {
  constexpr std::array<std::string_view, 3> kForGood{"permission", "http_401", "http_403"};
  if (record.kind != EndKind::refused) return false;
  return std::ranges::find(kForGood, record.outcome) != kForGood.end() ||
         (record.outcome == "quota" && !record.retry_after_s);
}

// Those of its own disconnects and of a server that is too slow are called otherwise.
bool has_lost_connection(const RequestRecord& record) {
  return (record.kind == EndKind::lost && record.outcome == "connection") || record.outcome == "connection_refused";
}

}  // namespace

void ShutOut::note(const RequestRecord& record) {
  const bool denied = is_denied(record);
  if (!denied && !has_lost_connection(record)) {
    if (record.kind == EndKind::refused) return;
    *this = ShutOut();
    was_served_ = true;
    return;
  }
  if (!first_) {
    first_ = ShutOutBy{.denied = denied, .why = record.message.empty() ? record.outcome : record.message};
    since_s_ = record.end_s;
  } else if (record.sent_s >= since_s_ && record.completion_tokens == 0) {
    ++num_in_vain_;
  }
}

std::optional<ShutOutBy> ShutOut::during_run() const { return num_in_vain_ >= kEnough ? first_ : std::nullopt; }

std::optional<ShutOutBy> ShutOut::after_run() const { return num_in_vain_ > 0 || !was_served_ ? first_ : std::nullopt; }

}  // namespace troupe::load
