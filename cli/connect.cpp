#include "cli/connect.h"

#include "cli/output.h"

namespace troupe::cli {

Result<std::unique_ptr<client::Client>> connect_quietly(const config::Options& options, const std::string& name) {
  return client::Client::connect({.socket = options.socket, .strict_modes = !options.no_strict_modes, .name = name});
}

Result<std::unique_ptr<client::Client>> connect(const config::Options& options, const std::string& name) {
  auto client = connect_quietly(options, name);
  if (client && !(*client)->server().distrust.empty()) complain(name, "warning: " + (*client)->server().distrust);
  return client;
}

}  // namespace troupe::cli
