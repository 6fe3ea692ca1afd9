#include "actors/models/memory_budget.h"

#include <catch2/catch.hpp>

#include "actors/models/model_catalog.h"

namespace troupe::actors {
namespace {

using Catch::Matchers::Contains;

constexpr std::uint64_t kMiB = 1u << 20;

MemoryDemand demand(std::string name, std::uint64_t mebibytes, std::uint64_t limit = 0) {
  return {.model = std::move(name), .weights = mebibytes * kMiB, .limit = limit * kMiB};
}

TEST_CASE("memory budget: a demand that turns out to be another one is claimed anew, or refused") {
  MemoryBudget budget(100);
  const auto part = budget.may_come({.model = "a", .weights = 20});
  const auto other = budget.may_come({.model = "b", .weights = 50});
  REQUIRE(part->claim());
  REQUIRE(other->claim());
  REQUIRE(part->change_demand({.model = "a", .weights = 45}));
  CHECK(budget.left() == 5);
  CHECK_FALSE(part->change_demand({.model = "a", .weights = 51}));
  CHECK(budget.left() == 5);
  CHECK(part->demand().least() == 45);
  REQUIRE(part->change_demand({.model = "a", .weights = 10}));
  CHECK(budget.left() == 40);
}

TEST_CASE("memory budget: a model on request takes no more of the rest than cache for three more sequences") {
  MemoryBudget budget(1000);
  const auto part = budget.may_come({.model = "a", .weights = 100, .cache = 10});
  REQUIRE(part->claim());
  CHECK(*part->reserve() == 140);
  const auto large = budget.may_come({.model = "b", .weights = 100, .cache = 200});
  REQUIRE(large->claim());
  CHECK(*large->reserve() == 400);  // no more than its weights
}

TEST_CASE("memory budget: the only model gets all of it where that is too little: the loader says of what") {
  MemoryBudget budget(100 * kMiB);
  const auto part = budget.expect(demand("a", 200));
  const auto bytes = part->reserve();
  REQUIRE(bytes);
  CHECK(*bytes == 100 * kMiB);
  CHECK(budget.left() == 0);
  CHECK(part_of_only_model(200 * kMiB, 100 * kMiB) == 100 * kMiB);
}

TEST_CASE("memory budget: the only model leaves a share for one that is loaded later, and so does that one") {
  MemoryBudget budget(100 * kMiB);
  const auto a = budget.expect(demand("a", 20));
  CHECK(*a->reserve() == 60 * kMiB);
  CHECK(part_of_only_model(20 * kMiB, 100 * kMiB) == 60 * kMiB);
  const auto b = budget.expect(demand("b", 30));
  CHECK(*b->reserve() == 35 * kMiB);
  const auto c = budget.expect(demand("c", 1, 5));
  CHECK(*c->reserve() == 5 * kMiB);
  CHECK(budget.left() == 0);
}

TEST_CASE("memory budget: a model beside one whose load failed is the only one") {
  MemoryBudget budget(100 * kMiB);
  const auto failed = budget.expect(demand("a", 10));
  REQUIRE(failed->reserve());
  failed->settle(0);
  const auto part = budget.expect(demand("a", 200));
  const auto bytes = part->reserve();
  REQUIRE(bytes);
  CHECK(*bytes == 100 * kMiB);
}

TEST_CASE(
    "memory budget: one that is loaded in the place of another has that one's bytes in the moment they come back") {
  MemoryBudget budget(100 * kMiB);
  auto old = budget.expect(demand("a", 50, 50));
  REQUIRE(old->reserve());
  const auto heir = budget.expect(demand("a", 80, 80));
  CHECK_FALSE(heir->claim());
  REQUIRE(heir->claim_behind({old}));
  CHECK(budget.left() == 0);
  const auto other = budget.expect(demand("x", 1));
  CHECK_FALSE(other->claim());
  CHECK_THAT(heir->reserve().error().message, Contains("model a is to have 80 MiB"));  // the old one is there still
  old = nullptr;
  REQUIRE(heir->reserve());
  CHECK(heir->bytes() == 80 * kMiB);
  CHECK(budget.left() == 20 * kMiB);

  const auto never = budget.expect(demand("a", 120, 120));
  CHECK_THAT(never->claim_behind({heir}).error().message, Contains("99 MiB of the memory budget of 100 MiB are left"));
  CHECK(budget.left() == 20 * kMiB);
  CHECK(other->claim());
}

TEST_CASE("memory budget: what is waited for is one model's alone, and may come back in another way") {
  MemoryBudget budget(100 * kMiB);
  auto old = budget.expect(demand("a", 50, 50));
  REQUIRE(old->reserve());
  const auto heir = budget.expect(demand("a", 80, 80));
  REQUIRE(heir->claim_behind({old}));
  {
    const auto second = budget.expect(demand("a", 60, 60));
    CHECK_FALSE(second->claim_behind({old}));
  }
  old->settle(10 * kMiB);
  REQUIRE(heir->reserve());
  CHECK(heir->bytes() == 80 * kMiB);
  old = nullptr;
  CHECK(heir->bytes() == 80 * kMiB);
  CHECK(budget.left() == 20 * kMiB);
}

TEST_CASE("memory budget: who is to inherit and goes first leaves nothing behind, and the only model gets all") {
  MemoryBudget budget(100 * kMiB);
  auto old = budget.expect(demand("a", 200));
  CHECK(*old->reserve() == 100 * kMiB);
  {
    const auto heir = budget.expect(demand("a", 150));
    REQUIRE(heir->claim_behind({old}));
  }
  const auto heir = budget.expect(demand("a", 150));
  REQUIRE(heir->claim_behind({old}));
  old = nullptr;
  const auto bytes = heir->reserve();
  REQUIRE(bytes);
  CHECK(*bytes == 100 * kMiB);
}

TEST_CASE("memory budget: nothing is left for a model that may come, until it is claimed") {
  MemoryBudget budget(100 * kMiB);
  const auto first = budget.may_come(demand("first", 80)), second = budget.may_come(demand("second", 80));
  const auto a = budget.expect(demand("a", 20));
  CHECK(*a->reserve() == 60 * kMiB);
  CHECK_FALSE(first->claim());
  a->settle(20 * kMiB);
  CHECK(first->claim());
  CHECK(first->bytes() == 80 * kMiB);
  CHECK(budget.left() == 0);
  const Status no = second->claim();
  REQUIRE_FALSE(no);
  CHECK_THAT(no.error().message, Contains("first has 80 MiB"));
}

TEST_CASE("memory budget: what is claimed is kept, and shares are divided when loads begin") {
  MemoryBudget budget(100 * kMiB);
  const auto a = budget.expect(demand("a", 10)), b = budget.expect(demand("b", 20)), c = budget.expect(demand("c", 30));
  REQUIRE(a->claim());
  REQUIRE(b->claim());
  REQUIRE(a->claim());
  CHECK(budget.left() == 70 * kMiB);
  CHECK(*a->reserve() == (10 + (100 - 10 - 20 - 30) / 4) * kMiB);
  CHECK(*a->reserve() == 20 * kMiB);
  REQUIRE(c->claim());
  CHECK(*b->reserve() == (20 + 10) * kMiB);
  const auto d = budget.expect(demand("d", 21));
  const auto refused = d->claim();
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message,
             Contains("20 MiB of the memory budget of 100 MiB are left: a has 20 MiB, b has "));
  b->settle(0);  // it could not be loaded
  CHECK(d->claim());
  CHECK(*c->reserve() == 30 * kMiB + (100 - 20 - 30 - 21) * kMiB / 3);
}

TEST_CASE("memory budget: models that wait keep what they need, and share the rest in equal parts") {
  MemoryBudget budget(100 * kMiB);
  const auto a = budget.expect(demand("a", 20)), b = budget.expect(demand("b", 30)),
             c = budget.expect(demand("c", 5, 10));
  const std::uint64_t rest = 100 - 20 - 30 - 10;
  CHECK(*a->reserve() == 20 * kMiB + rest * kMiB / 3);  // the third is of one that is loaded later
  a->settle(25 * kMiB);                                 // what it does not use goes to the others
  CHECK(*b->reserve() == 30 * kMiB + (100 - 25 - 30 - 10) * kMiB / 2);
  b->settle(40 * kMiB);
  CHECK(*c->reserve() == 10 * kMiB);
  CHECK(budget.left() == 25 * kMiB);
}

TEST_CASE("memory budget: two loads cannot take the same bytes, and what does not fit is refused with the numbers") {
  MemoryBudget budget(100 * kMiB);
  const auto a = budget.expect(demand("a", 60)), b = budget.expect(demand("b", 60));
  CHECK(*a->reserve() == 80 * kMiB);  // b does not fit beside it, so nothing is kept for b
  a->settle(70 * kMiB);
  const auto refused = b->reserve();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::out_of_memory);
  CHECK_THAT(refused.error().message, Contains("model b needs 60 MiB (weights 60 MiB") &&
                                          Contains("30 MiB of the memory budget of 100 MiB are left: a has 70 MiB"));
  CHECK(budget.left() == 30 * kMiB);
  const auto limited = budget.expect(demand("c", 1, 31));
  const auto too_much = limited->reserve();
  REQUIRE_FALSE(too_much);
  CHECK_THAT(too_much.error().message, Contains("model c is to have 31 MiB"));
}

TEST_CASE("memory budget: models that came first are refused last, whichever is loaded first") {
  MemoryBudget budget(100 * kMiB);
  const auto a = budget.expect(demand("a", 50)), b = budget.expect(demand("b", 40)), c = budget.expect(demand("c", 20));
  const auto refused = c->reserve();
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Contains("10 MiB of the memory budget of 100 MiB are left: a waits for 50 MiB, "
                                               "b waits for 40 MiB"));
  CHECK(*b->reserve() == 40 * kMiB + 10 * kMiB / 3);  // c still waits, and does not fit
  CHECK(*a->reserve() == 50 * kMiB + (10 * kMiB - 10 * kMiB / 3) / 2);
}

TEST_CASE("memory budget: a part is given back when its last holder goes, also after the budget") {
  auto budget = std::make_unique<MemoryBudget>(100 * kMiB);
  auto a = budget->expect(demand("a", 60));
  REQUIRE(a->reserve());
  auto b = budget->expect(demand("b", 60));
  a = nullptr;
  CHECK(budget->left() == 100 * kMiB);
  CHECK(*b->reserve() == 80 * kMiB);
  budget = nullptr;
  b->settle(kMiB);
}

TEST_CASE("catalog: a file's model is known before it is loaded: its name, what it needs, or why it cannot be loaded") {
  const std::string tales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
  const CatalogEntry entry = describe({.path = tales});
  CHECK_FALSE(entry.problem);
  CHECK(entry.name == entry.demand.model);
  CHECK(entry.file);
  CHECK(entry.demand.weights > kMiB);
  CHECK(entry.demand.cache == 32 * 98304);  // its 1,024 positions
  CHECK(describe({.path = tales, .name = "mine"}).name == "mine");
  const CatalogEntry with_draft = describe({.path = tales, .draft_path = TROUPE_MODELS "/tales-draft-q8_0.gguf"});
  CHECK(with_draft.demand.weights > entry.demand.weights);
  CHECK(with_draft.draft_file);
  const CatalogEntry encoder = describe({.path = TROUPE_TEST_DATA "/tiny-bert.gguf"});
  CHECK_FALSE(encoder.problem);
  CHECK(encoder.demand.cache == 0);

  const CatalogEntry missing = describe({.path = "/nowhere/lost.gguf"});
  CHECK(missing.name == "lost");
  REQUIRE(missing.problem);
  CHECK(missing.problem->code == ErrorCode::model_missing);
  const CatalogEntry variant = describe({.path = tales, .load = {.kernels = "abacus"}});
  REQUIRE(variant.problem);
  CHECK(variant.problem->code == ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace troupe::actors
