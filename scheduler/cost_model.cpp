#include "scheduler/cost_model.h"

#include <algorithm>
#include <cmath>
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

const CostModel::Linear& CostModel::model_for(const StepLoad& step) const {
  const bool few = step.num_tokens <= kFewTokens;
  const Linear& model = few ? few_tokens_ : many_tokens_;
  return model.num_learned > 0 ? model : few ? many_tokens_ : few_tokens_;  // the other says more than nothing
}

double CostModel::predict(const StepLoad& load) const {
  const Vector x = features(load);
  return std::inner_product(x.begin(), x.end(), model_for(load).weights.begin(), 0.0);
}

double CostModel::share(const StepLoad& row, const StepLoad& step) const {
  Vector x = features(row);
  x[0] = static_cast<double>(row.num_tokens) / step.num_tokens;
  return std::inner_product(x.begin(), x.end(), model_for(step).weights.begin(), 0.0);
}

void CostModel::learn(const StepLoad& load, double seconds) {
  if (!(seconds > 0)) return;
  if (has_learned()) {
    const double predicted = predict(load);
    predicted_seconds_ += predicted;
    errors_[num_errors_++ % kNumErrors] = static_cast<float>(std::abs(predicted - seconds) / seconds);
  }
  update(load, seconds);
}

CostError CostModel::error() const {
  std::array<float, kNumErrors> sorted = errors_;
  const std::size_t count = std::min<std::uint64_t>(num_errors_, kNumErrors);
  if (count == 0) return {};
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
  return {.median = sorted[count / 2], .p95 = sorted[count * 95 / 100], .num_steps = count};
}

void CostModel::update(const StepLoad& load, double seconds) {
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
    return update(load, seconds);
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
  // Where a weight was kept from becoming negative, the others have too much now, and would get more with every step.
  const double predicted = std::inner_product(x.begin(), x.end(), model.weights.begin(), 0.0);
  const double wanted = 1 - error * kNoise / (kNoise + known);
  if (predicted > wanted && wanted > 0)
    for (double& weight : model.weights) weight *= wanted / predicted;
}

}  // namespace troupe::scheduler
