#include "actors/saboteur.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/options/values.h"

namespace troupe::actors {
namespace {

using Target = std::optional<Role>;  // nullopt: the next step

constexpr std::string_view kStepName = "step";

std::string_view name_of(const Target& target) { return target ? info(*target).name : kStepName; }

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const RoleInfo& each : kRoles) all.emplace_back(each.role);
  all.emplace_back(std::nullopt);
  return all;
}

// Removes the text up to the first `separator`, and the separator; returns that text.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return head;
}

bool set(KillPlan& plan, std::string_view key, std::string_view value) {
  if (key == "period") {
    const auto period = config::parse_duration(value);
    if (!period || *period < std::chrono::milliseconds(10)) return false;
    plan.period = *period;
  } else if (key == "seed") {
    const auto seed = config::parse_integer(value);
    if (!seed) return false;
    plan.seed = static_cast<std::uint64_t>(*seed);
  } else if (key == "targets") {
    while (!value.empty()) {
      const std::vector<Target> all = all_targets();
      const auto target = std::ranges::find(all, take_until(value, '+'), name_of);
      if (target == all.end()) return false;
      plan.targets.push_back(*target);
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<KillPlan> parse_kill_plan(std::string_view text) {
  const auto wrong = [&](const std::string& part) {
    return Error{ErrorCode::bad_config, "TROUPE_TEST_KILL: '" + part +
                                            "' cannot be used; write period=TIME (at least 10ms), then seed=N and "
                                            "targets=NAME+NAME if you like, separated by commas"};
  };
  KillPlan plan;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = take_until(rest, ',');
    std::string_view value = part;
    const std::string_view key = take_until(value, '=');
    if (!set(plan, key, value)) return wrong(std::string(part));
  }
  if (plan.period.count() == 0) return wrong(std::string(text));
  if (plan.targets.empty()) plan.targets = all_targets();
  return plan;
}

Saboteur::Saboteur(caf::actor_config& cfg, KillPlan plan, caf::actor supervisor,
                   std::shared_ptr<std::atomic<bool>> break_step)
    : ActorBase(cfg, "saboteur"),
      plan_(std::move(plan)),
      supervisor_(std::move(supervisor)),
      break_step_(std::move(break_step)),
      random_(plan_.seed) {}

caf::behavior Saboteur::make_behavior() {
  spdlog::warn("TROUPE_TEST_KILL is set: this server breaks itself about every {} ms (seed {})", plan_.period.count(),
               plan_.seed);
  set_timer();
  return {[this](const msg::Restart&) {
    break_target();
    set_timer();
  }};
}

void Saboteur::break_target() {
  const Target& target = plan_.targets[random_() % plan_.targets.size()];
  spdlog::warn("TROUPE_TEST_KILL: breaks the {}", name_of(target));
  if (target) {
    send(supervisor_, msg::Crash{*target});
  } else {
    *break_step_ = true;
  }
}

void Saboteur::set_timer() {
  const auto period = static_cast<std::uint64_t>(plan_.period.count());
  delayed_send(this, std::chrono::milliseconds(period / 2 + random_() % (period + 1)), msg::Restart{});
}

}  // namespace troupe::actors
