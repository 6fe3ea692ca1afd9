#include <limits>

#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

const KernelTable& reference() { return *find_table("reference"); }

bool is_reference(const KernelTable& table) { return &table == &reference(); }

TEST_CASE("rms_norm matches the reference at every small length, also in place") {
  for (const KernelTable* table : variants_here())
    for (std::size_t dim = 1; dim <= 140; ++dim) {
      const std::vector<float> x = random_floats(dim, 1), weight = random_floats(dim, 2);
      std::vector<float> expected(dim), out(dim, std::nanf("")), in_place = x;
      reference().rms_norm(x.data(), weight.data(), expected.data(), dim, 1e-5f);
      table->rms_norm(x.data(), weight.data(), out.data(), dim, 1e-5f);
      table->rms_norm(in_place.data(), weight.data(), in_place.data(), dim, 1e-5f);
      INFO(table->name << " dim " << dim);
      for (std::size_t i = 0; i < dim; ++i) REQUIRE(out[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-6));
      REQUIRE(same_bits(out, in_place));
    }
}

TEST_CASE("rope rotates the pairs and changes nothing after them") {
  for (const KernelTable* table : variants_here())
    for (std::size_t rotated = 0; rotated <= 70; rotated += 2) {
      std::vector<float> x = random_floats(rotated + 5, 3), expected = x;
      const std::vector<float> cos = random_floats(rotated / 2, 4), sin = random_floats(rotated / 2, 5);
      reference().rope(expected.data(), cos.data(), sin.data(), rotated);
      table->rope(x.data(), cos.data(), sin.data(), rotated);
      INFO(table->name << " rotated " << rotated);
      for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(x[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-6));
      REQUIRE(std::memcmp(&x[rotated], &expected[rotated], 5 * sizeof(float)) == 0);
    }
}

// `gated` is silu_mul, gelu_mul or relu2_mul, `function` its function of the gate.
void require_gate_matches(SiluMul* KernelTable::*gated, double (*function)(double), double epsilon, double margin) {
  for (const KernelTable* table : variants_here())
    for (std::size_t count = 1; count <= 67; ++count) {
      std::vector<float> gate = random_floats(count, 6, 20.0f);
      if (count > 4) {
        gate[0] = -200.0f;
        gate[1] = 200.0f;
        gate[2] = 0.0f;
        gate[3] = -87.5f;
        gate[4] = -3.7f;
      }
      const std::vector<float> up = random_floats(count, 7);
      std::vector<float> out(count, std::nanf("")), in_place = gate;
      out.push_back(0.25f);  // after the written values
      in_place.push_back(0.25f);
      (table->*gated)(gate.data(), up.data(), out.data(), count);
      (table->*gated)(in_place.data(), up.data(), in_place.data(), count);
      INFO(table->name << " count " << count);
      for (std::size_t i = 0; i < count; ++i)
        REQUIRE(out[i] == Approx(function(double{gate[i]}) * double{up[i]}).epsilon(epsilon).margin(margin));
      REQUIRE(out[count] == 0.25f);
      REQUIRE(same_bits(out, in_place));
    }
}

TEST_CASE("silu_mul matches its formula from the far negative to the far positive") {
  require_gate_matches(
      &KernelTable::silu_mul, [](double x) { return x / (1 + std::exp(-x)); }, 1e-6, 1e-30);
}
TEST_CASE("gelu_mul matches its formula from the far negative to the far positive") {
  // Where it is all but zero, it is exp of a number near -87, and 1 + tanh has lost its digits.
  require_gate_matches(
      &KernelTable::gelu_mul,
      [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }, 1e-5, 1e-12);
}
TEST_CASE("relu2_mul matches its formula from the far negative to the far positive") {
  require_gate_matches(
      &KernelTable::relu2_mul, [](double x) { return x > 0 ? x * x : 0; }, 1e-6, 1e-30);
}

TEST_CASE("NaN in a gate or a capped score stays NaN, and no other value becomes NaN") {
  for (const KernelTable* table : variants_here()) {
    const std::vector<float> up(21, 1.0f);
    std::vector<float> x(21, 0.5f);
    x[3] = x[18] = std::nanf("");
    for (SiluMul* const gated : {table->silu_mul, table->gelu_mul, table->relu2_mul}) {
      std::vector<float> out(x.size());
      gated(x.data(), up.data(), out.data(), x.size());
      INFO(table->name);
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(out[i]) == (i == 3 || i == 18));
    }
    table->soft_cap(x.data(), 30.0f, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(x[i]) == (i == 3 || i == 18));
  }
}

TEST_CASE("soft_cap matches the reference from zero to far beyond the cap, and changes nothing after the end") {
  for (const KernelTable* table : variants_here())
    for (const float cap : {0.5f, 10.0f, 30.0f})
      for (std::size_t count = 1; count <= 67; ++count) {
        std::vector<float> x = random_floats(count + 1, 10, cap);
        if (count > 4) {
          x[0] = 0.0f;
          x[1] = -1e-5f;
          x[2] = 1e30f;
          x[3] = -100.0f * cap;
        }
        std::vector<float> expected = x;
        reference().soft_cap(expected.data(), cap, count);
        table->soft_cap(x.data(), cap, count);
        INFO(table->name << " cap " << cap << " count " << count);
        for (std::size_t i = 0; i <= count; ++i) {
          REQUIRE(x[i] == Approx(expected[i]).epsilon(1e-6).margin(1e-30));
          if (i < count) REQUIRE(std::fabs(x[i]) <= cap);
        }
      }
}

TEST_CASE("add adds, at every small length") {
  for (const KernelTable* table : variants_here())
    for (std::size_t count = 1; count <= 67; ++count) {
      std::vector<float> x = random_floats(count + 1, 8), expected = x;
      const std::vector<float> y = random_floats(count, 9);
      for (std::size_t i = 0; i < count; ++i) expected[i] += y[i];
      table->add(x.data(), y.data(), count);
      INFO(table->name << " count " << count);
      REQUIRE(same_bits(x, expected));
    }
}

TEST_CASE("arg_max returns the lowest index of the largest value and ignores NaN") {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const KernelTable* table : variants_here()) {
    INFO(table->name);
    for (std::size_t count = 1; count <= 67; ++count)
      for (std::size_t at = 0; at < count; ++at) {
        std::vector<float> x(count, -1.0f);
        x[at] = 2.0f;
        if (at + 3 < count) x[at + 3] = 2.0f;
        if (at > 0) x[at - 1] = nan;
        const MaxAt max = table->arg_max(x.data(), count);
        REQUIRE(max.index == at);
        REQUIRE(max.value == 2.0f);
      }
    const std::vector<float> none(5, nan), low{nan, -infinity, -infinity}, high{1.0f, infinity, nan, infinity};
    CHECK(table->arg_max(none.data(), none.size()).index == 0);
    CHECK(table->arg_max(low.data(), low.size()).index == 1);
    CHECK(table->arg_max(high.data(), high.size()).index == 1);
  }
}

TEST_CASE("clamp limits on both sides, turns NaN into the low one and changes nothing after the end") {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const KernelTable* table : variants_here())
    for (std::size_t count = 1; count <= 67; ++count) {
      std::vector<float> x(count + 1, 0.25f);
      for (std::size_t i = 0; i < count; i += 5) x[i] = i % 2 == 0 ? nan : -infinity;
      for (std::size_t i = 1; i < count; i += 5) x[i] = infinity;
      x[count] = 1e30f;
      table->clamp(x.data(), 100, count);
      INFO(table->name << " count " << count);
      for (std::size_t i = 0; i < count; ++i) REQUIRE(x[i] == (i % 5 == 0 ? -100.0f : i % 5 == 1 ? 100.0f : 0.25f));
      REQUIRE(x[count] == 1e30f);
    }
}

TEST_CASE("collect lists the values that are large enough, in order, also in place, and sums_above adds them up") {
  for (const KernelTable* table : variants_here())
    for (std::size_t count = 1; count <= 67; ++count) {
      std::vector<float> x = random_floats(count, static_cast<std::uint32_t>(count));
      x[count / 2] = 0.125f;  // equal to the bound: in
      std::vector<std::int32_t> expected_ids;
      std::vector<float> expected;
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (x[i] < 0.125f) continue;
        expected_ids.push_back(1000 + static_cast<std::int32_t>(i));
        expected.push_back(x[i]);
        sum += static_cast<double>(x[i]);
      }
      INFO(table->name << " count " << count);
      float sums[kNumBounds];
      table->sums_above(x.data(), count, {0.125f, 1e9f, 0.125f, -1e9f}, sums);
      CHECK(sums[0] == Approx(sum));
      CHECK(sums[1] == 0);
      CHECK(sums[2] == sums[0]);
      CHECK(sums[3] == Approx(std::accumulate(x.begin(), x.end(), 0.0)).margin(1e-5));
      std::vector<std::int32_t> ids(count, -7);
      REQUIRE(table->collect(x.data(), count, 0.125f, 1000, ids.data(), x.data()) == expected.size());
      ids.resize(expected.size());
      x.resize(expected.size());
      REQUIRE(ids == expected_ids);
      REQUIRE(x == expected);
    }
}

TEST_CASE("exp_tile is exp within 2 ulp, and its sum is that of its values") {
  for (const KernelTable* table : variants_here()) {
    INFO(table->name);
    std::vector<float> out(kSoftmaxTile);
    double worst = 0;
    for (float begin = -87.3f; begin < 0.0f; begin += 0.37f) {
      std::vector<float> x(kSoftmaxTile);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = begin + 0.37f * static_cast<float>(i) / 1024.0f;
      table->exp_tile(x.data(), 0.0f, 1.0f, out.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
        worst = std::max(worst, std::fabs(out[i] - exact) / ulp);
      }
    }
    CHECK(worst <= 2.0);
    for (std::size_t count = 1; count <= 67; ++count) {
      const std::vector<float> x = random_floats(count, 10, 4.0f);
      std::fill(out.begin(), out.end(), std::nanf(""));
      const float sum = table->exp_tile(x.data(), 3.0f, 0.5f, out.data(), count);
      double expected = 0;
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(out[i] == Approx(std::exp((static_cast<double>(x[i]) - 3.0) * 0.5)).epsilon(1e-6));
        expected += out[i];
      }
      REQUIRE(sum == Approx(expected).epsilon(1e-6));
      REQUIRE(std::isnan(out[count]));
    }
  }
}

TEST_CASE("a forbidden logit (minus infinity) has probability exactly 0, the largest exactly 1") {
  for (const KernelTable* table : variants_here()) {
    std::vector<float> x(20, -std::numeric_limits<float>::infinity()), out(20);
    x[7] = 3.0f;
    INFO(table->name);
    CHECK(table->exp_tile(x.data(), 3.0f, 1.0f, out.data(), x.size()) == 1.0f);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(out[i] == (i == 7 ? 1.0f : 0.0f));
  }
}

TEST_CASE("log_positive is the natural logarithm within 2 ulp") {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000; bits < 0x7f800000; bits += 9973) {
    const float x = float_of_bits(bits);
    const double exact = std::log(static_cast<double>(x));
    if (exact == 0) {
      REQUIRE(log_positive(x) == 0.0f);
      continue;
    }
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::fabs(log_positive(x) - exact) / ulp);
  }
  CHECK(worst <= 2.0);
  CHECK(log_positive(1.0f) == 0.0f);
}

TEST_CASE("variants are found by name, and the best one can run here") {
  for (const KernelTable* table : all_tables()) CHECK(find_table(table->name) == table);
  CHECK(find_table("avx9000") == nullptr);
  CHECK(is_supported(best_table()));
  CHECK_FALSE(is_reference(best_table()));
  CHECK(supported_tables().size() >= 2);  // reference and scalar run everywhere
}

}  // namespace
}  // namespace troupe::kernels::test
