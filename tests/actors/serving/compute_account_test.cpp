#include "actors/serving/compute_account.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

constexpr TenantId kFirstTenant{1}, kSecondTenant{2};

TimePoint account_time(double seconds) {
  return TimePoint{} + std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
}

Usage receipt_of(const StreamWork& work, double parked_seconds, double now) {
  Usage usage;
  work.fill(usage, parked_seconds, 2, account_time(now));
  return usage;
}

Charge charge_of(double seconds, std::uint32_t num_tokens, std::uint32_t num_blocks) {
  return {.seconds = seconds, .num_tokens = num_tokens, .num_blocks = num_blocks};
}

}  // namespace

TEST_CASE("receipt: a stream is stalled while it has a place and no step computes it") {
  StreamWork work;
  work.began(0, 0, account_time(10));
  work.charge(charge_of(0.25, 8, 0), 0.5, account_time(10.5));
  work.charge(charge_of(0.5, 1, 0), 0.5, account_time(12));
  const Usage usage = receipt_of(work, 0, 13);
  CHECK(usage.compute_seconds == Approx(0.75));
  CHECK(usage.cpu_seconds == Approx(1.5));
  CHECK(usage.computed_tokens == 9);
  CHECK(usage.stalled_seconds == Approx(2));
  CHECK(usage.preempted_seconds == 0);
}

TEST_CASE("receipt: the time without a place counts as preempted, and that without credit as parked only") {
  StreamWork work;
  work.began(4, 7, account_time(10));  // 7 s without credit before its first step
  work.charge(charge_of(1, 1, 4), 1, account_time(11));
  work.preempted(/*parked=*/false, account_time(12));
  work.began(4, 7, account_time(15));
  work.preempted(/*parked=*/true, account_time(16));
  work.unparked(account_time(20));
  const Usage waiting = receipt_of(work, 11, 23);
  CHECK(waiting.preempted_seconds == Approx(6));
  CHECK(waiting.parked_seconds == Approx(11));
  CHECK(waiting.stalled_seconds == Approx(2));
  work.began(4, 11, account_time(23));
  CHECK(receipt_of(work, 11, 23.5).preempted_seconds == Approx(6));
  CHECK(receipt_of(work, 11, 23.5).stalled_seconds == Approx(2.5));
}

TEST_CASE("receipt: blocks count for the time that they are held, until they are given back or the stream ends") {
  StreamWork work;
  work.began(3, 0, account_time(10));
  CHECK(receipt_of(work, 0, 12).block_seconds == Approx(6));
  work.charge(charge_of(1, 1, 5), 1, account_time(11));
  CHECK(receipt_of(work, 0, 11).block_seconds == Approx(5));
  CHECK(receipt_of(work, 0, 13).block_seconds == Approx(15));
  work.preempted(/*parked=*/false, account_time(12));
  CHECK(receipt_of(work, 0, 20).block_seconds == Approx(10));
  work.began(2, 0, account_time(21));
  CHECK(receipt_of(work, 0, 22).block_seconds == Approx(12));
}

TEST_CASE("receipt: a stream that never began has nothing but the time without credit") {
  const Usage usage = receipt_of({}, 3, 10);
  CHECK(usage.parked_seconds == 3);
  CHECK(usage.stalled_seconds == 0);
  CHECK(usage.block_seconds == 0);
  CHECK(usage.compute_seconds == 0);
}

TEST_CASE("receipt: a tenant's share is its part of what was charged between arrival and end") {
  ChargedTime charged;
  const auto early = charged.begin(kFirstTenant);
  charged.charge(kFirstTenant, 3);
  const auto late = charged.begin(kFirstTenant);
  charged.charge(kFirstTenant, 1);
  const auto other = charged.begin(kSecondTenant);
  charged.charge(kSecondTenant, 2);
  charged.charge(TenantId{3}, 2);  // of a request that has ended
  CHECK(charged.end(kFirstTenant, late) == Approx(0.2));
  CHECK(charged.end(kFirstTenant, early) == Approx(0.5));
  CHECK(charged.end(kSecondTenant, other) == Approx(0.5));
  const auto again = charged.begin(kFirstTenant);
  CHECK(charged.end(kFirstTenant, again) == 0);  // nothing was computed
}

}  // namespace troupe::actors
