// The time of a step that verifies K proposals of each sequence, against that of a step of one token each:
//   verification_bench MODEL [THREADS=2] [SEQUENCES=1] [DEPTH=256] [ROUNDS=5]
// All K in turn in every round, so that a machine that is slower for a while is slower for all. Medians over rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "engine/engine.h"

namespace {

using namespace troupe;

constexpr std::uint32_t kLengths[] = {0, 1, 2, 3, 4, 6, 8, 12, 16};
constexpr std::uint32_t kSteps = 6;  // per length and round

struct Settings {
  std::uint32_t threads = 2, sequences = 1, depth = 256, rounds = 5;
};

class Bench {
 public:
  Bench(const engine::LoadedModel& model, const Settings& settings)
      : model_(model), settings_(settings), team_(settings.threads), executor_(model, team_) {}

  // Seconds of a step with `num_draft` proposals, none of which is right.
  double step_seconds(std::uint32_t num_draft) {
    engine::StepBatch batch;
    engine::StepResult result;
    std::vector<double> seconds;
    for (std::uint32_t i = 0; i < settings_.sequences; ++i) open(i);
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      batch.items.clear();
      for (std::uint32_t i = 0; i < settings_.sequences; ++i) {
        engine::StepItem item{.sequence = i + 1, .num_tokens = 1, .output = engine::Output::sample, .new_blocks = {}};
        for (std::uint32_t k = 0; k < num_draft; ++k) item.draft.push_back(token());
        batch.items.push_back(std::move(item));
      }
      executor_.step(batch, result);
      seconds.push_back(result.compute_seconds);
    }
    for (std::uint32_t i = 0; i < settings_.sequences; ++i) executor_.close(i + 1);
    return *std::min_element(seconds.begin() + 1, seconds.end());
  }

 private:
  TokenId token() { return static_cast<TokenId>(random_() % model_.info().vocab_size); }

  void open(std::uint32_t index) {
    engine::SequenceSpec spec;
    spec.id = index + 1;
    for (std::uint32_t i = 0; i <= settings_.depth; ++i) spec.tokens.push_back(token());
    spec.num_cached = settings_.depth;  // of whatever the blocks hold: it takes the same time
    const std::uint32_t count = blocks_for(model_.info().context);
    BlockTable table(count);
    std::iota(table.begin(), table.end(), index * count);
    spec.tables.assign(model_.arenas().size(), table);
    spec.state.resize(model_.cache_spec().state.num_floats());
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = false;
    executor_.open(std::move(spec));
  }

  const engine::LoadedModel& model_;
  const Settings settings_;
  engine::Team team_;
  engine::Executor executor_;
  std::mt19937_64 random_{1};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: verification_bench MODEL [THREADS] [SEQUENCES] [DEPTH] [ROUNDS]\n");
    return 2;
  }
  Settings settings;
  std::uint32_t* const fields[] = {&settings.threads, &settings.sequences, &settings.depth, &settings.rounds};
  for (int i = 2; i < std::min(argc, 6); ++i)
    *fields[i - 2] = static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));

  engine::LoadOptions options;
  options.context = settings.depth + 64;
  options.num_blocks = settings.sequences * blocks_for(options.context);
  options.max_sequences = 2 * settings.sequences;  // with recurrent layers each draft takes a second state
  const auto model = engine::LoadedModel::load(argv[1], options);
  if (!model) {
    fmt::print(stderr, "{}\n", model.error().message);
    return 1;
  }
  Bench bench(**model, settings);
  std::map<std::uint32_t, std::vector<double>> seconds;
  for (std::uint32_t round = 0; round < settings.rounds; ++round)
    for (const std::uint32_t length : kLengths) seconds[length].push_back(bench.step_seconds(length));
  fmt::print("{}, {} threads, {} sequences after {} positions\n", (*model)->numerics_id(), settings.threads,
             settings.sequences, settings.depth);
  for (const std::uint32_t length : kLengths)
    fmt::print("K {:2}: {:7.2f} ms, {:.2f} x\n", length, 1e3 * median(seconds[length]),
               median(seconds[length]) / median(seconds[0]));
}
