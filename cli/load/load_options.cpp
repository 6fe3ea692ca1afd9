#include "cli/load/load_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "bench/load/trace.h"
#include "cli/client/client_options.h"
#include "config/options/values.h"
#include "config/sampling/sampling_numbers.h"

namespace troupe::cli {
namespace {

constexpr std::uint32_t kDefaultClients = 8;
constexpr std::uint64_t kDefaultRequests = 100;
constexpr std::uint32_t kDefaultConnections = 32;  // half of what a server takes from one user by default

double seconds(std::chrono::milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

load::Pace make_pace(const config::LoadOptions& options) {
  load::Pace pace;
  const bool open = options.rate > 0 || (!options.trace.empty() && options.clients == 0);
  if (options.rate > 0) pace.rate = options.rate;
  pace.clients = options.clients > 0 ? static_cast<std::uint32_t>(options.clients) : open ? 0 : kDefaultClients;
  pace.burstiness = options.burstiness;
  pace.ramp_from = options.ramp_from;
  pace.ramp_up_s = seconds(options.ramp_up);
  pace.think_s = seconds(options.think_time);
  if (options.duration.count() > 0) pace.duration_s = seconds(options.duration);
  if (options.num_prompts > 0)
    pace.num_requests = static_cast<std::uint64_t>(options.num_prompts);
  else if (!pace.duration_s)
    pace.num_requests = kDefaultRequests;
  return pace;
}

Result<load::PlanSpec> make_spec(const config::LoadOptions& options, const load::Vocabulary& vocabulary) {
  const auto prompt = load::parse_lengths(options.prompt_len, "--prompt-len");
  if (!prompt) return prompt.error();
  const auto output = load::parse_lengths(options.output_len, "--output-len");
  if (!output) return output.error();
  client::Sampling sampling = sampling_of(options);
  sampling.ignore_eos = true;  // so that every answer has its planned length
  load::PlanSpec spec;
  spec.seed = options.seed.value_or(0);
  spec.pace = make_pace(options);
  spec.faults = {.cancel = options.fault_cancel,
                 .disconnect = options.fault_disconnect,
                 .slow_reader = options.fault_slow_reader,
                 .garbage = options.fault_garbage,
                 .slow_reader_pause_s = seconds(options.fault_pause)};
  spec.shape = {.prompt = *prompt,
                .output = *output,
                .prefix_share = options.prefix_len > 0 ? options.prefix_share : 0,
                .num_prefixes = static_cast<std::uint32_t>(options.num_prefixes),
                .prefix_tokens = static_cast<std::uint32_t>(options.prefix_len),
                .sampling = sampling};
  spec.vocabulary = vocabulary;
  return spec;
}

std::string number(double value) { return config::format_number(value); }

std::string describe_pace(const load::Plan& plan) {
  const load::Pace& pace = plan.spec().pace;
  std::string text;
  if (!plan.open_loop())
    text = fmt::format("closed loop, {} clients", pace.clients);
  else if (!pace.rate)
    text = "open loop, by the trace";
  else
    text = fmt::format("open loop, {} requests/s, {}", number(*pace.rate),
                       pace.burstiness == 1   ? "Poisson"
                       : pace.burstiness == 0 ? "constant intervals"
                                              : "gamma intervals of shape " + number(pace.burstiness));
  if (plan.open_loop() && pace.clients > 0) text += fmt::format(", at most {} at once", pace.clients);
  if (pace.start_s > 0) text += fmt::format(", after {} s", number(pace.start_s));
  if (pace.ramp_up_s > 0) text += fmt::format(", from {} within {} s", number(pace.ramp_from), number(pace.ramp_up_s));
  if (pace.think_s > 0) text += fmt::format(", thinking {} s", number(pace.think_s));
  if (plan.size()) text += fmt::format("; {} requests", *plan.size());
  if (pace.duration_s) text += fmt::format("; for {} s", number(*pace.duration_s));
  return text;
}

std::string describe_prefixes(const load::Plan& plan) {
  const load::Shape& shape = plan.spec().shape;
  if (plan.prefixes().empty()) return "none";
  return fmt::format("{} of {} tokens, in {} % of the requests", plan.prefixes().size(), shape.prefix_tokens,
                     number(100 * shape.prefix_share));
}

std::string describe_faults(const load::FaultRates& faults) {
  std::string text;
  for (const auto& [share, name] :
       {std::pair{faults.cancel, "cancels"}, std::pair{faults.disconnect, "disconnects"},
        std::pair{faults.slow_reader, "slow readers"}, std::pair{faults.garbage, "garbage"}})
    if (share > 0) text += fmt::format("{}{} % {}", text.empty() ? "" : ", ", number(100 * share), name);
  return text.empty() ? "none" : text;
}

}  // namespace

Result<load::Plan> make_load_plan(const config::LoadOptions& options, const load::Vocabulary& vocabulary,
                                  double start_s) {
  auto spec = make_spec(options, vocabulary);
  if (!spec) return spec.error();
  spec->pace.start_s = start_s;
  if (options.trace.empty()) return load::Plan::make(std::move(*spec));
  if (options.rate > 0)
    return Error{ErrorCode::invalid_argument, "--rate and --trace contradict each other: the trace says when"};
  std::ifstream file(options.trace);
  if (!file) return Error{ErrorCode::io, "cannot read the trace " + options.trace};
  auto requests = load::read_trace(file, *spec);
  if (!requests) return Error{requests.error().code, options.trace + ": " + requests.error().message};
  if (options.num_prompts > 0 && requests->size() > static_cast<std::size_t>(options.num_prompts))
    requests->resize(static_cast<std::size_t>(options.num_prompts));
  return load::Plan::from_trace(std::move(*spec), std::move(*requests), options.clients == 0);
}

Result<load::Goals> make_goals(const config::LoadOptions& options, const config::Given& given) {
  std::vector<std::string> texts = options.goodput;
  texts.insert(texts.end(), given.arguments.begin(), given.arguments.end());
  if (options.goodput.empty() && !given.arguments.empty())
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("unexpected argument '{}': only limits after --goodput may stand alone", given.arguments.front())};
  const auto limits = load::parse_goodput(texts);
  if (!limits) return limits.error();
  if (options.require_goodput > 0 && texts.empty())
    return Error{ErrorCode::invalid_argument, "--require-goodput needs the limits: --goodput ttft:500 tpot:50"};
  load::Goals goals{.limits = *limits, .good_share = options.require_goodput, .max_failed = {}, .max_refused = {}};
  if (options.max_failed >= 0) goals.max_failed = static_cast<std::uint64_t>(options.max_failed);
  if (options.max_refused >= 0) goals.max_refused = static_cast<std::uint64_t>(options.max_refused);
  return goals;
}

std::uint32_t num_connections(const config::LoadOptions& options, const load::Plan& plan) {
  if (options.connections > 0) return static_cast<std::uint32_t>(options.connections);
  const std::uint32_t clients = plan.spec().pace.clients;
  return clients > 0 ? std::min(clients, kDefaultConnections) : kDefaultConnections;
}

std::vector<std::pair<std::string, std::string>> describe(const config::LoadOptions& options, const load::Plan& plan) {
  std::vector<std::pair<std::string, std::string>> lines{{"load", describe_pace(plan)}};
  if (options.trace.empty()) {
    lines.emplace_back("prompts", options.prompt_len + " tokens, answers " + options.output_len);
    lines.emplace_back("prefixes", describe_prefixes(plan));
  } else {
    lines.emplace_back("trace", options.trace);
  }
  std::vector<std::string> sampling;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& which, const auto& value) {
        sampling.push_back(fmt::format("{} {}", which.option, number(static_cast<double>(value))));
      },
      options);
  lines.emplace_back("sampling", fmt::format("{}", fmt::join(sampling, ", ")));
  lines.emplace_back("faults", describe_faults(plan.spec().faults));
  lines.emplace_back("seed", fmt::format("{}", plan.spec().seed));
  return lines;
}

}  // namespace troupe::cli
