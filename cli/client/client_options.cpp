#include "cli/client/client_options.h"

#include "cli/terminal/output.h"
#include "config/normal_float.h"
#include "config/options/sampling_numbers.h"

namespace troupe::cli {

Result<std::unique_ptr<client::Client>> connect_quietly(const config::SocketOptions& options, const std::string& name) {
  return client::Client::connect({.socket = options.socket, .strict_modes = !options.no_strict_modes, .name = name});
}

Result<std::unique_ptr<client::Client>> connect(const config::SocketOptions& options, const std::string& name) {
  auto client = connect_quietly(options, name);
  if (client && !(*client)->server().distrust.empty()) complain(name, "warning: " + (*client)->server().distrust);
  return client;
}

client::Sampling sampling_of(const config::SamplingOptions& options) {
  client::Sampling sampling;
  config::for_each_sampling_number(
      [](const config::SamplingNumber&, auto& to, const auto& from) {
        if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(from)>>)
          to = config::to_normal_float(from);
        else
          to = static_cast<std::int32_t>(from);
      },
      sampling, options);
  sampling.seed = options.seed;
  return sampling;
}

}  // namespace troupe::cli
