// Converts the options of `troupe serve` to those of the server and the gateway, and lists the memory that they allow.
#pragma once

#include <string>
#include <vector>

#include "actors/gateway.h"
#include "cli/serve/listed_models.h"
#include "config/options/options.h"
#include "config/result.h"
#include "ipc/server.h"

namespace troupe::cli {

// Looks the names of --allow-user, --allow-group and of tenant rules up now. Error: invalid_argument (bad_config if it
// comes from a variable or a file) for an unknown name; io if the lookup fails; as tenant_rules().
[[nodiscard]] Result<ipc::ServerOptions> server_options(const config::ServeOptions& options,
                                                        const config::Given& given);

// With the models of [[model]] tables or of -m, and behind them those of list_models() that can be served; else the
// embedded one. Errors: as model_path(), load_options() and list_models(), invalid_argument for an --alias or a -m that
// is none, and model_missing if nothing is listed. problems: takes what is wrong with single models, which are left
// without what it is about; none: the first of these is an error, too. listing: takes those that are listed and served,
// which are the last ones, and what is left out.
[[nodiscard]] Result<actors::GatewayOptions> gateway_options(const config::ServeOptions& options,
                                                             const config::Given& given,
                                                             std::vector<std::string>* problems = nullptr,
                                                             Listing* listing = nullptr);

// A model of a [[model]] table, to be loaded while the server runs. Error: no such model in the store, a chat template
// that cannot be read.
[[nodiscard]] Result<actors::ModelRequest> model_request(const config::ModelTable& table,
                                                         const config::StoreDirOptions& options);
// What the model of the table is called: its name, else that in its file.
[[nodiscard]] std::string served_name(const config::ModelTable& table, const config::StoreDirOptions& options);

// --print-limits: one line for each kind of memory, its most bytes first; the last line is "total". Error: a model's
// file cannot be read.
[[nodiscard]] Result<std::string> limits_text(const config::ServeOptions& options, const config::Given& given);

}  // namespace troupe::cli
