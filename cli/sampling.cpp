#include "cli/sampling.h"

namespace troupe::cli {

client::Sampling sampling_of(const config::Options& options) {
  client::Sampling sampling;
  sampling.temperature = static_cast<float>(options.temp);
  sampling.top_k = static_cast<std::int32_t>(options.top_k);
  sampling.top_p = static_cast<float>(options.top_p);
  sampling.min_p = static_cast<float>(options.min_p);
  sampling.repeat_penalty = static_cast<float>(options.repeat_penalty);
  sampling.repeat_last_n = static_cast<std::int32_t>(options.repeat_last_n);
  sampling.presence_penalty = static_cast<float>(options.presence_penalty);
  sampling.frequency_penalty = static_cast<float>(options.frequency_penalty);
  sampling.seed = options.seed;
  return sampling;
}

}  // namespace troupe::cli
