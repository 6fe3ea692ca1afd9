// The angles of rotary position embeddings, made once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe::engine {

// What turns a position into angles.
struct RopeParams {
  std::uint32_t rotated = 0;  // elements of a head that turn, even
  double base = 10000.0;
  double position_scale = 1.0;  // 1 / factor of linear scaling and of YaRN
  double magnitude = 1.0;       // of cos and sin: what LongRoPE and YaRN make of the attention's temperature
  std::vector<float> factors;   // each angle is divided by its factor (Llama 3, LongRoPE); or empty
  // YaRN (Peng et al., 2023): of pairs that turn more than beta_fast times within the context the model was trained
  // with, positions are not scaled; of those that turn less than beta_slow times they are; in between a mixture.
  struct Yarn {
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double original_context = 0;
    double share = 1.0;  // of the mixture: 0 scales all
  };
  std::optional<Yarn> yarn{};
};

// What pair i's angle at position 1 is: RoFormer (Su et al., 2021),
// position_scale * base^(-2i / rotated) / factors[i], and YaRN's mixture of that with position_scale = 1.
[[nodiscard]] std::vector<double> rope_frequencies(const RopeParams& params);

// cos and sin of every angle of every position, times the magnitude.
// Computed in double and rounded once, so no step calls libm and none depends on its version.
class RopeTable {
 public:
  RopeTable() = default;
  // O(num_positions * rotated).
  RopeTable(const RopeParams& params, std::uint32_t num_positions);

  std::uint32_t rotated() const { return rotated_; }
  const float* cos(std::uint32_t position) const { return row(position); }
  const float* sin(std::uint32_t position) const { return row(position) + rotated_ / 2; }
  std::size_t bytes() const { return values_.size() * sizeof(float); }
  // What the table of these will take.
  static std::uint64_t bytes_for(const RopeParams& params, std::uint32_t num_positions) {
    return std::uint64_t{num_positions} * params.rotated * sizeof(float);
  }

 private:
  const float* row(std::uint32_t position) const { return values_.data() + std::size_t{position} * rotated_; }
  std::uint32_t rotated_ = 0;
  std::vector<float> values_;  // [position][cos..., sin...]
};

}  // namespace troupe::engine
