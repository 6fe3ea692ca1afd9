#include "bench/load/lengths.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using namespace troupe::load;

namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

template <class Draw>
Moments moments(std::size_t count, Draw draw) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = draw();
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(count);
  return {mean, std::sqrt(squares / static_cast<double>(count) - mean * mean)};
}

Lengths parsed(const char* text) {
  const auto lengths = parse_lengths(text, "--prompt-len");
  REQUIRE(lengths);
  return *lengths;
}

}  // namespace

TEST_CASE("a draw is named by seed, purpose and index, whatever else is drawn") {
  Random a(7, Purpose::arrival, 3), b(7, Purpose::arrival, 3);
  Random other_seed(8, Purpose::arrival, 3), other_purpose(7, Purpose::fault, 3), other_index(7, Purpose::arrival, 4);
  const double first = a.uniform();
  CHECK(first == b.uniform());
  CHECK(a.uniform() != first);
  CHECK(other_seed.uniform() != first);
  CHECK(other_purpose.uniform() != first);
  CHECK(other_index.uniform() != first);
}

TEST_CASE("the random kinds have the means and deviations that they promise") {
  constexpr std::size_t kDraws = 40'000;  // the mean of 40,000 draws is within 5 deviations / 200 of the true one
  Random random(1, Purpose::arrival, 0);
  const Moments exponential = moments(kDraws, [&] { return random.exponential(); });
  CHECK(exponential.mean == Approx(1).margin(0.025));
  CHECK(exponential.deviation == Approx(1).margin(0.05));
  const Moments normal = moments(kDraws, [&] { return random.normal(); });
  CHECK(normal.mean == Approx(0).margin(0.025));
  CHECK(normal.deviation == Approx(1).margin(0.025));
  for (const double shape : {0.25, 1.0, 4.0}) {
    const Moments gamma = moments(kDraws, [&] { return random.gamma(shape); });
    INFO("shape " << shape);
    CHECK(gamma.mean == Approx(shape).margin(0.025 * std::sqrt(shape)));
    CHECK(gamma.deviation == Approx(std::sqrt(shape)).epsilon(0.06));
  }
}

TEST_CASE("lengths stay within their bounds and near their mean") {
  Random random(2, Purpose::prompt_length, 0);
  CHECK(parsed("128").draw(random) == 128);

  const Lengths uniform = parsed("32..256");
  std::uint32_t low = 1000, high = 0;
  const Moments flat = moments(20'000, [&] {
    const std::uint32_t length = uniform.draw(random);
    low = std::min(low, length);
    high = std::max(high, length);
    return static_cast<double>(length);
  });
  CHECK(low == 32);
  CHECK(high == 256);
  CHECK(flat.mean == Approx(144).margin(3));

  const Moments normal = moments(20'000, [&] { return parsed("normal:100,10").draw(random); });
  CHECK(normal.mean == Approx(100).margin(0.5));
  CHECK(normal.deviation == Approx(10).epsilon(0.05));

  const Moments lognormal = moments(20'000, [&] { return parsed("lognormal:100,50").draw(random); });
  CHECK(lognormal.mean == Approx(100).margin(2));
  CHECK(lognormal.deviation == Approx(50).epsilon(0.1));
}

TEST_CASE("no length is below one token") {
  Random random(3, Purpose::prompt_length, 0);
  const Lengths wide = parsed("normal:2,50");
  CHECK(wide.least() == 1);
  for (int i = 0; i < 1000; ++i) REQUIRE(wide.draw(random) >= 1);
}

TEST_CASE("a text that is no distribution of lengths is refused with the option's name") {
  for (const char* text : {"", "0", "-3", "12x", "9..3", "0..3", "..", "1..", "normal:", "normal:5", "normal:0,1",
                           "normal:5,-1", "lognormal:5,nan", "pareto:1,2", "99999999"}) {
    INFO(text);
    const auto lengths = parse_lengths(text, "--output-len");
    REQUIRE_FALSE(lengths);
    CHECK(lengths.error().message.find("--output-len: '" + std::string(text) + "'") == 0);
  }
}
