// Values for benchmarks: normally distributed, the same in every run.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace troupe::kernels {

inline std::vector<float> random_floats(std::size_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

}  // namespace troupe::kernels
