#include "config/sampling/model_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/printable.h"
#include "config/utf8.h"

namespace troupe::config {
namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
constexpr std::int64_t kMaxBudget = 1 << 24;

}  // namespace

std::span<const std::string_view> reasoning_efforts() { return kEfforts; }

std::string problem_of(const ModelDefaults& defaults) {
  std::string problem;
  for_each_sampling_number(
      [&](const SamplingNumber& number, const auto& value) {
        if (value && problem.empty() && !is_in_range(number, static_cast<double>(*value)))
          problem = fmt::format("{} is {}; it must be {}", number.option, *value, number.range);
      },
      defaults);
  if (!problem.empty()) return problem;
  if (!defaults.reasoning.empty() && std::ranges::find(kEfforts, defaults.reasoning) == std::end(kEfforts))
    return fmt::format("reasoning is '{}'; it may be {}", Printable(defaults.reasoning).text(),
                       fmt::join(kEfforts, ", "));
  if (const auto& budget = defaults.reasoning_budget; budget && !(*budget >= 0 && *budget <= kMaxBudget))
    return fmt::format("reasoning-budget is {}; it may be from 0 to {}", *budget, kMaxBudget);
  if (defaults.system.size() > kMaxSystemPromptBytes)
    return fmt::format("system has {} bytes; it may have {}", defaults.system.size(), kMaxSystemPromptBytes);
  if (!is_utf8(defaults.system)) return "system is no UTF-8";
  return {};
}

ModelDefaults with_fallback(ModelDefaults own, const ModelDefaults& others) {
  const auto fill = [](auto& value, const auto& other) {
    if (!value) value = other;
  };
  for_each_sampling_number([&](const SamplingNumber&, auto& value, const auto& other) { fill(value, other); }, own,
                           others);
  fill(own.reasoning_budget, others.reasoning_budget);
  if (own.reasoning.empty()) own.reasoning = others.reasoning;
  if (own.system.empty()) own.system = others.system;
  return own;
}

}  // namespace troupe::config
