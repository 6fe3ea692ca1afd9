// Operations of recurrent families (Mamba, RWKV), and elementwise functions that other families also use.
//
// A scan goes token by token, each token's state computed from the one before, in float32: the same code for one row
// and for many, so chunks and batches change no bits. It is vectorised over channels: 16 adjacent ones make a block,
// and a state is stored as [block][n][16]. Rows are addressed as x[t * stride + i]; strides are in floats. Different
// blocks, or heads, may be done by different threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

inline constexpr std::size_t kStateLanes = 16;

// Functions of one number, within a few ulp, without libm. NaN stays NaN.
enum class Function : std::uint8_t {
  sigmoid,  // 1 / (1 + exp(-x))
  silu,     // x sigmoid(x)
  tanh,
  relu_squared,  // max(x, 0)^2
  gelu,          // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): Hendrycks and Gimpel's approximation
  gelu_erf,      // x / 2 (1 + erf(x / sqrt(2))): theirs without approximation
};
// out[i] = function(x[i]). `out` may be `x`.
using Map = void(Function function, const float* x, float* out, std::size_t count);

// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i], over one row. `out` may be `x`.
using LayerNorm = void(const float* x, const float* weight, const float* bias, float* out, std::size_t dim, float eps);

// out[i] = x[i] + (other[i] - x[i]) * mix[i]: RWKV's token shift. `out` may be any of them.
using Mix = void(const float* x, const float* other, const float* mix, float* out, std::size_t count);

// Causal convolution of each channel with its own kernel of `width` taps over time, and SiLU:
// out[t][c] = silu(bias[c] + sum over j < width of weight[j][c] x[t - width + 1 + j][c]), in ascending j.
// With gates: x is x * in_gate, and the sum is multiplied by out_gate instead of SiLU.
struct Convolution {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* in_gate = nullptr;  // both gates or neither; rows of x_stride
  const float* out_gate = nullptr;
  float* out = nullptr;  // may not be x; may be a gate
  std::size_t out_stride = 0;
  const float* weight = nullptr;  // [width][weight_stride]
  std::size_t weight_stride = 0;
  const float* bias = nullptr;   // [channels]
  float* history = nullptr;      // [width - 1][weight_stride]: the previous inputs; updated for the next token
  std::uint32_t width = 0;       // 2 to kMaxConvolution
  std::size_t num_channels = 0;  // a multiple of 16
  std::size_t num_tokens = 0;
};
inline constexpr std::uint32_t kMaxConvolution = 8;
using Convolve = void(const Convolution& convolution);

// Mamba's selective scan (Gu and Dao, 2023, algorithm 2), over some blocks of channels:
//   d = softplus(dt + dt_bias);  h[n] = exp(d a[n]) h[n] + d x b[n];  y = (sum over n of h[n] c[n] + skip x) silu(z)
struct SelectiveScan {
  const float* x = nullptr;  // [tokens][channels]
  std::size_t x_stride = 0;
  const float* dt = nullptr;
  std::size_t dt_stride = 0;
  const float* z = nullptr;
  std::size_t z_stride = 0;
  const float* b = nullptr;  // [tokens][state_size], as c
  const float* c = nullptr;
  std::size_t bc_stride = 0;
  const float* a = nullptr;        // [block][state_size][16], below 0
  const float* dt_bias = nullptr;  // [channels]
  const float* skip = nullptr;     // [channels]
  float* y = nullptr;              // may be x
  std::size_t y_stride = 0;
  float* state = nullptr;  // [block][state_size][16]
  std::uint32_t state_size = 0;
  std::size_t num_blocks = 0;
  std::size_t num_tokens = 0;
};
using SelectiveScanOf = void(const SelectiveScan& scan);

// Mamba-2's scan (Dao and Gu, 2024): one a, dt and skip for all channels of a head. Computes one head; without the
// factor silu(z) if z is null.
//   d = softplus(dt + dt_bias);  h[n] = exp(d a) h[n] + d x b[n];  y = (sum over n of h[n] c[n] + skip x) silu(z)
struct HeadScan {
  const float* x = nullptr;  // [tokens][head_dim]
  std::size_t x_stride = 0;
  const float* dt = nullptr;  // [tokens], dt_stride apart
  std::size_t dt_stride = 0;
  const float* z = nullptr;
  std::size_t z_stride = 0;
  const float* b = nullptr;
  const float* c = nullptr;
  std::size_t bc_stride = 0;
  float a = 0;
  float dt_bias = 0;
  float skip = 0;
  float* y = nullptr;  // may be x
  std::size_t y_stride = 0;
  float* state = nullptr;  // [head_dim / 16][state_size][16]
  std::uint32_t state_size = 0;
  std::size_t head_dim = 0;  // a multiple of 16
  std::size_t num_tokens = 0;
};
using HeadScanOf = void(const HeadScan& scan);

inline constexpr std::size_t kMaxWkvHead = 256;
inline constexpr float kWkvNormEpsilon = 64e-5f;  // of the norm over each head, fixed in RWKV

// RWKV-6's time mixing of one head (Peng et al., "Eagle and Finch", 2024), i over keys and j over values:
//   w[i] = exp(-exp(decay[i] + w'[i]))
//   y[j] = sum over i of r[i] (first[i] k[i] v[j] + s[i][j]);  s[i][j] = w[i] s[i][j] + k[i] v[j]
//   out = (norm over the head(y) * norm_weight + norm_bias) * silu(gate)
struct Wkv6 {
  const float *r = nullptr, *k = nullptr, *v = nullptr, *w = nullptr, *gate = nullptr;  // [tokens][head_size]
  std::size_t stride = 0;                                                               // of all five and of out
  const float *decay = nullptr, *first = nullptr, *norm_weight = nullptr, *norm_bias = nullptr;  // [head_size]
  float* out = nullptr;       // may be any of the five
  float* state = nullptr;     // [head_size / 16][head_size][16]: block of values, key, value
  std::size_t head_size = 0;  // a multiple of 16, at most kMaxWkvHead
  std::size_t num_tokens = 0;
};
using Wkv6Of = void(const Wkv6& wkv);

// RWKV-7's time mixing of one head (Peng et al., "Goose", 2025), j over keys and i over values:
//   w = exp(-exp(-1/2) sigmoid(w0 + w'));  a = sigmoid(a0 + a');  v = v + (v_first - v) sigmoid(v0 + v')
//   kk = k k_k / |k k_k|;  k = k + (a - 1) k k_a
//   s[i][j] = w[j] s[i][j] - (sum over j' of s[i][j'] kk[j']) kk[j] a[j] + v[i] k[j]
//   y[i] = sum over j of s[i][j] r[j]
//   out = (norm over the head(y) * norm_weight + norm_bias + (sum of r k r_k) v) * gate
struct Wkv7 {
  const float *r = nullptr, *w = nullptr, *k = nullptr, *v = nullptr, *a = nullptr;  // [tokens][head_size], w' and a'
  std::size_t stride = 0;                                                            // of all rows here
  const float* gate = nullptr;                                                       // null: 1
  const float* v_mix = nullptr;                                                      // v'; null: v is as it is
  const float* v_first = nullptr;                                                    // of the first layer
  const float *w0 = nullptr, *a0 = nullptr, *v0 = nullptr;                           // [head_size] all of these
  const float *k_k = nullptr, *k_a = nullptr, *r_k = nullptr, *norm_weight = nullptr, *norm_bias = nullptr;
  float* out = nullptr;    // may be r
  float* state = nullptr;  // [head_size / 16][head_size][16]: block of values, key, value
  std::size_t head_size = 0;
  std::size_t num_tokens = 0;
};
using Wkv7Of = void(const Wkv7& wkv);

inline constexpr std::size_t kMaxDeltaKey = 256;
inline constexpr float kDeltaEpsilon = 1e-6f;  // of the norms of q and k, fixed in Qwen3-Next

// The gated delta rule of one head of values (Yang et al., "Gated Delta Networks", 2024), i over keys and j over
// values:
//   q = q / sqrt(sum of q^2 + kDeltaEpsilon) / sqrt(key_size);  k = k / sqrt(sum of k^2 + kDeltaEpsilon)
//   d = exp(a softplus(alpha + dt_bias));  u[j] = sigmoid(beta) (v[j] - d (sum over i of s[i][j] k[i]))
//   s[i][j] = d s[i][j] + k[i] u[j];  y[j] = sum over i of s[i][j] q[i]
//   out = y / sqrt(mean of y^2 + norm_epsilon) * norm_weight * silu(gate)
struct DeltaRule {
  const float *q = nullptr, *k = nullptr;         // [tokens][key_size]
  const float* v = nullptr;                       // [tokens][value_size]
  std::size_t stride = 0;                         // of these three
  const float *alpha = nullptr, *beta = nullptr;  // [tokens], step_stride apart
  std::size_t step_stride = 0;
  const float* gate = nullptr;  // [tokens][value_size]
  std::size_t gate_stride = 0;
  float a = 0;  // at most 0
  float dt_bias = 0;
  const float* norm_weight = nullptr;  // [value_size]
  float norm_epsilon = 0;
  float* out = nullptr;  // may be gate
  std::size_t out_stride = 0;
  float* state = nullptr;      // [value_size / 16][key_size][16]: block of values, key, value
  std::size_t key_size = 0;    // a multiple of 16, at most kMaxDeltaKey
  std::size_t value_size = 0;  // a multiple of 16
  std::size_t num_tokens = 0;
};
using DeltaRuleOf = void(const DeltaRule& rule);

// The functions of one variant. All except the reference's differ in the last bits only.
struct RecurrentKernels {
  Map* map;
  LayerNorm* layer_norm;
  Mix* mix;
  Convolve* convolve;
  SelectiveScanOf* selective_scan;
  HeadScanOf* head_scan;
  Wkv6Of* wkv6;
  Wkv7Of* wkv7;
  DeltaRuleOf* delta_rule;
};

}  // namespace troupe::kernels
