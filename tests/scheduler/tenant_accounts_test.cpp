#include "scheduler/shares/tenant_accounts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

Tenant tenant_with(TenantLimits limits, std::uint32_t uid = 1) {
  return {.id = TenantId{uid},
          .policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = {}, .limits = limits})};
}

const Tenant kPlain{.id = TenantId{7}};

}  // namespace

TEST_CASE("accounts: each tenant's live requests are counted apart, and choices are taken all or none") {
  TenantAccounts accounts(2);
  const Tenant other{.id = TenantId{8}};
  REQUIRE_FALSE(accounts.admit(kPlain, 1, 0));
  const auto refused = accounts.admit(kPlain, 2, 0);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max_requests_per_user");
  CHECK(refused->limit == 2);
  CHECK(refused->message ==
        "user 7 has 1 requests here, and may have 2 (max_requests_per_user); wait until one has ended");
  CHECK(accounts.live(kPlain.id) == 1);
  CHECK_FALSE(accounts.admit(other, 2, 0));
  CHECK_FALSE(accounts.admit(kPlain, 1, 0));
  CHECK(accounts.admit(kPlain, 3, 0)->retry_after == std::numeric_limits<double>::infinity());
  accounts.end(kPlain.id, true, 1);
  CHECK_FALSE(accounts.admit(kPlain, 1, 1));
  CHECK(accounts.live(TenantId{99}) == 0);
}

TEST_CASE(
    "accounts: guests with an owner's tenant leave it a part of its live requests, and places to what comes back") {
  TenantAccounts accounts(20);
  const Tenant owner{.id = kPlain.id, .is_owner = true};
  CHECK(accounts.most_live(kPlain, 0) == 20);
  REQUIRE_FALSE(accounts.admit(owner, 1, 0));
  CHECK(accounts.most_live(kPlain, 0) == 19);
  CHECK(accounts.most_live(owner, 0) == 20);
  CHECK_FALSE(accounts.admit(kPlain, 18, 0));
  const auto refused = accounts.admit(kPlain, 1, 0);
  REQUIRE(refused);
  CHECK(refused->message ==
        "user 7 has 19 requests here, and may have 20 (max_requests_per_user), 1 of them for the owner's; wait until "
        "one has ended");
  CHECK(accounts.admit(kPlain, 20, 0)->retry_after == std::numeric_limits<double>::infinity());
  CHECK_FALSE(accounts.admit(owner, 1, 0));
  REQUIRE(accounts.admit({owner, 5}, 1, 0));  // told to come back
  CHECK(accounts.most_live(kPlain, 1) == 18);
  CHECK(accounts.most_live({owner, 6, true}, 1) == 20);
}

TEST_CASE("accounts: waiting requests are refused beyond max_queued, with its name and value") {
  TenantAccounts accounts(100);
  const Tenant tenant = tenant_with({.max_queued = 3});
  REQUIRE_FALSE(accounts.queue(tenant, {.num_choices = 2}, 0));
  const auto refused = accounts.queue(tenant, {.num_choices = 2}, 0);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max-queued");
  CHECK(refused->limit == 3);
  CHECK(refused->message == "user 1 has 2 waiting requests, and may have 3 (max-queued); wait until some have begun");
  CHECK(refused->retry_after > 0.0);
  CHECK_FALSE(accounts.queue(tenant, {.num_choices = 1}, 0));
  accounts.unqueue(tenant.id, 2);
  CHECK_FALSE(accounts.queue(tenant, {.num_choices = 2}, 0));
  // A retry cannot make this succeed.
  CHECK(accounts.queue(tenant, {.num_choices = 4}, 0)->retry_after == std::numeric_limits<double>::infinity());
}

TEST_CASE("accounts: more answers to one request than max_choices are never taken") {
  TenantAccounts accounts(100);
  const Tenant tenant = tenant_with({.max_choices = 2});
  CHECK_FALSE(accounts.queue(tenant, {.num_choices = 2}, 0));
  const auto refused = accounts.queue(tenant, {.num_choices = 3}, 0);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max-choices");
  CHECK(refused->limit == 2);
  CHECK(refused->retry_after == std::numeric_limits<double>::infinity());
}

TEST_CASE("accounts: prompt tokens of a minute are taken once the prompt is known, and a retry in time succeeds") {
  TenantAccounts accounts(100);
  const Tenant tenant = tenant_with({.max_prompt_tokens_per_minute = 600});
  REQUIRE_FALSE(accounts.take_prompt(tenant, 500, 10));
  const auto refused = accounts.take_prompt(tenant, 150, 10);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max-prompt-tokens-per-minute");
  CHECK(refused->limit == 600);
  CHECK(refused->message ==
        "user 1 may send 600 prompt tokens in a minute (max-prompt-tokens-per-minute), of which 100 are left, and this "
        "takes 150; wait until enough are left");
  CHECK(refused->retry_after == 5.0);
  CHECK(accounts.take_prompt(tenant, 150, 14.99));
  CHECK_FALSE(accounts.take_prompt(tenant, 150, 15));
  accounts.give_back_prompt(tenant, 150, 15);
  CHECK_FALSE(accounts.take_prompt(tenant, 150, 15));
  CHECK_FALSE(accounts.take_prompt(tenant_with({.max_prompt_tokens_per_minute = 600}, 2), 600, 15));
  CHECK_FALSE(accounts.take_prompt(kPlain, 1'000'000, 15));
}

TEST_CASE("accounts: a prompt of more than a minute's tokens is refused for good, a text's estimate is not") {
  TenantAccounts accounts(100);
  const Tenant tenant = tenant_with({.max_prompt_tokens_per_minute = 600});
  const auto refused = accounts.queue(tenant, {.prompt_tokens = 601}, 0);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max-prompt-tokens-per-minute");
  CHECK(refused->retry_after == std::numeric_limits<double>::infinity());
  CHECK(refused->message.find("no retry can succeed") != std::string::npos);
  CHECK_FALSE(accounts.queue(tenant, {.prompt_tokens = 601, .is_estimate = true}, 0));
  CHECK(accounts.take_prompt(tenant, 601, 0)->retry_after == std::numeric_limits<double>::infinity());
  REQUIRE_FALSE(accounts.take_prompt(tenant, 1, 0));
  CHECK(accounts.queue(tenant, {.prompt_tokens = 601, .is_estimate = true}, 0)->retry_after == Approx(0.1));
  CHECK_FALSE(accounts.queue(tenant, {.prompt_tokens = 599}, 0));  // takes nothing yet
  CHECK_FALSE(accounts.take_prompt(tenant, 599, 0));
}

TEST_CASE("accounts: an answer goes on beyond its tenant's tokens, and new requests wait until that is made up for") {
  TenantAccounts accounts(100);
  const Tenant tenant = tenant_with({.max_answer_tokens_per_minute = 60});
  accounts.take_answer(tenant, 60, 0);
  CHECK_FALSE(accounts.queue(tenant, {}, 0));
  accounts.take_answer(tenant, 5, 0);
  const auto refused = accounts.queue(tenant, {}, 0);
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::quota);
  CHECK(refused->field == "max-answer-tokens-per-minute");
  CHECK(refused->limit == 60);
  CHECK(refused->retry_after == 5.0);
  CHECK_FALSE(accounts.queue(tenant, {.wants_answer = false}, 0));  // an Embed
  CHECK(accounts.queue(tenant, {}, 4.9));
  CHECK_FALSE(accounts.queue(tenant, {}, 5));
  accounts.take_answer(tenant, 1'000'000, 5);
  CHECK(accounts.queue(tenant, {}, 5)->retry_after == kLongestDebtSeconds);
}

TEST_CASE("accounts: a limit of 0 refuses for good what it is about") {
  TenantAccounts accounts(100);
  CHECK(accounts.queue(tenant_with({.max_running = 0}), {}, 0)->field == "max-running");
  CHECK_FALSE(accounts.queue(tenant_with({.max_running = 0}), {.wants_answer = false}, 0));
  CHECK(accounts.queue(tenant_with({.max_queued = 0}), {}, 0)->field == "max-queued");
  CHECK(accounts.queue(tenant_with({.max_answer_tokens_per_minute = 0}), {}, 0)->field ==
        "max-answer-tokens-per-minute");
  CHECK(accounts.take_prompt(tenant_with({.max_prompt_tokens_per_minute = 0}), 1, 0)->retry_after ==
        std::numeric_limits<double>::infinity());
}

TEST_CASE("accounts: new rules take effect with the next request, and old requests bring no old limit back") {
  TenantAccounts accounts(100);
  const Tenant before = tenant_with({.max_answer_tokens_per_minute = 6000});
  const Tenant after = tenant_with({.max_answer_tokens_per_minute = 60});
  accounts.take_answer(before, 1, 0);
  CHECK_FALSE(accounts.queue(after, {}, 0));
  accounts.take_answer(before, 100, 0);
  CHECK(accounts.queue(after, {}, 0)->retry_after == 40.0);
  CHECK_FALSE(accounts.queue(tenant_with({}), {}, 0));  // no limit any more
}

TEST_CASE("accounts: the shared limits' refusals have a time that follows from how fast requests end") {
  TenantAccounts accounts(1000);
  Refusal refusal{.outcome = Outcome::quota, .message = {}, .field = {}, .limit = {}, .to_free = 0.05};
  accounts.set_retry_after(refusal, kPlain, 0);
  CHECK(refusal.retry_after == 1.0);  // nothing is known yet
  REQUIRE_FALSE(accounts.admit(kPlain, 20, 0));
  refusal.retry_after.reset();
  accounts.set_retry_after(refusal, kPlain, 12);
  CHECK(*refusal.retry_after > 8);  // nothing has ended in 12 seconds
  double now = 12;
  for (int i = 0; i < 200; ++i) {
    now += 0.25;
    accounts.end(kPlain.id, true, now);
    REQUIRE_FALSE(accounts.admit(kPlain, 1, now));
  }
  std::vector<double> waits;
  for (int i = 0; i < 3; ++i) {
    refusal.retry_after.reset();
    accounts.set_retry_after(refusal, kPlain, now);
    waits.push_back(*refusal.retry_after);
  }
  CHECK(waits[0] > 0.25);
  CHECK(waits[0] < 1);
  CHECK(waits[1] > waits[0] + 0.2);  // refused together, they come back one after another
  CHECK(waits[2] > waits[1] + 0.2);
  refusal.retry_after = 5;
  accounts.set_retry_after(refusal, kPlain, now);
  CHECK(refusal.retry_after == 5.0);
  for (int i = 0; i < 1000; ++i) {
    refusal.retry_after.reset();
    accounts.set_retry_after(refusal, kPlain, now);
  }
  CHECK(refusal.retry_after == kLongestRetrySeconds);
}

TEST_CASE("accounts: what ends before it is computed does not make retries earlier") {
  TenantAccounts accounts(10);
  REQUIRE_FALSE(accounts.admit(kPlain, 10, 0));
  for (int i = 0; i < 1000; ++i) {
    accounts.end(kPlain.id, false, 5);
    REQUIRE_FALSE(accounts.admit(kPlain, 1, 5));
  }
  CHECK(*accounts.admit(kPlain, 1, 5)->retry_after > 4);
}

TEST_CASE("accounts: nine of ten retries of what is refused together find a place") {
  // Every 20 seconds 60 requests arrive at once; 32 may be here, and one ends every eighth of a second on average.
  int retries = 0, succeeded = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    TenantAccounts accounts(32);
    std::exponential_distribution<double> service(8);
    std::multimap<double, bool> arrivals;  // true: again
    for (int i = 0; i < 10 * 60; ++i) arrivals.emplace(20.0 * (i / 60), false);
    double next_end = 0;
    while (!arrivals.empty()) {
      const auto [at, again] = *arrivals.begin();
      if (accounts.live(kPlain.id) > 0 && next_end <= at) {
        accounts.end(kPlain.id, true, next_end);
        next_end += service(random);
        continue;
      }
      arrivals.erase(arrivals.begin());
      if (accounts.live(kPlain.id) == 0) next_end = at + service(random);
      const auto refused = accounts.admit(kPlain, 1, at);
      if (refused) arrivals.emplace(at + *refused->retry_after, true);
      if (!again || at < 20) continue;  // in the first seconds nothing is known
      ++retries;
      succeeded += refused ? 0 : 1;
    }
  }
  INFO(succeeded << " of " << retries);
  CHECK(retries > 2000);
  CHECK(succeeded > 0.9 * retries);
}

TEST_CASE("accounts: at twice what can be served nine of ten retries find a place, and what is served is no less") {
  constexpr double kServed = 8, kSeconds = 600;  // a second
  const auto limit = GENERATE(8u, 32u, 256u);
  int retries = 0, succeeded = 0;
  std::uint64_t ended = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    TenantAccounts accounts(limit);
    std::exponential_distribution<double> service(kServed), arrivals(2 * kServed);
    std::uniform_real_distribution<double> spread(1, 1.5);  // what clients add to the time that they are told
    std::multimap<double, std::uint64_t> waiting;           // retries, with their content
    double next_end = 0, next_arrival = 0;
    std::uint64_t last_content = 0;
    for (;;) {
      const bool again = !waiting.empty() && waiting.begin()->first < next_arrival;
      const double now = again ? waiting.begin()->first : next_arrival;
      if (now > kSeconds) break;
      if (accounts.live(kPlain.id) > 0 && next_end <= now) {
        accounts.end(kPlain.id, true, next_end);
        next_end += service(random);
        ++ended;
        continue;
      }
      if (!again) next_arrival += arrivals(random);
      const std::uint64_t content = again ? waiting.extract(waiting.begin()).mapped() : ++last_content;
      const bool came_back = accounts.comes_back(kPlain, content, now);
      if (accounts.live(kPlain.id) == 0) next_end = now + service(random);
      const auto refused = accounts.admit({kPlain, content, came_back}, 1, now);
      // A client gives up after the second refusal, and every second one after the first: else more would come back
      // than can be served.
      if (refused && !again && random() % 2 != 0)
        waiting.emplace(now + *refused->retry_after * spread(random), content);
      if (!again || now < 60) continue;
      ++retries;
      succeeded += refused ? 0 : 1;
    }
  }
  INFO("limit " << limit << ": " << succeeded << " of " << retries << " retries, " << ended << " ended");
  CHECK(retries > 5000);
  CHECK(succeeded > 0.9 * retries);
  CHECK(static_cast<double>(ended) > 0.95 * 3 * kServed * kSeconds);
}

TEST_CASE("accounts: at twice the prompt tokens of a minute nine of ten retries are taken, and none are left unused") {
  constexpr double kSeconds = 600;
  const Tenant tenant = tenant_with({.max_prompt_tokens_per_minute = 6000});
  int retries = 0, succeeded = 0;
  std::uint64_t taken = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    TenantAccounts accounts(10);
    std::exponential_distribution<double> arrivals(
        2);  // of 100 tokens each on average, of which 100 a second come back
    std::uniform_real_distribution<double> spread(1, 1.5);
    struct Retry {
      std::uint64_t content, tokens;
    };
    std::multimap<double, Retry> waiting;
    double next_arrival = 0;
    std::uint64_t last_content = 0;
    for (;;) {
      const bool again = !waiting.empty() && waiting.begin()->first < next_arrival;
      const double now = again ? waiting.begin()->first : next_arrival;
      if (now > kSeconds) break;
      if (!again) next_arrival += arrivals(random);
      const Retry request =
          again ? waiting.extract(waiting.begin()).mapped() : Retry{++last_content, random() % 199 + 1};
      const bool came_back = accounts.comes_back(tenant, request.content, now);
      const auto refused = accounts.take_prompt({tenant, request.content, came_back}, request.tokens, now);
      if (!refused) taken += request.tokens;
      if (refused && !again && random() % 2 == 0)
        waiting.emplace(now + *refused->retry_after * spread(random), request);
      if (!again || now < 120) continue;
      ++retries;
      succeeded += refused ? 0 : 1;
    }
  }
  INFO(succeeded << " of " << retries << " retries, " << taken << " tokens taken");
  CHECK(retries > 500);
  CHECK(succeeded > 0.9 * retries);
  CHECK(static_cast<double>(taken) > 0.95 * 3 * (6000 + 100 * kSeconds));
}

TEST_CASE("accounts: a new request leaves places to those that come back, and takes them where too few do") {
  TenantAccounts accounts(4);
  REQUIRE_FALSE(accounts.admit(kPlain, 4, 0));
  REQUIRE(accounts.admit({kPlain, 11}, 1, 0)->retry_after == 1.0);
  for (int i = 0; i < 2; ++i) accounts.end(kPlain.id, true, 0.5);
  REQUIRE_FALSE(accounts.admit({kPlain, 12}, 1, 0.6));  // one of the two is kept
  const auto refused = accounts.admit({kPlain, 13}, 1, 0.6);
  REQUIRE(refused);
  CHECK(refused->message ==
        "user 7 has 3 requests here, and may have 4 (max_requests_per_user), 1 of them for requests that were refused "
        "before; wait until one has ended");
  REQUIRE(accounts.comes_back(kPlain, 11, 1.1));
  REQUIRE_FALSE(accounts.admit({kPlain, 11, true}, 1, 1.1));
  for (std::uint64_t content = 20; content < 40; ++content) CHECK(accounts.admit({kPlain, content}, 1, 1.2));
  for (int i = 0; i < 3; ++i) accounts.end(kPlain.id, true, 1.3);
  CHECK_FALSE(accounts.admit({kPlain, 50}, 1, 1.4));  // half is for all
  CHECK(accounts.admit({kPlain, 51}, 1, 1.4));
  CHECK_FALSE(accounts.admit({kPlain, 51}, 1, 200));  // they have not come back
}

TEST_CASE("accounts: in any order of calls the counts and levels are those of a plain model") {
  struct Model {
    std::uint32_t queued = 0, live = 0;
    double prompt = 600, answer = 300;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    TenantAccounts accounts(12);
    const TenantLimits limits{
        .max_queued = 9, .max_prompt_tokens_per_minute = 600, .max_answer_tokens_per_minute = 300};
    std::map<std::uint32_t, Model> models;
    double now = 0;
    for (int i = 0; i < 4000; ++i) {
      const double passed = static_cast<double>(random() % 1000) / 1000;
      now += passed;
      for (auto& [uid, model] : models) {
        model.prompt = std::min(600.0, model.prompt + 10 * passed);
        model.answer = std::min(300.0, model.answer + 5 * passed);
      }
      const auto uid = static_cast<std::uint32_t>(random() % 3 + 1);
      const Tenant tenant = tenant_with(limits, uid);
      Model& model = models[uid];
      const auto count = static_cast<std::uint32_t>(random() % 4 + 1);
      const std::uint64_t tokens = random() % 200 + 1;
      // Where the model and the buckets differ in rounding only, either answer is right.
      const bool close = std::abs(model.prompt - static_cast<double>(tokens)) < 1e-5 || std::abs(model.answer) < 1e-5;
      switch (random() % 6) {
        case 0: {
          const bool fits =
              model.queued + count <= 9 && model.answer >= 0 && static_cast<double>(tokens) <= model.prompt;
          const auto refused = accounts.queue(tenant, {.num_choices = count, .prompt_tokens = tokens}, now);
          if (!close) REQUIRE(fits == !refused);
          if (!refused) model.queued += count;
          if (refused) REQUIRE(*refused->retry_after > 0);
          break;
        }
        case 1:
          if (model.queued > 0) accounts.unqueue(TenantId{uid}), --model.queued;
          break;
        case 2: {
          const auto refused = accounts.admit(tenant, count, now);
          REQUIRE((model.live + count <= 12) == !refused);
          if (!refused) model.live += count;
          break;
        }
        case 3:
          if (model.live > 0) accounts.end(TenantId{uid}, random() % 2 == 0, now), --model.live;
          break;
        case 4: {
          const auto refused = accounts.take_prompt(tenant, tokens, now);
          if (!close) REQUIRE((static_cast<double>(tokens) <= model.prompt) == !refused);
          if (!refused) model.prompt -= static_cast<double>(tokens);
          // A retry at the time that was said succeeds.
          if (refused) REQUIRE(*refused->retry_after >= (static_cast<double>(tokens) - model.prompt) / 10 - 1e-5);
          break;
        }
        default:
          accounts.take_answer(tenant, tokens / 4, now);
          model.answer -= static_cast<double>(tokens / 4);
      }
      REQUIRE(accounts.live(TenantId{uid}) == model.live);
    }
  }
}

TEST_CASE("accounts: tenants that hold nothing and whose buckets are full are forgotten") {
  TenantAccounts accounts(10);
  const TenantLimits limits{.max_prompt_tokens_per_minute = 60};
  const Tenant busy = tenant_with(limits, 1), in_debt = tenant_with({.max_answer_tokens_per_minute = 1}, 2);
  REQUIRE_FALSE(accounts.admit(busy, 10, 0));
  accounts.take_answer(in_debt, 1'000'000, 0);
  for (std::uint32_t uid = 1000; uid < 100'000; ++uid) {
    const Tenant guest = tenant_with(limits, uid);
    const double now = uid;  // a second later each: 60 buckets are not full
    REQUIRE_FALSE(accounts.queue(guest, {.prompt_tokens = 1}, now));
    REQUIRE_FALSE(accounts.take_prompt(guest, 60, now));
    accounts.unqueue(guest.id);
    REQUIRE(accounts.size() <= 2 * 63 + TenantAccounts::kMinAccounts);
  }
  CHECK(accounts.admit(busy, 1, 100'000));
  CHECK(accounts.queue(in_debt, {}, 100'000));
}
