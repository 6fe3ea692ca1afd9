#include "cli/client_options.h"

#include "cli/output.h"
#include "config/normal_float.h"

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
  sampling.temperature = config::to_normal_float(options.temp);
  sampling.top_k = static_cast<std::int32_t>(options.top_k);
  sampling.top_p = config::to_normal_float(options.top_p);
  sampling.min_p = config::to_normal_float(options.min_p);
  sampling.repeat_penalty = config::to_normal_float(options.repeat_penalty);
  sampling.repeat_last_n = static_cast<std::int32_t>(options.repeat_last_n);
  sampling.presence_penalty = config::to_normal_float(options.presence_penalty);
  sampling.frequency_penalty = config::to_normal_float(options.frequency_penalty);
  sampling.seed = options.seed;
  return sampling;
}

}  // namespace troupe::cli
