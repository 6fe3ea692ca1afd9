// The angles of rotary position embeddings (RoPE), computed once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/result.h"
#include "engine/model.h"
#include "engine/weights/weight_visitor.h"

namespace troupe::engine {

// The parameters of the angles.
struct RopeParams {
  std::uint32_t rotated = 0;  // rotated elements of a head, even
  double base = 10000.0;
  double position_scale = 1.0;  // 1 / factor of linear scaling and of YaRN
  double magnitude = 1.0;       // factor of cos and sin: the attention scaling of LongRoPE and YaRN
  std::vector<float> factors;   // each angle is divided by its factor (Llama 3, LongRoPE); or empty
  // YaRN (Peng et al., 2023): pairs with more than beta_fast full rotations within the trained context use unscaled
  // positions, pairs with fewer than beta_slow scaled ones; in between both are mixed.
  struct Yarn {
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double original_context = 0;
    double share = 1.0;     // of unscaled positions in the mixture; 0: all positions are scaled
    bool is_exact = false;  // the mixture begins and ends between pairs, not at whole ones
  };
  std::optional<Yarn> yarn{};
};

// The angle of pair i at position 1: RoFormer (Su et al., 2021), position_scale * base^(-2i / rotated) / factors[i],
// and with YaRN its mixture with position_scale = 1.
[[nodiscard]] std::vector<double> rope_frequencies(const RopeParams& params);

// Error: out_of_memory if tables of `bytes` for `context` tokens are more than options.memory, unless that is 0.
[[nodiscard]] Status check_rope_memory(const ModelFile& file, const LoadOptions& options, std::uint32_t context,
                                       std::uint64_t bytes);

// cos and sin of every angle of every position, times the magnitude.
// Computed in double and rounded once, so no step calls libm and none depends on its version.
class RopeTable {
 public:
  RopeTable() = default;
  // Row i is for position i * step. O(num_positions * rotated).
  RopeTable(const RopeParams& params, std::uint32_t num_positions, double step = 1);

  std::uint32_t rotated() const { return rotated_; }
  const float* cos(std::uint32_t position) const { return row(position); }
  const float* sin(std::uint32_t position) const { return row(position) + rotated_ / 2; }
  std::size_t bytes() const { return values_.size() * sizeof(float); }
  void visit(WeightVisitor& visitor) const { visitor.all(values_); }
  // The size of the table.
  static std::uint64_t bytes_for(const RopeParams& params, std::uint32_t num_positions) {
    return std::uint64_t{num_positions} * params.rotated * sizeof(float);
  }

 private:
  const float* row(std::uint32_t position) const { return values_.data() + std::size_t{position} * rotated_; }
  std::uint32_t rotated_ = 0;
  std::vector<float> values_;  // [position][cos..., sin...]
};

}  // namespace troupe::engine
