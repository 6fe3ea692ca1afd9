#include "scheduler/shares/model_rights.h"

#include <catch2/catch.hpp>
#include <memory>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

Tenant with_models(std::vector<std::string> models) {
  return {.id = TenantId{1000},
          .policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = "lab", .models = std::move(models)})};
}
Tenant that_may(MayLoad may_load, bool is_owner = false) {
  return {.id = TenantId{1000},
          .is_owner = is_owner,
          .policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = "lab", .may_load = may_load})};
}

}  // namespace

TEST_CASE("model rights: a pattern's * stands for any characters") {
  CHECK(matches_model("qwen", "qwen"));
  CHECK_FALSE(matches_model("qwen", "qwen3"));
  CHECK_FALSE(matches_model("qwen3", "qwen"));
  CHECK_FALSE(matches_model("Qwen", "qwen"));
  CHECK(matches_model("*", ""));
  CHECK(matches_model("*", "anything"));
  CHECK(matches_model("qwen*", "qwen"));
  CHECK(matches_model("qwen*-q8", "qwen3-0.6b-q8"));
  CHECK_FALSE(matches_model("qwen*-q8", "qwen3-0.6b-q4"));
  CHECK(matches_model("*b-q*", "qwen3-b-0.6b-q8"));
  CHECK(matches_model("**a*b**", "xaxbx"));
  CHECK_FALSE(matches_model("*a*b", "xaxbx"));
  CHECK(matches_model("", ""));
  CHECK_FALSE(matches_model("", "a"));
}

TEST_CASE("model rights: a pattern of many stars takes no longer than its length times that of the name") {
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  CHECK_FALSE(matches_model(pattern + "b", std::string(4000, 'a')));
}

TEST_CASE("model rights: a tenant uses the models that its rule names, by name or alias") {
  const std::vector<std::string> names = {"qwen3", "default"};
  CHECK(may_use({.id = TenantId{1000}}, names));
  CHECK(may_use(with_models({}), names));
  CHECK(may_use(with_models({"llama", "def*"}), names));
  CHECK_FALSE(may_use(with_models({"llama", "qwen"}), names));
  Tenant owner = with_models({"llama"});
  owner.is_owner = true;
  CHECK(may_use(owner, names));
  CHECK(may_use(with_models({"def*"}), "qwen3", std::vector<std::string>{"default"}));
  CHECK(may_use(with_models({"qwen*"}), "qwen3", {}));
  CHECK_FALSE(may_use(with_models({"def*"}), "qwen3", {}));
}

TEST_CASE("model rights: the owner and its groups have models loaded, others as their rule says") {
  const Tenant other{.id = TenantId{1000}}, owner{.id = TenantId{0}, .is_owner = true};
  const Tenant member{.id = TenantId{1000}, .in_owner_group = true};
  CHECK(may_load(owner) == MayLoad::turns);
  CHECK(may_load(other) == MayLoad::idle);
  CHECK(may_load(member) == MayLoad::turns);
  CHECK(may_load(that_may(MayLoad::idle)) == MayLoad::idle);
  Tenant never = that_may(MayLoad::never);
  never.in_owner_group = true;
  CHECK(may_load(never) == MayLoad::never);
  CHECK(may_load(that_may(MayLoad::never, true)) == MayLoad::turns);
}
