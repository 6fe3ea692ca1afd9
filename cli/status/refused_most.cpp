#include "cli/status/refused_most.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace troupe::cli {
namespace {

constexpr std::size_t kMostRefusals = 3;  // of tenants, and of the reasons of each

std::string label_of(const Metric& metric, std::string_view name) {
  for (const auto& [label, value] : metric.labels)
    if (label == name) return value;
  return "";
}

}  // namespace

std::vector<RefusedTenant> refused_most(const client::ServerStatus& s) {
  std::vector<RefusedTenant> all;
  const auto tenant_of = [&](const Metric& metric) -> RefusedTenant& {
    const std::string tenant = label_of(metric, "tenant");
    const auto found = std::ranges::find(all, tenant, &RefusedTenant::tenant);
    return found != all.end() ? *found : all.emplace_back(RefusedTenant{.tenant = tenant});
  };
  for (const Metric& metric : s.metrics) {
    const auto count = static_cast<std::uint64_t>(metric.value);
    if (metric.name == "tenant_requests_received") tenant_of(metric).received = count;
    if (metric.name == "tenant_requests_ended" && label_of(metric, "kind") == "refused")
      tenant_of(metric).refused = count;
    if (metric.name == "tenant_requests_refused")
      tenant_of(metric).reasons.emplace_back(label_of(metric, "limit"), count);
  }
  std::erase_if(all, [](const RefusedTenant& each) { return each.refused == 0; });
  std::ranges::stable_sort(all, std::greater<>(), &RefusedTenant::refused);
  for (RefusedTenant& each : all)
    std::ranges::stable_sort(each.reasons, std::greater<>(), &std::pair<std::string, std::uint64_t>::second);
  return all;
}

std::string tenant_name(const std::string& tenant, const std::function<std::string(std::uint32_t uid)>& user_name) {
  std::uint32_t uid = 0;
  const auto [end, error] = std::from_chars(tenant.data(), tenant.data() + tenant.size(), uid);
  return error == std::errc() && end == tenant.data() + tenant.size() ? user_name(uid) : tenant;
}

std::string refused_text(const client::ServerStatus& s,
                         const std::function<std::string(std::uint32_t uid)>& user_name) {
  std::vector<std::string> shown;
  const std::vector<RefusedTenant> all = refused_most(s);
  for (std::size_t i = 0; i < std::min(all.size(), kMostRefusals); ++i) {
    std::vector<std::string> reasons;
    for (std::size_t j = 0; j < std::min(all[i].reasons.size(), kMostRefusals); ++j)
      reasons.push_back(fmt::format("{} {}", all[i].reasons[j].first, all[i].reasons[j].second));
    shown.push_back(fmt::format("{} {} of {}{}", tenant_name(all[i].tenant, user_name), all[i].refused, all[i].received,
                                reasons.empty() ? "" : fmt::format(" ({})", fmt::join(reasons, ", "))));
  }
  if (all.size() > kMostRefusals) shown.push_back(fmt::format("{} others", all.size() - kMostRefusals));
  return fmt::format("{}", fmt::join(shown, "; "));
}

}  // namespace troupe::cli
