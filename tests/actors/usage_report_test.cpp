#include "actors/requests/usage_report.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

using scheduler::Outcome;

UsageEntry entry_of(WorkKind kind, std::optional<Outcome> outcome, bool has_begun) {
  UsageEntry entry{.kind = kind, .outcome = outcome, .has_begun = has_begun};
  entry.usage.prompt_tokens = 10;
  entry.usage.cached_tokens = 4;
  entry.usage.completion_tokens = 7;
  entry.usage.cpu_seconds = 2;
  entry.usage.block_seconds = 3;
  return entry;
}

}  // namespace

TEST_CASE("usage: an end counts in one class, and its tokens by what was asked for") {
  const UsageCounts done = counts_of(entry_of(WorkKind::generate, Outcome::length, true));
  CHECK(done == UsageCounts{.done = 1,
                            .prompt_tokens = 10,
                            .cached_tokens = 4,
                            .answer_tokens = 7,
                            .cpu_seconds = 2,
                            .block_seconds = 3});
  const UsageCounts embed = counts_of(entry_of(WorkKind::embed, Outcome::eos, true));
  CHECK(embed == UsageCounts{.done = 1, .embed_tokens = 10, .cpu_seconds = 2, .block_seconds = 3});
  for (const Outcome outcome : {Outcome::cancelled, Outcome::deadline})
    CHECK(counts_of(entry_of(WorkKind::generate, outcome, true)).cancelled == 1);
  CHECK(counts_of(entry_of(WorkKind::generate, Outcome::worker_lost, true)).failed == 1);
  const UsageCounts refused = counts_of(entry_of(WorkKind::generate, Outcome::quota, false));
  CHECK(refused.refused == 1);
  CHECK(refused.prompt_tokens == 0);
}

TEST_CASE("usage: what is charged after an end is no request") {
  CHECK(counts_of(entry_of(WorkKind::generate, std::nullopt, false)) ==
        UsageCounts{.cpu_seconds = 2, .block_seconds = 3});
}

TEST_CASE("usage: a tenant is a uid, or above all uids the name that its rules give it") {
  CHECK(usage_tenant({.id = TenantId{1000}}) == UsageTenant{.uid = 1000, .name = {}});
  const auto policy =
      std::make_shared<const scheduler::TenantPolicy>(scheduler::TenantPolicy{.name = "lab", .limits = {}});
  CHECK(usage_tenant({.id = TenantId{(1ull << 32) + 3}, .policy = policy}) == UsageTenant{.uid = {}, .name = "lab"});
  CHECK(usage_tenant({.id = TenantId{1000}, .policy = policy}).uid == 1000u);
}

TEST_CASE("usage: hours begin at whole hours of UTC") {
  CHECK(begin_of_hour(7199) == 3600);
  CHECK(begin_of_hour(7200) == 7200);
  CHECK(begin_of_hour(0) == 0);
}

}  // namespace troupe::actors
