// Scans and what goes with them: every variant against the reference, and one call against many.
#include <limits>

#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

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

TEST_CASE("functions of one number match the reference at every small length, also in place") {
  for (const KernelTable* table : supported_tables())
    for (const Function function :
         {Function::sigmoid, Function::silu, Function::tanh, Function::relu_squared, Function::gelu})
      for (std::size_t count = 1; count <= 35; ++count) {
        std::vector<float> x = hard_numbers(count, count), expected(count), out(count, std::nanf(""));
        reference().map(function, x.data(), expected.data(), count);
        table->recurrent->map(function, x.data(), out.data(), count);
        INFO(table->name << ", function " << static_cast<int>(function) << ", count " << count);
        for (std::size_t i = 0; i < count; ++i) {
          INFO("of " << x[i]);
          REQUIRE(out[i] == Approx(expected[i]).epsilon(1e-5).margin(2e-7));
        }
        table->recurrent->map(function, x.data(), x.data(), count);
        REQUIRE(same_bits(x, out));
      }
}

TEST_CASE("a number that is none stays none") {
  for (const KernelTable* table : supported_tables())
    for (const Function function : {Function::sigmoid, Function::silu, Function::tanh, Function::gelu}) {
      std::vector<float> x(20, 1.0f);
      x[3] = x[18] = std::numeric_limits<float>::quiet_NaN();
      table->recurrent->map(function, x.data(), x.data(), x.size());
      INFO(table->name << ", function " << static_cast<int>(function));
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(x[i]) == (i == 3 || i == 18));
    }
}

TEST_CASE("layer_norm and mix match the reference at every small length, also in place") {
  for (const KernelTable* table : supported_tables())
    for (std::size_t dim = 1; dim <= 70; ++dim) {
      const std::vector<float> x = random_floats(dim, 1), weight = random_floats(dim, 2), bias = random_floats(dim, 3);
      std::vector<float> expected(dim), out(dim, std::nanf("")), in_place = x;
      INFO(table->name << " dim " << dim);
      reference().layer_norm(x.data(), weight.data(), bias.data(), expected.data(), dim, 1e-3f);
      table->recurrent->layer_norm(x.data(), weight.data(), bias.data(), out.data(), dim, 1e-3f);
      table->recurrent->layer_norm(in_place.data(), weight.data(), bias.data(), in_place.data(), dim, 1e-3f);
      require_close(out, expected);
      REQUIRE(same_bits(out, in_place));
      in_place = bias;
      reference().mix(x.data(), weight.data(), bias.data(), expected.data(), dim);
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
  for (const KernelTable* table : supported_tables()) {
    INFO(table->name);
    table->recurrent->layer_norm(x.data(), one.data(), zero.data(), out.data(), 64, 1e-5f);
    require_close(out, expected, 1e-4);
  }
}

// What a scan is given: rows, weights, and the state before. run(kernels, first token, number, state, out).
constexpr std::size_t kTokens = 37;

// All tokens in one call, then in pieces of other lengths: the same bits; and close to the reference.
template <class Run>
void check_scan(std::size_t state_floats, std::size_t out_floats, const Run& run) {
  const std::vector<float> before = random_floats(state_floats, 99);
  std::vector<float> expected_state = before, expected(out_floats);
  run(reference(), 0, kTokens, expected_state, expected);
  for (const KernelTable* table : supported_tables()) {
    INFO(table->name);
    std::vector<float> state = before, out(out_floats, std::nanf(""));
    run(*table->recurrent, 0, kTokens, state, out);
    require_close(out, expected, 5e-5);
    require_close(state, expected_state, 5e-5);
    std::vector<float> state_in_pieces = before, out_in_pieces(out_floats, std::nanf(""));
    for (std::size_t token = 0, count = 1; token < kTokens; token += count, count = count * 2 + 1) {
      count = std::min(count, kTokens - token);
      run(*table->recurrent, token, count, state_in_pieces, out_in_pieces);
    }
    REQUIRE(same_bits(out, out_in_pieces));
    REQUIRE(same_bits(state, state_in_pieces));
  }
}

TEST_CASE("convolutions of every width match the reference and go on where they stopped") {
  constexpr std::size_t kChannels = 48, kStride = 50;
  for (std::uint32_t width = 2; width <= kMaxConvolution; ++width) {
    INFO("width " << width);
    const auto x = random_floats(kTokens * kStride, 1), weight = random_floats(width * kChannels, 2),
               bias = random_floats(kChannels, 3);
    check_scan((width - 1) * kChannels, kTokens * kChannels,
               [&](const RecurrentKernels& kernels, std::size_t first, std::size_t count, std::vector<float>& state,
                   std::vector<float>& out) {
                 kernels.convolve({.x = &x[first * kStride],
                                   .x_stride = kStride,
                                   .out = &out[first * kChannels],
                                   .out_stride = kChannels,
                                   .weight = weight.data(),
                                   .weight_stride = kChannels,
                                   .bias = bias.data(),
                                   .history = state.data(),
                                   .width = width,
                                   .num_channels = kChannels,
                                   .num_tokens = count});
               });
  }
}

std::vector<float> negative(std::vector<float> x) {
  for (float& value : x) value = -std::abs(value) - 0.01f;
  return x;
}

TEST_CASE("Mamba's scan matches the reference and goes on where it stopped") {
  for (const std::uint32_t size : {1u, 8u, 16u, 33u}) {
    constexpr std::size_t kChannels = 48;
    INFO("state of " << size);
    const auto x = random_floats(kTokens * kChannels, 1), dt = random_floats(kTokens * kChannels, 2, 3.0f),
               z = random_floats(kTokens * kChannels, 3), b = random_floats(kTokens * size, 4),
               c = random_floats(kTokens * size, 5), a = negative(random_floats(kChannels * size, 6, 4.0f)),
               bias = random_floats(kChannels, 7), skip = random_floats(kChannels, 8);
    check_scan(kChannels * size, kTokens * kChannels,
               [&](const RecurrentKernels& kernels, std::size_t first, std::size_t count, std::vector<float>& state,
                   std::vector<float>& out) {
                 kernels.selective_scan({.x = &x[first * kChannels],
                                         .x_stride = kChannels,
                                         .dt = &dt[first * kChannels],
                                         .dt_stride = kChannels,
                                         .z = &z[first * kChannels],
                                         .z_stride = kChannels,
                                         .b = &b[first * size],
                                         .c = &c[first * size],
                                         .bc_stride = size,
                                         .a = a.data(),
                                         .dt_bias = bias.data(),
                                         .skip = skip.data(),
                                         .y = &out[first * kChannels],
                                         .y_stride = kChannels,
                                         .state = state.data(),
                                         .state_size = size,
                                         .num_blocks = kChannels / kStateLanes,
                                         .num_tokens = count});
               });
  }
}

TEST_CASE("Mamba-2's scan matches the reference and goes on where it stopped") {
  for (const std::uint32_t size : {1u, 32u, 65u}) {
    constexpr std::size_t kHead = 32;
    for (const bool gated : {true, false}) {
      INFO("state of " << size << (gated ? ", gated" : ""));
      const auto x = random_floats(kTokens * kHead, 1), dt = random_floats(kTokens, 2, 3.0f),
                 z = random_floats(kTokens * kHead, 3), b = random_floats(kTokens * size, 4),
                 c = random_floats(kTokens * size, 5);
      check_scan(kHead * size, kTokens * kHead,
                 [&](const RecurrentKernels& kernels, std::size_t first, std::size_t count, std::vector<float>& state,
                     std::vector<float>& out) {
                   kernels.head_scan({.x = &x[first * kHead],
                                      .x_stride = kHead,
                                      .dt = &dt[first],
                                      .dt_stride = 1,
                                      .z = gated ? &z[first * kHead] : nullptr,
                                      .z_stride = kHead,
                                      .b = &b[first * size],
                                      .c = &c[first * size],
                                      .bc_stride = size,
                                      .a = -0.7f,
                                      .dt_bias = -1.5f,
                                      .skip = 0.3f,
                                      .y = &out[first * kHead],
                                      .y_stride = kHead,
                                      .state = state.data(),
                                      .state_size = size,
                                      .head_dim = kHead,
                                      .num_tokens = count});
                 });
    }
  }
}

TEST_CASE("RWKV-6's scan matches the reference and goes on where it stopped") {
  for (const std::size_t size : {std::size_t{16}, std::size_t{64}, kMaxWkvHead}) {
    INFO("head of " << size);
    std::vector<std::vector<float>> rows, weights;
    for (std::uint64_t i = 0; i < 5; ++i) rows.push_back(random_floats(kTokens * size, i + 1));
    for (std::uint64_t i = 0; i < 4; ++i) weights.push_back(random_floats(size, i + 11));
    check_scan(size * size, kTokens * size,
               [&](const RecurrentKernels& kernels, std::size_t first, std::size_t count, std::vector<float>& state,
                   std::vector<float>& out) {
                 const std::size_t at = first * size;
                 kernels.wkv6({.r = &rows[0][at],
                               .k = &rows[1][at],
                               .v = &rows[2][at],
                               .w = &rows[3][at],
                               .gate = &rows[4][at],
                               .stride = size,
                               .decay = weights[0].data(),
                               .first = weights[1].data(),
                               .norm_weight = weights[2].data(),
                               .norm_bias = weights[3].data(),
                               .out = &out[at],
                               .state = state.data(),
                               .head_size = size,
                               .num_tokens = count});
               });
  }
}

TEST_CASE("RWKV-7's scan matches the reference and goes on where it stopped") {
  for (const std::size_t size : {std::size_t{16}, std::size_t{64}, kMaxWkvHead})
    for (const bool first_layer : {true, false}) {
      INFO("head of " << size << (first_layer ? ", first layer" : ""));
      std::vector<std::vector<float>> rows, weights;
      for (std::uint64_t i = 0; i < 8; ++i) rows.push_back(random_floats(kTokens * size, i + 1));
      for (std::uint64_t i = 0; i < 8; ++i) weights.push_back(random_floats(size, i + 11));
      check_scan(size * size, kTokens * size,
                 [&](const RecurrentKernels& kernels, std::size_t first, std::size_t count, std::vector<float>& state,
                     std::vector<float>& out) {
                   const std::size_t at = first * size;
                   kernels.wkv7({.r = &rows[0][at],
                                 .w = &rows[1][at],
                                 .k = &rows[2][at],
                                 .v = &rows[3][at],
                                 .a = &rows[4][at],
                                 .stride = size,
                                 .gate = first_layer ? nullptr : &rows[5][at],
                                 .v_mix = first_layer ? nullptr : &rows[6][at],
                                 .v_first = &rows[7][at],
                                 .w0 = weights[0].data(),
                                 .a0 = weights[1].data(),
                                 .v0 = weights[2].data(),
                                 .k_k = weights[3].data(),
                                 .k_a = weights[4].data(),
                                 .r_k = weights[5].data(),
                                 .norm_weight = weights[6].data(),
                                 .norm_bias = weights[7].data(),
                                 .out = &out[at],
                                 .state = state.data(),
                                 .head_size = size,
                                 .num_tokens = count});
                 });
    }
}

}  // namespace
}  // namespace troupe::kernels::test
