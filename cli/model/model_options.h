// Converts the options that choose and load a model to the engine's options.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "actors/gateway.h"
#include "config/options/options.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::cli {

// The file of -m or -hf, which may be a name of the store (cli/store/find_model.h), else the embedded model: beside the
// installed binary, else in the source tree it was built from. Error: model_missing, if neither file exists, or no
// model of the name; invalid_argument for several models.
[[nodiscard]] Result<std::string> model_path(const config::ModelOptions& options);

// Whether -m or -hf is given.
[[nodiscard]] bool has_model(const config::ModelOptions& options);

// The value of --kv-type, which is one of its values.
[[nodiscard]] kernels::KvType kv_type_of(std::string_view option);

// The options for loading; context, sequences, `team` and `progress` keep their defaults; lines about loading go to the
// log. Error: for a kernel variant that does not exist or that this CPU cannot run, or a --state-snapshot-every that is
// no multiple of the block size: invalid_argument if it comes from the command line, bad_config if from a variable or a
// file. invalid_argument for --weights-cache auto without a home directory.
[[nodiscard]] Result<engine::LoadOptions> load_options(const config::EngineOptions& options,
                                                       const config::Given& given);

// A gateway's options with model_path() and load_options() filled in, the rest defaults. Errors: theirs.
[[nodiscard]] Result<actors::GatewayOptions> gateway_for_model(const config::EngineOptions& options,
                                                               const config::Given& given);

// --threads, or the engine's default.
[[nodiscard]] std::uint32_t num_threads(const config::ThreadOptions& options);

}  // namespace troupe::cli
