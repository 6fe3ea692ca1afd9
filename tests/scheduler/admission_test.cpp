#include "scheduler/shares/admission.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/ids.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

Demand demand(std::uint32_t prompt_tokens, std::uint32_t max_tokens = kUnlimitedTokens) {
  return {.tenant = TenantId{1}, .prompt_tokens = prompt_tokens, .max_tokens = max_tokens};
}

std::uint32_t fits(const Demand& d, const Capacity& capacity) {
  const auto answer = check_fit(d, capacity);
  REQUIRE(std::holds_alternative<Fits>(answer));
  return std::get<Fits>(answer).max_known;
}

Refusal refused(const Demand& d, const Capacity& capacity) {
  const auto answer = check_fit(d, capacity);
  REQUIRE(std::holds_alternative<Refusal>(answer));
  return std::get<Refusal>(answer);
}

}  // namespace

TEST_CASE("a request that fits ends at its limit, or at the context") {
  const Capacity capacity{.context = 1000, .groups = {{.num_blocks = 100}}};
  REQUIRE(fits(demand(10, 20), capacity) == 30);
  REQUIRE(fits(demand(10, 5000), capacity) == 1000);
  REQUIRE(fits(demand(10), capacity) == 1000);
  REQUIRE(fits(demand(999), capacity) == 1000);
}

TEST_CASE("a prompt that leaves no room for an answer is too long, and the message says by how much") {
  const Refusal refusal = refused(demand(1000), {.context = 1000, .groups = {{.num_blocks = 100}}});
  REQUIRE(refusal.outcome == Outcome::too_long);
  REQUIRE(refusal.field == "prompt");
  REQUIRE(refusal.limit == 1000);
  REQUIRE(refusal.message.find("999") != std::string::npos);
  REQUIRE(refused(demand(0xffffffffu), {.context = 1000, .groups = {{.num_blocks = 100}}}).outcome ==
          Outcome::too_long);
}

TEST_CASE("a request that needs more blocks than there are never fits, and the message has the numbers") {
  const Capacity capacity{.context = 10000, .groups = {{.num_blocks = 4}}};
  const Refusal refusal = refused(demand(100, 30), capacity);  // 129 computed tokens: 5 blocks
  REQUIRE(refusal.outcome == Outcome::never_fits);
  REQUIRE(refusal.field == "max_tokens");
  REQUIRE(refusal.limit == 4);
  REQUIRE(refusal.message.find(" 5 KV blocks") != std::string::npos);
  REQUIRE(fits(demand(100, 29), capacity) == 129);  // the last token is never computed
  REQUIRE(refused(demand(129, 1), capacity).field == "prompt");
  REQUIRE(refused(demand(129), capacity).outcome == Outcome::never_fits);
}

TEST_CASE("window blocks bound a request only where they do not suffice for a window that moves on") {
  Capacity capacity{.context = 10000, .groups = {{.num_blocks = 100}, {.num_blocks = 3, .window = 65}}};
  REQUIRE(fits(demand(100, 1000), capacity) == 1100);
  capacity.groups[1].num_blocks = 2;
  REQUIRE(refused(demand(100, 1000), capacity).outcome == Outcome::never_fits);
  REQUIRE(refused(demand(100, 1000), capacity).limit == 2);
  REQUIRE(fits(demand(60), capacity) == 65);
}

TEST_CASE("the smallest group without blocks enough for its window bounds a request") {
  Capacity capacity{.context = 10000,
                    .groups = {{.num_blocks = 100}, {.num_blocks = 3, .window = 65}, {.num_blocks = 5, .window = 129}}};
  REQUIRE(fits(demand(100, 1000), capacity) == 1100);
  capacity.groups[2].num_blocks = 4;
  REQUIRE(refused(demand(100, 1000), capacity).limit == 4);
  capacity.groups[1].num_blocks = 2;
  REQUIRE(refused(demand(100, 1000), capacity).limit == 2);
  REQUIRE(fits(demand(60), capacity) == 65);
  capacity.groups[1] = {.num_blocks = 1};  // another one without a window
  REQUIRE(refused(demand(60), capacity).limit == 1);
}

TEST_CASE("a request without max_tokens is cut to the blocks that there are") {
  REQUIRE(fits(demand(100), {.context = 10000, .groups = {{.num_blocks = 4}}}) == 129);
  REQUIRE(fits(demand(1), {.context = 0xffffffffu, .groups = {{.num_blocks = 0x7fffffffu}}}) == 0xffffffffu);
}

TEST_CASE("a request that fits has blocks for all tokens it may compute") {
  for (std::uint32_t blocks = 1; blocks <= 4; ++blocks)
    for (std::uint32_t prompt = 1; prompt <= 140; ++prompt)
      for (std::uint32_t max_tokens : {1u, 2u, 31u, 32u, 33u, kUnlimitedTokens}) {
        const auto answer = check_fit(demand(prompt, max_tokens), {.context = 130, .groups = {{.num_blocks = blocks}}});
        if (const auto* fit = std::get_if<Fits>(&answer)) {
          REQUIRE(fit->max_known > prompt);
          REQUIRE(fit->max_known <= 130);
          REQUIRE(blocks_for(fit->max_known - 1) <= blocks);
        } else {
          REQUIRE((prompt + 1 > 130 || blocks_for(prompt + std::min(max_tokens, 130u) - 1) > blocks));
        }
      }
}

TEST_CASE("an empty prompt and max_tokens 0 are refused by name") {
  REQUIRE(refused(demand(0), {.context = 10, .groups = {{.num_blocks = 10}}}).field == "prompt");
  REQUIRE(refused(demand(5, 0), {.context = 10, .groups = {{.num_blocks = 10}}}).field == "max_tokens");
  REQUIRE(refused(demand(5, 0), {.context = 10, .groups = {{.num_blocks = 10}}}).outcome == Outcome::invalid_argument);
}

TEST_CASE("a tenant is called by its rule's name, else by its uid") {
  const auto policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = "web"});
  const Tenant web{.id = named_tenant("web"), .policy = policy};
  REQUIRE(name_of(web) == "tenant web");
  REQUIRE(label_of(web) == "web");
  const Tenant user{.id = TenantId{1000}, .policy = std::make_shared<const TenantPolicy>(TenantPolicy{.weight = 2})};
  REQUIRE(name_of(user) == "user 1000");
  REQUIRE(label_of({.id = TenantId{4294967294u}}) == "4294967294");
}

TEST_CASE("the id of a named tenant lies above all uids and is the same in every run") {
  REQUIRE(static_cast<std::uint64_t>(named_tenant("web")) >> 32 == 1);
  REQUIRE(named_tenant("web") != named_tenant("bew"));
  REQUIRE(named_tenant("web") == TenantId{0x116d2ffe8u});
}

TEST_CASE("a tenant's max_context bounds prompt and answer together, and its name and value are in the refusal") {
  const Capacity capacity{.context = 1000, .groups = {{.num_blocks = 100}}};
  Demand asked = demand(10, 5000);
  asked.limits.max_context = 64;
  REQUIRE(fits(asked, capacity) == 64);
  asked.max_tokens = 54;
  REQUIRE(fits(asked, capacity) == 64);
  asked.max_tokens = kUnlimitedTokens;
  REQUIRE(fits(asked, capacity) == 64);
  asked.prompt_tokens = 63;
  REQUIRE(fits(asked, capacity) == 64);
  asked.prompt_tokens = 64;
  const Refusal refusal = refused(asked, capacity);
  REQUIRE(refusal.outcome == Outcome::too_long);
  REQUIRE(refusal.field == "max-context");
  REQUIRE(refusal.limit == 64);
  REQUIRE(refusal.message.find("at most 63") != std::string::npos);
  asked.limits.max_context = 2000;  // the model's context is smaller
  asked.prompt_tokens = 1500;
  REQUIRE(refused(asked, capacity).field == "prompt");
}

TEST_CASE("what does not fit below the tenant's ceiling, or beside what is kept for others, never fits") {
  const Capacity capacity{.context = 1000, .groups = {{.num_blocks = 10}}};
  const auto check = [&](std::uint32_t max_tokens, std::optional<std::uint32_t> ceiling, std::uint32_t of_others) {
    Demand demand{.prompt_tokens = 33, .max_tokens = max_tokens};
    demand.limits.max_kv_blocks = ceiling;
    demand.limits.others_min_kv_blocks = of_others;
    return check_fit(demand, capacity);
  };
  const auto max_known = [&](auto... limits) { return std::get<Fits>(check(limits...)).max_known; };
  REQUIRE(max_known(kUnlimitedTokens, std::nullopt, 0u) == 10 * kBlockSize + 1);
  REQUIRE(max_known(kUnlimitedTokens, 3u, 0u) == 3 * kBlockSize + 1);
  REQUIRE(max_known(kUnlimitedTokens, std::nullopt, 6u) == 4 * kBlockSize + 1);
  REQUIRE(max_known(kUnlimitedTokens, 3u, 6u) == 3 * kBlockSize + 1);
  REQUIRE(max_known(3 * kBlockSize + 1 - 33, 3u, 0u) == 3 * kBlockSize + 1);
  const auto above = std::get<Refusal>(check(3 * kBlockSize + 2 - 33, 3u, 0u));
  REQUIRE((above.outcome == Outcome::never_fits && above.limit == 3u && above.field == "max_tokens"));
  REQUIRE(above.message.find("max_kv_blocks") != std::string::npos);
  const auto kept = std::get<Refusal>(check(1, std::nullopt, 20u));
  REQUIRE((kept.outcome == Outcome::never_fits && kept.limit == 0u && kept.field == "prompt"));
  REQUIRE(kept.message.find("min_kv_blocks") != std::string::npos);
}
