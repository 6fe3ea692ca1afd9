#include "bench/load/random.h"

#include <cmath>
#include <numbers>

#include "engine/sampling/philox.h"

namespace troupe::load {

double Random::uniform() {
  const engine::PhiloxCounter words =
      engine::philox4x32_10({static_cast<std::uint32_t>(index_), static_cast<std::uint32_t>(index_ >> 32), number_++,
                             static_cast<std::uint32_t>(purpose_)},
                            {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  return static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

std::uint64_t Random::below(std::uint64_t bound) {
  return static_cast<std::uint64_t>(uniform() * static_cast<double>(bound));
}

double Random::exponential() { return -std::log1p(-uniform()); }

// Box and Muller, 1958; the second of each pair is not kept, since draws are cheap.
double Random::normal() {
  const double radius = std::sqrt(2 * exponential());
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; below shape 1 by their section 6.
double Random::gamma(double shape) {
  if (shape < 1) {
    const double larger = gamma(shape + 1);
    return larger * std::exp(-exponential() / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && exponential() > -x * x / 2 - d + d * v - d * std::log(v)) return d * v;
  }
}

}  // namespace troupe::load
