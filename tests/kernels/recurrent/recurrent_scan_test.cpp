// Scans over tokens: every variant against the formulas of recurrent.h, written out in double, and one call against
// many.
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

constexpr std::size_t kTokens = 37;
constexpr float kUntouched = 12345.0f;

// A row of numbers for each token, with gaps between the rows.
struct Rows {
  std::size_t stride = 0;
  std::vector<float> x;

  float* row(std::size_t token) { return &x[token * stride]; }
  double at(std::size_t token, std::size_t i) const { return double{x[token * stride + i]}; }
};
Rows random_rows(std::size_t width, std::size_t gap, std::uint32_t seed, float deviation = 1.0f) {
  return {width + gap, random_floats(kTokens * (width + gap), seed, deviation)};
}

// The index of number n of a channel's state.
std::size_t place(std::size_t channel, std::size_t n, std::size_t size) {
  return (channel / kStateLanes * size + n) * kStateLanes + channel % kStateLanes;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

void require_close(double value, double expected, double largest) {
  REQUIRE(value == Approx(expected).epsilon(5e-5).margin(5e-5 * largest));
}

double largest_of(const std::vector<double>& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// One scan. formula(state, out): all tokens in double, out [kTokens][width]. run(kernels, in, first token, number,
// state, out, out_stride). `in_place`: which of the rows `out` may be.
template <class Formula, class Run>
void check_scan(const std::vector<Rows>& in, std::size_t width, std::size_t state_floats,
                const std::vector<std::size_t>& in_place, const Formula& formula, const Run& run) {
  const std::vector<float> before = random_floats(state_floats, 99);
  std::vector<double> expected_state(before.begin(), before.end()), expected(kTokens * width);
  formula(expected_state, expected);
  const double largest = largest_of(expected), largest_state = largest_of(expected_state);
  const std::size_t stride = in[0].stride;
  for (const KernelTable* table : variants_here()) {
    INFO(table->name);
    const RecurrentKernels& kernels = *table->recurrent;
    std::vector<Rows> rows = in;
    std::vector<float> state = before;
    Rows out{stride, std::vector<float>(kTokens * stride, kUntouched)};
    run(kernels, rows, 0, kTokens, state.data(), out.row(0), stride);
    for (std::size_t t = 0; t < kTokens; ++t)
      for (std::size_t i = 0; i < stride; ++i) {
        INFO("token " << t << ", number " << i);
        if (i < width)
          require_close(out.at(t, i), expected[t * width + i], largest);
        else
          REQUIRE(out.at(t, i) == double{kUntouched});
      }
    for (std::size_t i = 0; i < state_floats; ++i) require_close(double{state[i]}, expected_state[i], largest_state);

    std::vector<float> state_in_pieces = before;
    Rows out_in_pieces{stride, std::vector<float>(kTokens * stride, kUntouched)};
    for (std::size_t token = 0, count = 1; token < kTokens; token += count, count = count * 2 + 1) {
      count = std::min(count, kTokens - token);
      run(kernels, rows, token, count, state_in_pieces.data(), out_in_pieces.row(token), stride);
    }
    REQUIRE(same_bits(out.x, out_in_pieces.x));
    REQUIRE(same_bits(state, state_in_pieces));

    for (const std::size_t which : in_place) {
      INFO("into input " << which);
      rows = in;
      state = before;
      run(kernels, rows, 0, kTokens, state.data(), rows[which].row(0), stride);
      for (std::size_t t = 0; t < kTokens; ++t)
        REQUIRE(std::memcmp(rows[which].row(t), out.row(t), width * sizeof(float)) == 0);
    }
  }
}

void check_convolutions(bool gated) {
  constexpr std::size_t kChannels = 48, kWeightStride = 53;
  for (std::uint32_t width = 2; width <= kMaxConvolution; ++width) {
    INFO("width " << width);
    const auto weight = random_floats(width * kWeightStride, 2), bias = random_floats(kChannels, 3);
    const std::vector<Rows> in = {random_rows(kChannels, 2, 1), random_rows(kChannels, 2, 4),
                                  random_rows(kChannels, 2, 5)};
    check_scan(
        in, kChannels, (width - 1) * kWeightStride, gated ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{},
        [&](std::vector<double>& history, std::vector<double>& out) {
          for (std::size_t c = 0; c < kChannels; ++c) {
            std::vector<double> x;
            for (std::size_t j = 0; j + 1 < width; ++j) x.push_back(history[j * kWeightStride + c]);
            for (std::size_t t = 0; t < kTokens; ++t) {
              x.push_back(gated ? double{static_cast<float>(in[0].at(t, c) * in[1].at(t, c))} : in[0].at(t, c));
              double sum = double{bias[c]};
              for (std::size_t j = 0; j < width; ++j) sum += double{weight[j * kWeightStride + c]} * x[t + j];
              out[t * kChannels + c] = gated ? sum * in[2].at(t, c) : silu(sum);
            }
            for (std::size_t j = 0; j + 1 < width; ++j) history[j * kWeightStride + c] = x[kTokens + j];
          }
        },
        [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
            float* state, float* out, std::size_t out_stride) {
          kernels.convolve({.x = rows[0].row(first),
                            .x_stride = rows[0].stride,
                            .in_gate = gated ? rows[1].row(first) : nullptr,
                            .out_gate = gated ? rows[2].row(first) : nullptr,
                            .out = out,
                            .out_stride = out_stride,
                            .weight = weight.data(),
                            .weight_stride = kWeightStride,
                            .bias = bias.data(),
                            .history = state,
                            .width = width,
                            .num_channels = kChannels,
                            .num_tokens = count});
        });
  }
}

TEST_CASE("convolutions of every width match their formula, and continue where they stopped") {
  check_convolutions(false);
}

TEST_CASE("convolutions between gates match their formula, also into a gate, and continue where they stopped") {
  check_convolutions(true);
}

// Steps so long that nothing is left of the state, and so short that all of it is.
void add_hard_steps(Rows& dt) {
  const float hard[] = {40.0f, -40.0f, 100.0f, -100.0f};
  for (std::size_t i = 0; i < std::size(hard); ++i) *dt.row(5 + 3 * i) = hard[i];
}

TEST_CASE("Mamba's scan matches its formula, and continues where it stopped") {
  constexpr std::size_t kChannels = 48;
  for (const std::uint32_t size : {1u, 8u, 16u, 33u}) {
    INFO("state of " << size);
    std::vector<Rows> in = {random_rows(kChannels, 5, 1), random_rows(kChannels, 1, 2, 3.0f),
                            random_rows(kChannels, 2, 3), random_rows(size, 4, 4), random_rows(size, 4, 5)};
    add_hard_steps(in[1]);
    std::vector<float> a = random_floats(kChannels * size, 6, 4.0f);
    for (float& value : a) value = -std::abs(value) - 0.01f;
    const auto bias = random_floats(kChannels, 7), skip = random_floats(kChannels, 8);
    check_scan(
        in, kChannels, kChannels * size, {0},
        [&](std::vector<double>& state, std::vector<double>& y) {
          for (std::size_t t = 0; t < kTokens; ++t)
            for (std::size_t c = 0; c < kChannels; ++c) {
              const double x = in[0].at(t, c), d = softplus(in[1].at(t, c) + double{bias[c]});
              double sum = double{skip[c]} * x;
              for (std::size_t n = 0; n < size; ++n) {
                double& h = state[place(c, n, size)];
                h = std::exp(d * double{a[place(c, n, size)]}) * h + d * x * in[3].at(t, n);
                sum += h * in[4].at(t, n);
              }
              y[t * kChannels + c] = sum * silu(in[2].at(t, c));
            }
        },
        [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
            float* state, float* out, std::size_t out_stride) {
          kernels.selective_scan({.x = rows[0].row(first),
                                  .x_stride = rows[0].stride,
                                  .dt = rows[1].row(first),
                                  .dt_stride = rows[1].stride,
                                  .z = rows[2].row(first),
                                  .z_stride = rows[2].stride,
                                  .b = rows[3].row(first),
                                  .c = rows[4].row(first),
                                  .bc_stride = rows[3].stride,
                                  .a = a.data(),
                                  .dt_bias = bias.data(),
                                  .skip = skip.data(),
                                  .y = out,
                                  .y_stride = out_stride,
                                  .state = state,
                                  .state_size = size,
                                  .num_blocks = kChannels / kStateLanes,
                                  .num_tokens = count});
        });
  }
}

TEST_CASE("Mamba-2's scan matches its formula, and continues where it stopped") {
  constexpr double kA = -0.7, kBias = -1.5, kSkip = 0.3;
  // Blocks of 16 channels are taken four at a time, then one by one.
  for (const std::size_t head : {std::size_t{16}, std::size_t{48}, std::size_t{64}, std::size_t{80}})
    for (const std::uint32_t size : {1u, 32u, 65u})
      for (const bool gated : {true, false}) {
        INFO("head of " << head << ", state of " << size << (gated ? ", gated" : ""));
        std::vector<Rows> in = {random_rows(head, 5, 1), random_rows(1, 2, 2, 3.0f), random_rows(head, 3, 3),
                                random_rows(size, 4, 4), random_rows(size, 4, 5)};
        add_hard_steps(in[1]);
        check_scan(
            in, head, head * size, {0},
            [&](std::vector<double>& state, std::vector<double>& y) {
              for (std::size_t t = 0; t < kTokens; ++t)
                for (std::size_t c = 0; c < head; ++c) {
                  const double x = in[0].at(t, c), d = softplus(in[1].at(t, 0) + kBias);
                  double sum = kSkip * x;
                  for (std::size_t n = 0; n < size; ++n) {
                    double& h = state[place(c, n, size)];
                    h = std::exp(d * kA) * h + d * x * in[3].at(t, n);
                    sum += h * in[4].at(t, n);
                  }
                  y[t * head + c] = gated ? sum * silu(in[2].at(t, c)) : sum;
                }
            },
            [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
                float* state, float* out, std::size_t out_stride) {
              kernels.head_scan({.x = rows[0].row(first),
                                 .x_stride = rows[0].stride,
                                 .dt = rows[1].row(first),
                                 .dt_stride = rows[1].stride,
                                 .z = gated ? rows[2].row(first) : nullptr,
                                 .z_stride = rows[2].stride,
                                 .b = rows[3].row(first),
                                 .c = rows[4].row(first),
                                 .bc_stride = rows[3].stride,
                                 .a = static_cast<float>(kA),
                                 .dt_bias = static_cast<float>(kBias),
                                 .skip = static_cast<float>(kSkip),
                                 .y = out,
                                 .y_stride = out_stride,
                                 .state = state,
                                 .state_size = size,
                                 .head_dim = head,
                                 .num_tokens = count});
            });
      }
}

// x to length 1, but for the epsilon, times `scale`.
std::vector<double> unit_length(const Rows& rows, std::size_t token, std::size_t size, double scale) {
  double squares = double{kDeltaEpsilon};
  for (std::size_t i = 0; i < size; ++i) squares += rows.at(token, i) * rows.at(token, i);
  std::vector<double> out;
  for (std::size_t i = 0; i < size; ++i) out.push_back(rows.at(token, i) * scale / std::sqrt(squares));
  return out;
}

TEST_CASE("the gated delta rule matches its formula, and continues where it stopped") {
  constexpr double kA = -0.7, kBias = -1.5, kEpsilon = 1e-3;
  for (const std::size_t size : {std::size_t{16}, std::size_t{48}, kMaxDeltaKey})
    for (const std::size_t width : {std::size_t{16}, std::size_t{64}, std::size_t{80}}) {
      INFO("keys of " << size << ", values of " << width);
      const std::size_t widest = std::max(size, width);
      // v, q, k, alpha, beta, gate
      std::vector<Rows> in = {random_rows(widest, 5, 1),  random_rows(widest, 5, 2),  random_rows(widest, 5, 3),
                              random_rows(1, 2, 4, 3.0f), random_rows(1, 2, 5, 3.0f), random_rows(widest, 5, 6)};
      add_hard_steps(in[3]);
      const auto weight = random_floats(width, 7);
      check_scan(
          in, width, width * size, {5},
          [&](std::vector<double>& state, std::vector<double>& out) {
            for (std::size_t t = 0; t < kTokens; ++t) {
              const std::vector<double> q = unit_length(in[1], t, size, 1 / std::sqrt(static_cast<double>(size)));
              const std::vector<double> k = unit_length(in[2], t, size, 1);
              const double decay = std::exp(kA * softplus(in[3].at(t, 0) + kBias)), share = sigmoid(in[4].at(t, 0));
              double squares = 0;
              std::vector<double> y(width);
              for (std::size_t j = 0; j < width; ++j) {
                double found = 0;
                for (std::size_t i = 0; i < size; ++i) state[place(j, i, size)] *= decay;
                for (std::size_t i = 0; i < size; ++i) found += state[place(j, i, size)] * k[i];
                const double update = share * (in[0].at(t, j) - found);
                for (std::size_t i = 0; i < size; ++i) y[j] += (state[place(j, i, size)] += k[i] * update) * q[i];
                squares += y[j] * y[j];
              }
              const double length = std::sqrt(squares / static_cast<double>(width) + kEpsilon);
              for (std::size_t j = 0; j < width; ++j)
                out[t * width + j] = y[j] / length * double{weight[j]} * silu(in[5].at(t, j));
            }
          },
          [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
              float* state, float* out, std::size_t out_stride) {
            kernels.delta_rule({.q = rows[1].row(first),
                                .k = rows[2].row(first),
                                .v = rows[0].row(first),
                                .stride = rows[0].stride,
                                .alpha = rows[3].row(first),
                                .beta = rows[4].row(first),
                                .step_stride = rows[3].stride,
                                .gate = rows[5].row(first),
                                .gate_stride = rows[5].stride,
                                .a = static_cast<float>(kA),
                                .dt_bias = static_cast<float>(kBias),
                                .norm_weight = weight.data(),
                                .norm_epsilon = static_cast<float>(kEpsilon),
                                .out = out,
                                .out_stride = out_stride,
                                .state = state,
                                .key_size = size,
                                .value_size = width,
                                .num_tokens = count});
          });
    }
}

// Of one token of a head: y = norm(y) weight + bias.
void norm_head(std::vector<double>& y, const std::vector<float>& weight, const std::vector<float>& bias) {
  double mean = 0, variance = 0;
  const auto size = static_cast<double>(y.size());
  for (const double x : y) mean += x / size;
  for (const double x : y) variance += (x - mean) * (x - mean) / size;
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = (y[i] - mean) / std::sqrt(variance + double{kWkvNormEpsilon}) * double{weight[i]} + double{bias[i]};
}

// One to three blocks of 16 values, four at once, four and one, and the most.
constexpr std::size_t kWkvHeads[] = {16, 48, 64, 80, kMaxWkvHead};

TEST_CASE("RWKV-6's scan matches its formula, and continues where it stopped") {
  for (const std::size_t size : kWkvHeads) {
    INFO("head of " << size);
    std::vector<Rows> in;  // r, k, v, w', gate
    std::vector<std::vector<float>> weights;
    for (std::uint32_t i = 0; i < 5; ++i) in.push_back(random_rows(size, 7, i + 1));
    for (std::uint32_t i = 0; i < 4; ++i) weights.push_back(random_floats(size, i + 11));
    check_scan(
        in, size, size * size, {0, 1, 2, 3, 4},
        [&](std::vector<double>& state, std::vector<double>& out) {
          for (std::size_t t = 0; t < kTokens; ++t) {
            std::vector<double> y(size);
            for (std::size_t j = 0; j < size; ++j)
              for (std::size_t i = 0; i < size; ++i) {
                const double r = in[0].at(t, i), kv = in[1].at(t, i) * in[2].at(t, j);
                const double w = std::exp(-std::exp(double{weights[0][i]} + in[3].at(t, i)));
                double& s = state[place(j, i, size)];
                y[j] += r * (double{weights[1][i]} * kv + s);
                s = w * s + kv;
              }
            norm_head(y, weights[2], weights[3]);
            for (std::size_t j = 0; j < size; ++j) out[t * size + j] = y[j] * silu(in[4].at(t, j));
          }
        },
        [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
            float* state, float* out, std::size_t stride) {
          kernels.wkv6({.r = rows[0].row(first),
                        .k = rows[1].row(first),
                        .v = rows[2].row(first),
                        .w = rows[3].row(first),
                        .gate = rows[4].row(first),
                        .stride = stride,
                        .decay = weights[0].data(),
                        .first = weights[1].data(),
                        .norm_weight = weights[2].data(),
                        .norm_bias = weights[3].data(),
                        .out = out,
                        .state = state,
                        .head_size = size,
                        .num_tokens = count});
        });
  }
}

TEST_CASE("RWKV-7's scan matches its formula, and continues where it stopped") {
  for (const std::size_t size : kWkvHeads)
    for (const bool first_layer : {true, false}) {
      INFO("head of " << size << (first_layer ? ", first layer" : ""));
      std::vector<Rows> in;  // r, w', k, v, a', gate, v', v_first
      std::vector<std::vector<float>> weights;
      for (std::uint32_t i = 0; i < 8; ++i) in.push_back(random_rows(size, 7, i + 1));
      for (std::uint32_t i = 0; i < 8; ++i) weights.push_back(random_floats(size, i + 11));
      const auto weight = [&](std::size_t which, std::size_t i) { return double{weights[which][i]}; };
      check_scan(
          in, size, size * size, {0},
          [&](std::vector<double>& state, std::vector<double>& out) {
            for (std::size_t t = 0; t < kTokens; ++t) {
              std::vector<double> w(size), a(size), k(size), kk(size), v(size), y(size);
              double length = 0, bonus = 0;
              for (std::size_t j = 0; j < size; ++j) {
                w[j] = std::exp(-std::exp(-0.5) * sigmoid(weight(0, j) + in[1].at(t, j)));
                a[j] = sigmoid(weight(1, j) + in[4].at(t, j));
                v[j] = in[3].at(t, j);
                if (!first_layer) v[j] += (in[7].at(t, j) - v[j]) * sigmoid(weight(2, j) + in[6].at(t, j));
                kk[j] = in[2].at(t, j) * weight(3, j);
                length += kk[j] * kk[j];
                k[j] = in[2].at(t, j) * (1 + (a[j] - 1) * weight(4, j));
                bonus += in[0].at(t, j) * k[j] * weight(5, j);
              }
              for (double& x : kk) x /= std::sqrt(length);
              for (std::size_t i = 0; i < size; ++i) {
                double removed = 0;
                for (std::size_t j = 0; j < size; ++j) removed += state[place(i, j, size)] * kk[j];
                for (std::size_t j = 0; j < size; ++j) {
                  double& s = state[place(i, j, size)];
                  s = w[j] * s - removed * kk[j] * a[j] + v[i] * k[j];
                  y[i] += s * in[0].at(t, j);
                }
              }
              norm_head(y, weights[6], weights[7]);
              for (std::size_t i = 0; i < size; ++i)
                out[t * size + i] = (y[i] + bonus * v[i]) * (first_layer ? 1 : in[5].at(t, i));
            }
          },
          [&](const RecurrentKernels& kernels, std::vector<Rows>& rows, std::size_t first, std::size_t count,
              float* state, float* out, std::size_t stride) {
            kernels.wkv7({.r = rows[0].row(first),
                          .w = rows[1].row(first),
                          .k = rows[2].row(first),
                          .v = rows[3].row(first),
                          .a = rows[4].row(first),
                          .stride = stride,
                          .gate = first_layer ? nullptr : rows[5].row(first),
                          .v_mix = first_layer ? nullptr : rows[6].row(first),
                          .v_first = rows[7].row(first),
                          .w0 = weights[0].data(),
                          .a0 = weights[1].data(),
                          .v0 = weights[2].data(),
                          .k_k = weights[3].data(),
                          .k_a = weights[4].data(),
                          .r_k = weights[5].data(),
                          .norm_weight = weights[6].data(),
                          .norm_bias = weights[7].data(),
                          .out = out,
                          .state = state,
                          .head_size = size,
                          .num_tokens = count});
          });
    }
}

}  // namespace
}  // namespace troupe::kernels::test
