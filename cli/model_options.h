// From the options that name and load a model to what the engine takes.
#pragma once

#include <cstdint>
#include <string>

#include "actors/gateway.h"
#include "config/options.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::cli {

// The file of -m, else the embedded model: beside the installed binary, else in the source tree that it was built from.
// Error: model_missing, when the embedded model is in neither place.
[[nodiscard]] Result<std::string> model_path(const config::Options& options);

// How to load it; `team` and `progress` stay empty; lines about loading go to the log. Error: for a kernel variant that
// does not exist or that this CPU cannot run, or a number of positions that no block ends at, invalid_argument from the
// command line, bad_config from a variable or a file; for a weights cache without a home, invalid_argument.
[[nodiscard]] Result<engine::LoadOptions> load_options(const config::Parsed& parsed);

// A gateway's options with both filled in, the rest its defaults. Error: as either.
[[nodiscard]] Result<actors::GatewayOptions> gateway_for_model(const config::Parsed& parsed);

// --threads, or the engine's default.
[[nodiscard]] std::uint32_t num_threads(const config::Options& options);

}  // namespace troupe::cli
