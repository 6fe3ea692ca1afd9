// The lengths of prompts and answers: a distribution over numbers of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/load/random.h"
#include "config/result.h"

namespace troupe::load {

struct Lengths {
  enum class Kind : std::uint8_t {
    fixed,      // always a
    uniform,    // a to b, both included
    normal,     // mean a, standard deviation b
    lognormal,  // mean a, standard deviation b of the lengths themselves, not of their logarithms
  };
  Kind kind = Kind::fixed;
  double a = 1;
  double b = 0;

  // Draws a length, rounded to a whole number, from 1 to 2^24.
  [[nodiscard]] std::uint32_t draw(Random& random) const;
  // The smallest possible result of draw().
  [[nodiscard]] std::uint32_t least() const { return kind == Kind::fixed || kind == Kind::uniform ? whole(a) : 1; }

 private:
  static std::uint32_t whole(double length);
};

// "128", "32..256", "normal:128,32", "lognormal:128,64". Error: invalid_argument, naming `what`.
[[nodiscard]] Result<Lengths> parse_lengths(std::string_view text, std::string_view what);

}  // namespace troupe::load
