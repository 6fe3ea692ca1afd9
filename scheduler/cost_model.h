// How long a step takes, learned from the steps before it.
//
// A step that computes few tokens takes the time to read the weights, one with many the time to multiply, so there are
// two models, each linear in what a step computes. Their weights are estimated by a Kalman filter in which they drift
// (Ljung, System Identification, 2nd edition, section 11.6), on relative errors, and cannot become negative.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe::scheduler {

// What a step computes.
struct StepLoad {
  std::uint32_t num_tokens = 0;   // of all rows together
  std::uint32_t num_outputs = 0;  // rows whose logits are wanted
  double num_attended = 0;        // positions that all tokens attend to, as if no layer had a window

  // A row of `count` tokens after `computed` ones.
  void add_row(std::uint32_t computed, std::uint32_t count, bool wants_logits) {
    num_tokens += count;
    num_outputs += wants_logits ? 1 : 0;
    num_attended += count * (computed + 0.5 * (count + 1.0));
  }
  friend bool operator==(const StepLoad&, const StepLoad&) = default;
};

// Not thread-safe. All calls are O(1).
class CostModel {
 public:
  // In seconds; 0 before anything is learned.
  [[nodiscard]] double predict(const StepLoad& load) const;
  // A step took `seconds`; times of 0 are ignored.
  void learn(const StepLoad& load, double seconds);

 private:
  static constexpr std::size_t kSize = 4;
  using Vector = std::array<double, kSize>;
  struct Linear {
    Vector weights{};
    std::array<Vector, kSize> covariance{};
    std::uint64_t num_learned = 0;
  };
  [[nodiscard]] static Vector features(const StepLoad& load);

  Linear few_tokens_, many_tokens_;
};

}  // namespace troupe::scheduler
