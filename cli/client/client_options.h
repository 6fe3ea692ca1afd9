// Converts the options of the client subcommands to those of the client library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/options/option_table.h"
#include "config/options/options.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// As Client::connect with --socket and --no-strict-modes. `name` is for the server's log, and for the warning on stderr
// about a server that is only accepted because of --no-strict-modes.
[[nodiscard]] Result<std::unique_ptr<client::Client>> connect(const config::SocketOptions& options,
                                                              const std::string& name);

// The same without the warning.
[[nodiscard]] Result<std::unique_ptr<client::Client>> connect_quietly(const config::SocketOptions& options,
                                                                      const std::string& name);

// temp, top-k, top-p, min-p, the penalties and seed; the other fields have the client library's defaults.
[[nodiscard]] client::Sampling sampling_of(const config::SamplingOptions& options);
// The same without the numbers that were not given: a model's own defaults go before the options' (Request::presets).
[[nodiscard]] client::Sampling given_sampling(const config::SamplingOptions& options, const config::Given& given);

// The tools in a file: a JSON list in the form of OpenAI's Chat Completions, whose entries may also be the functions
// alone. Error: io, permission, or invalid_argument with the entry that is none. The server checks names and limits.
[[nodiscard]] Result<std::vector<client::Tool>> read_tools(const std::string& path);

// Sets the tools of a request, and which it demands, by --tools and --tool-choice.
[[nodiscard]] Status set_tools(const config::ToolChoiceOptions& options, const config::Given& given,
                               client::Request& request);

// Sets the form of the answer by --json-schema, --json-schema-file, --json-object, --regex, --choice, --grammar or
// --grammar-file, of which there may be one.
[[nodiscard]] Status set_form(const config::FormOptions& options, const config::Given& given, client::Request& request);

}  // namespace troupe::cli
