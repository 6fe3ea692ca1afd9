// troupe model check: whether the models of a server still are what was loaded.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// The lines for a person.
[[nodiscard]] std::string checks_text(const std::vector<client::ModelCheck>& checks);
// Checks these models, or all, and prints what was found. Returns the exit code: kExitFailure if one is damaged or was
// not checked.
[[nodiscard]] Result<int> check_models(client::Client& client, std::span<const std::string> names, bool json);

}  // namespace troupe::cli
