#include "actors/saboteur.h"

#include <spdlog/spdlog.h>

#include <string>

#include "config/values.h"

namespace troupe::actors {
namespace {

struct Target {
  std::string_view name;
  std::optional<Role> role;
};
constexpr std::array kTargets{
    Target{"telemetry", Role::telemetry}, Target{"intake", Role::intake},       Target{"keeper", Role::keeper},
    Target{"worker", Role::worker},       Target{"drafter", Role::drafter},     Target{"batcher", Role::batcher},
    Target{"embedder", Role::embedder},   Target{"tokenizer", Role::tokenizer}, Target{"step", std::nullopt}};

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return &target;
  return nullptr;
}

std::string_view name_of(const std::optional<Role>& role) {
  for (const Target& target : kTargets)
    if (target.role == role) return target.name;
  return "?";
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
      const Target* target = find_target(take_until(value, '+'));
      if (!target) return false;
      plan.targets.push_back(target->role);
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
  if (plan.targets.empty())
    for (const Target& target : kTargets) plan.targets.push_back(target.role);
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
  const std::optional<Role>& target = plan_.targets[random_() % plan_.targets.size()];
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
