#include "actors/batching/measure_steps.h"

#include <algorithm>
#include <numeric>

#include "actors/requests/request.h"

namespace troupe::actors {
namespace {

constexpr std::uint32_t kRows = 8;                                                  // of the step of some rows
constexpr std::uint32_t kChunks[] = {kBlockSize, 4 * kBlockSize, 16 * kBlockSize};  // tokens

class Measurement {
 public:
  Measurement(const engine::LoadedModel& model, engine::Team& team, const MeasureOptions& options,
              scheduler::CostModel& costs)
      : model_(model), executor_(model, team), options_(options), costs_(costs) {
    for (const auto& arena : model.arenas()) num_blocks_ = std::min(num_blocks_, arena->num_blocks());
    max_rows_ = model.num_states() > 0 ? model.num_states() : kRows;
  }

  // Sequences of so many tokens each, in one step. Returns what it took; 0: it would take too long, or does not fit.
  double run(std::uint32_t num_rows, std::uint32_t num_tokens, double expected_seconds, bool learn) {
    const std::uint32_t each = blocks_for(num_tokens);
    num_rows = std::min({num_rows, max_rows_, num_blocks_ / each, options_.max_step_tokens / num_tokens});
    const bool is_late = !result_.items.empty() && spent_ + expected_seconds > options_.max_seconds;
    if (num_rows == 0 || num_tokens >= model_.info().context || is_late) return 0;
    double seconds = 0;
    const auto step = [&] { seconds = run_alone(num_rows, num_tokens, learn); };
    options_.run_step ? options_.run_step(step) : step();
    return seconds;
  }

 private:
  double run_alone(std::uint32_t num_rows, std::uint32_t num_tokens, bool learn) {
    const TimePoint began = std::chrono::steady_clock::now();
    const std::uint32_t each = blocks_for(num_tokens);
    engine::StepBatch batch;
    scheduler::StepLoad load;
    for (std::uint32_t row = 0; row < num_rows; ++row) {
      engine::SequenceSpec spec;
      spec.id = row + 1;
      for (std::uint32_t i = 0; i < num_tokens; ++i)  // of many kinds: a mixture reads the experts that they choose
        spec.tokens.push_back(static_cast<TokenId>((row * 7919 + i * 104729 + 1) % model_.info().vocab_size));
      BlockTable table(each);
      std::iota(table.begin(), table.end(), row * each);
      spec.tables.assign(model_.arenas().size(), table);
      spec.sampling.temperature = 0;
      spec.sampling.max_tokens = 1;
      executor_.open(std::move(spec));
      batch.items.push_back({.sequence = row + 1, .num_tokens = num_tokens, .output = engine::Output::sample});
      load.add_row(0, num_tokens, true);
    }
    executor_.step(batch, result_);
    for (std::uint32_t row = 0; row < num_rows; ++row) executor_.close(row + 1);
    const double seconds = seconds_between(result_.kernels_began, result_.kernels_ended);
    if (learn) costs_.learn(load, seconds);
    spent_ += seconds_between(began, std::chrono::steady_clock::now());
    return seconds;
  }

  const engine::LoadedModel& model_;
  engine::Executor executor_;
  const MeasureOptions& options_;
  scheduler::CostModel& costs_;
  std::uint32_t num_blocks_ = kNoBlock;
  std::uint32_t max_rows_ = 0;
  engine::StepResult result_;
  double spent_ = 0;
};

}  // namespace

void measure_steps(const engine::LoadedModel& model, engine::Team& team, const MeasureOptions& options,
                   scheduler::CostModel& costs) {
  Measurement measurement(model, team, options, costs);
  const double first = measurement.run(1, 1, 0, /*learn=*/false);
  const double one = measurement.run(1, 1, 0, true);
  if (one == 0) {  // a slow model: the first says more than nothing
    scheduler::StepLoad load;
    load.add_row(0, 1, true);
    return costs.learn(load, first);
  }
  // A chunk costs at most in proportion to a smaller one; one token, which has to read all weights, says little of it.
  double expected = 2 * one;
  std::uint32_t before = kBlockSize;
  for (const std::uint32_t chunk : kChunks) {
    const double took = measurement.run(1, chunk, expected * chunk / before, true);
    if (took == 0) break;
    expected = took;
    before = chunk;
  }
  measurement.run(kRows, 1, 2 * one, true);
  measurement.run(1, 1, one, true);
}

}  // namespace troupe::actors
