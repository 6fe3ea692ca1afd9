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
  std::uint32_t num_outputs = 0;  // tokens whose logits are wanted
  double num_attended = 0;        // positions that all tokens attend to, as if no layer had a window

  // A row of `count` tokens after `computed` ones, of which the last `outputs` have their logits computed.
  void add_row(std::uint32_t computed, std::uint32_t count, std::uint32_t outputs) {
    num_tokens += count;
    num_outputs += outputs;
    num_attended += count * (computed + 0.5 * (count + 1.0));
  }
  StepLoad& operator+=(const StepLoad& more) {
    num_tokens += more.num_tokens;
    num_outputs += more.num_outputs;
    num_attended += more.num_attended;
    return *this;
  }
  friend bool operator==(const StepLoad&, const StepLoad&) = default;
};

// How well the last steps, at most CostModel::kNumErrors, were predicted: |predicted - measured| / measured.
struct CostError {
  double median = 0, p95 = 0;  // 0 without steps
  std::size_t num_steps = 0;
};

// Not thread-safe. All calls are O(1).
class CostModel {
 public:
  static constexpr std::size_t kNumErrors = 512;

  [[nodiscard]] bool has_learned() const { return few_tokens_.num_learned + many_tokens_.num_learned > 0; }
  // In seconds; 0 before anything is learned.
  [[nodiscard]] double predict(const StepLoad& load) const;
  // The part of predict(step) that one of its rows causes: what its tokens, positions and output cost, and of the fixed
  // cost a part by its tokens. Over all rows the sum is predict(step).
  [[nodiscard]] double share(const StepLoad& row, const StepLoad& step) const;
  // A step took `seconds`; times of 0 are ignored.
  void learn(const StepLoad& load, double seconds);

  // Since the start, of steps that were predicted before they were learned from.
  [[nodiscard]] double predicted_seconds() const { return predicted_seconds_; }
  [[nodiscard]] CostError error() const;

 private:
  static constexpr std::size_t kSize = 4;
  using Vector = std::array<double, kSize>;
  struct Linear {
    Vector weights{};
    std::array<Vector, kSize> covariance{};
    std::uint64_t num_learned = 0;
  };
  [[nodiscard]] static Vector features(const StepLoad& load);
  [[nodiscard]] const Linear& model_for(const StepLoad& step) const;
  void update(const StepLoad& load, double seconds);

  Linear few_tokens_, many_tokens_;
  double predicted_seconds_ = 0;
  std::array<float, kNumErrors> errors_{};  // of the last steps, the oldest replaced first
  std::uint64_t num_errors_ = 0;            // since the start
};

}  // namespace troupe::scheduler
