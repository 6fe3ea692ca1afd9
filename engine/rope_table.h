// The angles of rotary position embeddings, made once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::engine {

// What turns a position into angles.
struct RopeParams {
  std::uint32_t rotated = 0;  // elements of a head that turn, even
  double base = 10000.0;
  double position_scale = 1.0;  // 1 / factor of linear scaling
  std::vector<float> factors;   // rope_freqs.weight: each angle is divided by its factor; or empty
};

// cos and sin of every angle of every position: RoFormer (Su et al., 2021),
// angle(p, i) = p * position_scale * base^(-2i / rotated) / factors[i].
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
