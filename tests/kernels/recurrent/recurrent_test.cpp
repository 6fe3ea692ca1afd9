// The operations around scans: functions of one number, norms and mixtures of rows, in every variant.
#include <limits>

#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

constexpr float kUntouched = 0.40625f;  // after the written values

const RecurrentKernels& reference() { return *find_table("reference")->recurrent; }

void require_close(const std::vector<float>& out, const std::vector<float>& expected, double relative = 2e-5) {
  REQUIRE(out.size() == expected.size());
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < out.size(); ++i)
    REQUIRE(out[i] == Approx(expected[i]).epsilon(relative).margin(relative * static_cast<double>(largest)));
}

// Around 0, in both tails, and where exp() would overflow.
std::vector<float> hard_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> x = random_floats(count, seed, 8.0f);
  const float hard[] = {0.0f, -0.0f, 1e-6f, -1e-6f, 30.0f, -30.0f, 90.0f, -90.0f, 1e6f, -1e6f};
  for (std::size_t i = 0; i < std::min(count, std::size(hard)); ++i) x[i] = hard[i];
  return x;
}

double formula(Function function, double x) {
  switch (function) {
    case Function::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Function::silu:
      return x / (1 + std::exp(-x));
    case Function::tanh:
      return std::tanh(x);
    case Function::relu_squared:
      return x > 0 ? x * x : 0;
    case Function::gelu_erf:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Function::gelu:
      break;
  }
  return x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
}

TEST_CASE("functions of one number match their formulas at every small length, also in place") {
  for (const KernelTable* table : variants_here())
    for (const Function function : {Function::sigmoid, Function::silu, Function::tanh, Function::relu_squared,
                                    Function::gelu, Function::gelu_erf})
      for (std::size_t count = 1; count <= 35; ++count) {
        std::vector<float> x = hard_numbers(count, count), out(count + 1, std::nanf(""));
        out[count] = kUntouched;
        table->recurrent->map(function, x.data(), out.data(), count);
        INFO(table->name << ", function " << static_cast<int>(function) << ", count " << count);
        for (std::size_t i = 0; i < count; ++i) {
          INFO("of " << x[i]);
          REQUIRE(out[i] == Approx(formula(function, double{x[i]})).epsilon(1e-5).margin(2e-7));
        }
        REQUIRE(out[count] == kUntouched);
        out.pop_back();
        table->recurrent->map(function, x.data(), x.data(), count);
        REQUIRE(same_bits(x, out));
      }
}

TEST_CASE("tanh loses no digits near 0") {
  std::vector<float> x;
  for (float magnitude = 1e-20f; magnitude < 12; magnitude *= 1.09f) x.insert(x.end(), {magnitude, -magnitude});
  std::vector<float> out(x.size(), std::nanf(""));
  for (const KernelTable* table : variants_here()) {
    table->recurrent->map(Function::tanh, x.data(), out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(table->name << ", of " << x[i]);
      REQUIRE(out[i] == Approx(std::tanh(double{x[i]})).epsilon(5e-7));  // 4 ulp
    }
  }
}

TEST_CASE("NaN stays NaN") {
  for (const KernelTable* table : variants_here())
    for (const Function function : {Function::sigmoid, Function::silu, Function::tanh, Function::relu_squared,
                                    Function::gelu, Function::gelu_erf}) {
      std::vector<float> x(20, 1.0f);
      x[3] = x[18] = std::numeric_limits<float>::quiet_NaN();
      table->recurrent->map(function, x.data(), x.data(), x.size());
      INFO(table->name << ", function " << static_cast<int>(function));
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(x[i]) == (i == 3 || i == 18));
    }
}

TEST_CASE("layer_norm and mix match their formulas at every small length, also in place") {
  for (const KernelTable* table : variants_here())
    for (std::size_t dim = 1; dim <= 70; ++dim) {
      const std::vector<float> x = random_floats(dim, 1), weight = random_floats(dim, 2), bias = random_floats(dim, 3);
      double mean = 0, variance = 0;
      for (const float value : x) mean += double{value} / static_cast<double>(dim);
      for (const float value : x)
        variance += (double{value} - mean) * (double{value} - mean) / static_cast<double>(dim);
      std::vector<float> expected(dim + 1, kUntouched), out(dim, std::nanf("")), in_place = x;
      out.push_back(kUntouched);
      in_place.push_back(kUntouched);
      INFO(table->name << " dim " << dim);
      for (std::size_t i = 0; i < dim; ++i)
        expected[i] = static_cast<float>((double{x[i]} - mean) / std::sqrt(variance + 1e-3) * double{weight[i]} +
                                         double{bias[i]});
      table->recurrent->layer_norm(x.data(), weight.data(), bias.data(), out.data(), dim, 1e-3f);
      table->recurrent->layer_norm(in_place.data(), weight.data(), bias.data(), in_place.data(), dim, 1e-3f);
      require_close(out, expected);
      REQUIRE(same_bits(out, in_place));
      in_place = bias;
      in_place.push_back(kUntouched);
      for (std::size_t i = 0; i < dim; ++i) expected[i] = x[i] + (weight[i] - x[i]) * bias[i];
      table->recurrent->mix(x.data(), weight.data(), bias.data(), out.data(), dim);
      table->recurrent->mix(x.data(), weight.data(), in_place.data(), in_place.data(), dim);
      require_close(out, expected);
      REQUIRE(same_bits(out, in_place));
    }
}

TEST_CASE("layer_norm of numbers with a large mean keeps their differences") {
  std::vector<float> x(64), one(64, 1.0f), zero(64, 0.0f), expected(64), out(64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + static_cast<float>(i % 7);
  reference().layer_norm(x.data(), one.data(), zero.data(), expected.data(), 64, 1e-5f);
  for (const KernelTable* table : variants_here()) {
    INFO(table->name);
    table->recurrent->layer_norm(x.data(), one.data(), zero.data(), out.data(), 64, 1e-5f);
    require_close(out, expected, 1e-4);
  }
}

}  // namespace
}  // namespace troupe::kernels::test
