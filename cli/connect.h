// How the subcommands that talk to a server reach it.
#pragma once

#include <memory>
#include <string>

#include "config/options.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// As Client::connect with --socket and --no-strict-modes; `name` is for the server's log, and for a warning on stderr
// where the latter let pass what would have been refused.
[[nodiscard]] Result<std::unique_ptr<client::Client>> connect(const config::Options& options, const std::string& name);

}  // namespace troupe::cli
