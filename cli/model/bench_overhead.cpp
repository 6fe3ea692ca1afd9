// troupe bench --overhead: the time of a step outside its kernels.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "actors/gateway.h"
#include "actors/threads/topology.h"
#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "cli/version.h"

namespace troupe::cli {
namespace {

constexpr std::uint32_t kPromptTokens = 16;
constexpr std::uint64_t kIdSeed = 42;
// The goal for the time between two steps if the team has its own cores: 40 us, and 2 us per sequence.
constexpr double kTargetUs = 40, kTargetUsPerSequence = 2;

// Called after every step; keeps the gaps between two consecutive steps that both have the expected number of rows.
class GapRecorder {
 public:
  void expect(std::size_t rows) {
    const std::lock_guard lock(mutex_);
    rows_ = rows;
    gaps_us_.clear();
    last_step_ = 0;
  }
  void step(const engine::StepResult& result) {
    const std::lock_guard lock(mutex_);
    if (result.items.size() == rows_) {
      if (last_step_ + 1 == result.step)
        gaps_us_.push_back(std::chrono::duration<double, std::micro>(result.kernels_began - last_ended_).count());
      last_step_ = result.step;
    }
    last_ended_ = result.kernels_ended;
  }
  std::vector<double> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(gaps_us_, {});
  }

 private:
  std::mutex mutex_;
  std::size_t rows_ = 0;
  std::uint64_t last_step_ = 0;
  std::chrono::steady_clock::time_point last_ended_;
  std::vector<double> gaps_us_;
};

// Counts the streams that ended.
class EndCounter final : public actors::StreamSink {
 public:
  void tokens(actors::TokenRun) override {}
  void end(actors::End end) override {
    const std::lock_guard lock(mutex_);
    ++ended_;
    if (end.outcome != scheduler::Outcome::length && error_.empty())
      error_ = fmt::format("{}: {}", scheduler::info(end.outcome).name, end.message);
    changed_.notify_all();
  }
  // Waits until `count` streams have ended. Returns the error of the first that did not end as expected; empty: none.
  std::string wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == count; });
    return error_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
  std::string error_;
};

struct Overhead {
  std::uint32_t sequences = 0;
  std::vector<double> gaps_us;  // ascending

  double quantile(double share) const {
    return gaps_us[std::min(gaps_us.size() - 1, static_cast<std::size_t>(share * static_cast<double>(gaps_us.size())))];
  }
  double target_us() const { return kTargetUs + kTargetUsPerSequence * sequences; }
};

// Submits all sequences at once, all with the same number of tokens: except at its begin and end, all steps of a round
// have all rows.
Result<Overhead> measure(actors::Gateway& gateway, GapRecorder& recorder, std::uint32_t sequences,
                         std::uint32_t num_tokens, std::int64_t rounds) {
  std::mt19937_64 random(kIdSeed);
  const std::uint32_t vocabulary = gateway.model()->info().vocab_size;
  Overhead overhead{.sequences = sequences, .gaps_us = {}};
  for (std::int64_t round = 0; round <= rounds; ++round) {
    recorder.expect(sequences);
    const auto sink = std::make_shared<EndCounter>();
    for (std::uint32_t i = 0; i < sequences; ++i) {
      actors::Request request;
      std::vector<TokenId> prompt(kPromptTokens);
      for (TokenId& token : prompt) token = static_cast<TokenId>(random() % vocabulary);
      request.prompt = std::move(prompt);
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = num_tokens;
      request.credit = num_tokens;
      gateway.submit(std::move(request), sink);
    }
    if (const std::string error = sink->wait_for(sequences); !error.empty())
      return Error{ErrorCode::unsupported, "a sequence of the measurement ended with " + error};
    const std::vector<double> gaps = recorder.take();
    if (round > 0) overhead.gaps_us.insert(overhead.gaps_us.end(), gaps.begin(), gaps.end());  // round 0 is warm-up
  }
  if (overhead.gaps_us.empty())
    return Error{ErrorCode::invalid_argument, "no two steps followed each other; use a larger -n"};
  std::sort(overhead.gaps_us.begin(), overhead.gaps_us.end());
  return overhead;
}

void print_markdown(const std::vector<Overhead>& results, const std::string& where, const std::string& model,
                    std::ostream& out) {
  out << fmt::format(
      "troupe {}, {}, {}\nlast kernel of a step to the first of the next, through the actors; {}\n\n"
      "| sequences | steps | p50 us | p90 us | p99 us | goal for p50 us |\n|---:|---:|---:|---:|---:|---:|\n",
      kVersionAndCommit, cpu_name(), model, where);
  for (const Overhead& r : results)
    out << fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.0f} |\n", r.sequences, r.gaps_us.size(),
                       r.quantile(0.5), r.quantile(0.9), r.quantile(0.99), r.target_us());
}

void print_json(const std::vector<Overhead>& results, bool own_cores, std::uint32_t threads,
                const engine::LoadedModel& model, std::ostream& out) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Overhead& r : results)
    rows.push_back({{"sequences", r.sequences},
                    {"steps", r.gaps_us.size()},
                    {"p50_us", r.quantile(0.5)},
                    {"p90_us", r.quantile(0.9)},
                    {"p99_us", r.quantile(0.99)},
                    {"target_p50_us", r.target_us()}});
  const nlohmann::ordered_json report{{"version", kVersion},
                                      {"commit", kCommit},
                                      {"cpu", cpu_name()},
                                      {"model", model.info().name},
                                      {"numerics_id", model.numerics_id()},
                                      {"num_threads", threads},
                                      {"own_cores", own_cores},
                                      {"overhead", std::move(rows)}};
  write_json(report, out);
}

// Starts a gateway and waits until its model is loaded.
Result<std::unique_ptr<actors::Gateway>> start(const config::BenchOptions& options, const config::Given& given,
                                               GapRecorder& recorder, std::uint32_t most_sequences) {
  auto named = gateway_for_model(options, given);
  if (!named) return named.error();
  actors::GatewayOptions& gateway = *named;
  gateway.model().load.context = static_cast<std::uint32_t>(options.ctx_size);
  gateway.num_threads = num_threads(options);
  gateway.max_sequences = most_sequences;
  gateway.max_requests_per_user = most_sequences;
  gateway.max_queued_requests = 4 * most_sequences;  // of which one user may have a quarter
  gateway.on_step = [&recorder](const engine::StepResult& result) { recorder.step(result); };
  return actors::Gateway::start_loaded(std::move(gateway));
}

}  // namespace

Result<int> bench_overhead(const config::BenchOptions& options, const config::Given& given) {
  if (auto status = start_log({}); !status) return status.error();
  const auto most = *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
  const auto num_tokens = *std::max_element(options.n_gen.begin(), options.n_gen.end());
  if (num_tokens < 3) return Error{ErrorCode::invalid_argument, "--overhead needs -n of at least 3 tokens"};
  GapRecorder recorder;  // outlives the gateway
  const auto gateway = start(options, given, recorder, static_cast<std::uint32_t>(most));
  if (!gateway) return gateway.error();

  const std::uint32_t threads = num_threads(options);
  const bool own_cores = !actors::plan_cpus(actors::usable_cpus(), threads).compute.empty();
  std::vector<Overhead> results;
  for (const std::int64_t sequences : options.batch_sizes) {
    auto result = measure(**gateway, recorder, static_cast<std::uint32_t>(sequences),
                          static_cast<std::uint32_t>(num_tokens), options.repetitions);
    if (!result) return result.error();
    results.push_back(std::move(*result));
  }
  const engine::LoadedModel& model = *(*gateway)->model()->language_model();
  if (options.format == "json") {
    print_json(results, own_cores, threads, model, std::cout);
  } else {
    const std::string where = fmt::format("{} threads {}", threads,
                                          own_cores ? "on their own cores" : "that share all cores with the actors");
    print_markdown(results, where, fmt::format("{} ({})", model.info().name, model.kernels().name), std::cout);
  }
  return kExitOk;
}

}  // namespace troupe::cli
