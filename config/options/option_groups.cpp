#include "config/options/option_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/options/values.h"

namespace troupe::config {

Status check_ranges_of(std::uint32_t kept_group, const Options& options) {
  for (const Option& option : option_table()) {
    if ((option.kept_groups & kept_group) == 0 || is_in_range(option, options)) continue;
    std::string name(option.name);
    std::replace(name.begin(), name.end(), '-', '_');
    return Error{ErrorCode::invalid_argument, fmt::format("{} is {}; it must be {}", name,
                                                          to_texts(option, options).front(), describe_range(option))};
  }
  return Ok{};
}

void copy_reloadable_of(std::uint32_t kept_group, const Options& from, Options& to) {
  for (const Option& option : option_table())
    if ((option.kept_groups & kept_group) != 0 && option.changes == Changes::by_reload)
      std::visit([&](const auto field) { to.*field = from.*field; }, option.field);
}

}  // namespace troupe::config
