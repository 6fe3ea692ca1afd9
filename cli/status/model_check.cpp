#include "cli/status/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"

namespace troupe::cli {

std::string checks_text(const std::vector<client::ModelCheck>& checks) {
  std::string text;
  for (const client::ModelCheck& check : checks) {
    const std::string problem = Printable(check.problem, kMaxMessageBytes).text();
    if (check.seconds == 0 && !check.problem.empty()) {
      text += fmt::format("{}: not checked: {}\n", Printable(check.model).text(), problem);
      continue;
    }
    text += fmt::format(
        "{}: canary {}, checksums {}, {} checked in {:.2f} s, file {}{}\n", Printable(check.model).text(),
        check.canary_ok ? "ok" : "DIFFERS", check.weights_ok ? "ok" : "DIFFER", human_bytes(check.bytes), check.seconds,
        check.file_change.empty() ? "unchanged" : "CHANGED: " + Printable(check.file_change, kMaxMessageBytes).text(),
        problem.empty() ? std::string() : "; it was taken out: " + problem);
  }
  return text;
}

Result<int> check_models(client::Client& client, std::span<const std::string> names, bool json) {
  const auto checks = client.check_models({names.begin(), names.end()});
  if (!checks) return checks.error();
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const client::ModelCheck& check : *checks)
      all.push_back({{"model", check.model},
                     {"canary_ok", check.canary_ok},
                     {"weights_ok", check.weights_ok},
                     {"bytes", check.bytes},
                     {"seconds", check.seconds},
                     {"file_changed", !check.file_change.empty()},
                     {"file_change", check.file_change},
                     {"problem", check.problem}});
    write_json({{"checks", std::move(all)}}, std::cout);
  } else {
    std::cout << checks_text(*checks);
  }
  const bool all_well =
      std::ranges::all_of(*checks, [](const client::ModelCheck& each) { return each.problem.empty(); });
  return all_well ? kExitOk : kExitFailure;
}

}  // namespace troupe::cli
