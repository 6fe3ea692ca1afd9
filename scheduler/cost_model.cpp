#include "scheduler/cost_model.h"

#include <algorithm>
#include <numeric>

namespace troupe::scheduler {
namespace {

// More tokens than this are "many": about where products of this engine's kernels cease to wait for memory.
constexpr std::uint32_t kFewTokens = 24;
constexpr double kUnknown = 1e4;   // variance of a weight of which nothing is known
constexpr double kNoise = 0.0025;  // variance of one step's relative error: 5 %
constexpr double kDrift = 0.03;    // how far a weight may move from one step to the next, of itself

}  // namespace

// Of similar size, so that one variance fits all.
CostModel::Vector CostModel::features(const StepLoad& load) {
  return {1, load.num_tokens / 64.0, load.num_outputs / 16.0, load.num_attended / 65536.0};
}

double CostModel::predict(const StepLoad& load) const {
  const bool few = load.num_tokens <= kFewTokens;
  const Linear* model = few ? &few_tokens_ : &many_tokens_;
  if (model->num_learned == 0) model = few ? &many_tokens_ : &few_tokens_;  // the other says more than nothing
  const Vector x = features(load);
  return std::inner_product(x.begin(), x.end(), model->weights.begin(), 0.0);
}

void CostModel::learn(const StepLoad& load, double seconds) {
  if (!(seconds > 0)) return;
  Linear& model = load.num_tokens <= kFewTokens ? few_tokens_ : many_tokens_;
  if (model.num_learned++ == 0)
    for (std::size_t i = 0; i < kSize; ++i) model.covariance[i][i] = kUnknown;
  // Divided by the time that it took, every step should give 1.
  Vector x = features(load);
  for (double& each : x) each /= seconds;
  Vector px{};
  for (std::size_t i = 0; i < kSize; ++i)
    px[i] = std::inner_product(x.begin(), x.end(), model.covariance[i].begin(), 0.0);
  const double known = std::inner_product(x.begin(), x.end(), px.begin(), 0.0);
  if (!(known >= 0)) {  // rounding errors have added up
    model = {};
    return learn(load, seconds);
  }
  const double error = 1 - std::inner_product(x.begin(), x.end(), model.weights.begin(), 0.0);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j < kSize; ++j) model.covariance[i][j] -= px[i] * px[j] / (kNoise + known);
  for (std::size_t i = 0; i < kSize; ++i) {
    double& weight = model.weights[i];
    weight = std::max(0.0, weight + px[i] * error / (kNoise + known));
    // A weight that is small moves by a part of the step's time.
    const double drift = kDrift * std::max(weight, x[i] > 0 ? 0.1 / x[i] : 0.0);
    model.covariance[i][i] += drift * drift;
  }
}

}  // namespace troupe::scheduler
