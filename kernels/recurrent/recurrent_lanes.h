// The operations of recurrent.h and the gates of kernels.h, which use the same elementwise functions, written once for
// all instruction sets: in terms of `Lanes`, a vector of 16 numbers, which the including file defines together with
//   load, store, set1, add, sub, mul, div, fma (a * b + c), max, exp, tanh, exp2_below_0 (2^x for x <= 0, 0 from -126
//   down), root (square root), sum (of all lanes, in all lanes)
// in an anonymous namespace, before it includes this header. Everything here is in an anonymous namespace, too: each
// file has its own copy.
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>

#include "kernels/recurrent/recurrent.h"
#include "kernels/rows/exp_scalar.h"

namespace troupe::kernels {
namespace {

constexpr std::size_t kLanes = kStateLanes;

// Loads the rest of a row, fewer than 16 numbers, padded with zeros.
inline Lanes load_some(const float* x, std::size_t count) {
  if (count >= kLanes) return load(x);
  float padded[kLanes] = {};
  std::memcpy(padded, x, count * sizeof(float));
  return load(padded);
}
inline void store_some(float* out, Lanes x, std::size_t count) {
  if (count >= kLanes) return store(out, x);
  float padded[kLanes];
  store(padded, x);
  std::memcpy(out, padded, count * sizeof(float));
}

// Prefetches the same numbers of the row `ahead` tokens later, if there is one. A scan reads some cache lines of a row;
// those of the next row are a whole row of the model further, too far for hardware prefetchers. Always inlined: GCC
// treats a function that only prefetches as one without effect, and drops its calls.
[[gnu::always_inline]] inline void fetch(const float* x, std::size_t count, std::size_t stride, std::size_t t,
                                         std::size_t ahead, std::size_t num_tokens) {
  if (t + ahead >= num_tokens) return;
  for (std::size_t i = 0; i < count; i += kLanes) __builtin_prefetch(x + ahead * stride + i);
}

inline Lanes zero() { return set1(0.0f); }
inline Lanes one() { return set1(1.0f); }
inline Lanes negative(Lanes x) { return sub(zero(), x); }
inline Lanes sigmoid(Lanes x) { return div(one(), add(one(), exp(negative(x)))); }
inline Lanes silu(Lanes x) { return div(x, add(one(), exp(negative(x)))); }

// ln(1 + u) for u from 0 to 1: 2 atanh(u / (2 + u)) as a series, which has no cancellation for small u.
inline Lanes log_one_plus(Lanes u) {
  const Lanes s = div(u, add(set1(2.0f), u));
  const Lanes q = mul(s, s);
  Lanes p = set1(2.0f / 17);
  p = fma(p, q, set1(2.0f / 15));
  p = fma(p, q, set1(2.0f / 13));
  p = fma(p, q, set1(2.0f / 11));
  p = fma(p, q, set1(2.0f / 9));
  p = fma(p, q, set1(2.0f / 7));
  p = fma(p, q, set1(2.0f / 5));
  p = fma(p, q, set1(2.0f / 3));
  return fma(mul(p, q), s, mul(set1(2.0f), s));
}
// ln(1 + exp(x)) = max(x, 0) + ln(1 + exp(-|x|)).
inline Lanes softplus(Lanes x) {
  const Lanes magnitude = max(x, negative(x));
  return add(max(x, zero()), log_one_plus(exp(negative(magnitude))));
}

// The part of a normal distribution above x >= 0, erfc(x / sqrt(2)) / 2, within 2e-7 of it: the fit of Numerical
// Recipes (Press et al., "erfcc").
inline Lanes upper_tail(Lanes x) {
  constexpr float kFit[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                            -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
  const Lanes t = div(one(), fma(set1(0.5f * 0.70710678f), x, one()));
  Lanes p = set1(kFit[0]);
  for (std::size_t i = 1; i < std::size(kFit); ++i) p = fma(p, t, set1(kFit[i]));
  return mul(mul(set1(0.5f), t), exp(fma(mul(set1(-0.5f), x), x, p)));
}

inline Lanes apply(Function function, Lanes x) {
  switch (function) {
    case Function::sigmoid:
      return sigmoid(x);
    case Function::silu:
      return silu(x);
    case Function::tanh:
      return tanh(x);
    case Function::relu_squared: {
      const Lanes positive = max(x, zero());
      return mul(positive, positive);
    }
    case Function::gelu_erf: {
      const Lanes magnitude = max(x, negative(x));
      return fma(negative(magnitude), upper_tail(magnitude), max(x, zero()));
    }
    case Function::gelu:
      break;
  }
  return div(x, add(one(), exp(mul(x, fma(set1(kGelu3), mul(x, x), set1(kGelu1))))));
}

void map_rows(Function function, const float* x, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes)
    store_some(out + i, apply(function, load_some(x + i, count - i)), count - i);
}

// silu_mul, gelu_mul and relu2_mul of kernels.h: out[i] = function(gate[i]) * up[i].
template <Function function>
void gate_rows(const float* gate, const float* up, float* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, mul(apply(function, load(gate + i)), load(up + i)));
  if (i == count) return;
  const Lanes open = apply(function, load_some(gate + i, count - i));
  store_some(out + i, mul(open, load_some(up + i, count - i)), count - i);
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float* out, std::size_t dim, float eps) {
  Lanes total = zero();
  for (std::size_t i = 0; i < dim; i += kLanes) total = add(total, load_some(x + i, dim - i));
  const Lanes size = set1(static_cast<float>(dim));
  const Lanes mean = div(sum(total), size);
  Lanes squares = zero();
  std::size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const Lanes centred = sub(load(x + i), mean);
    squares = fma(centred, centred, squares);
  }
  if (i < dim) {  // the padding must not count
    float rest[kLanes] = {};
    store_some(rest, sub(load_some(x + i, dim - i), mean), dim - i);
    squares = fma(load(rest), load(rest), squares);
  }
  const Lanes scale = div(one(), root(add(div(sum(squares), size), set1(eps))));
  for (i = 0; i < dim; i += kLanes) {
    const std::size_t count = dim - i;
    const Lanes normed = mul(sub(load_some(x + i, count), mean), scale);
    store_some(out + i, fma(normed, load_some(weight + i, count), load_some(bias + i, count)), count);
  }
}

void mix_rows(const float* x, const float* other, const float* mix, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Lanes here = load_some(x + i, count - i);
    const Lanes distance = sub(load_some(other + i, count - i), here);
    store_some(out + i, fma(distance, load_some(mix + i, count - i), here), count - i);
  }
}

template <bool kGated>
void convolve_some(const Convolution& c) {
  const std::size_t before = c.width - 1;
  for (std::size_t channel = 0; channel < c.num_channels; channel += kLanes) {
    Lanes weight[kMaxConvolution], seen[kMaxConvolution];
    for (std::size_t j = 0; j < c.width; ++j) weight[j] = load(c.weight + j * c.weight_stride + channel);
    for (std::size_t j = 0; j < before; ++j) seen[j] = load(c.history + j * c.weight_stride + channel);
    const Lanes bias = load(c.bias + channel);
    for (std::size_t t = 0; t < c.num_tokens; ++t) {
      const std::size_t at = t * c.x_stride + channel;
      seen[before] = load(c.x + at);
      if (kGated) {  // rounded at once, as `history` holds it: the reference's lanes are double
        float product[kLanes];
        store(product, mul(seen[before], load(c.in_gate + at)));
        seen[before] = load(product);
      }
      Lanes total = bias;
      for (std::size_t j = 0; j < c.width; ++j) total = fma(weight[j], seen[j], total);
      store(c.out + t * c.out_stride + channel, kGated ? mul(total, load(c.out_gate + at)) : silu(total));
      for (std::size_t j = 0; j < before; ++j) seen[j] = seen[j + 1];
    }
    for (std::size_t j = 0; j < before; ++j) store(c.history + j * c.weight_stride + channel, seen[j]);
  }
}

void convolve_channels(const Convolution& c) { c.in_gate ? convolve_some<true>(c) : convolve_some<false>(c); }

void scan_blocks(const SelectiveScan& s) {
  for (std::size_t block = 0; block < s.num_blocks; ++block) {
    const std::size_t channel = block * kLanes;
    const float* a = s.a + block * s.state_size * kLanes;
    float* state = s.state + block * s.state_size * kLanes;
    const Lanes dt_bias = load(s.dt_bias + channel), skip = load(s.skip + channel);
    for (std::size_t t = 0; t < s.num_tokens; ++t) {
      fetch(s.x + t * s.x_stride + channel, kLanes, s.x_stride, t, 4, s.num_tokens);
      fetch(s.dt + t * s.dt_stride + channel, kLanes, s.dt_stride, t, 4, s.num_tokens);
      fetch(s.z + t * s.z_stride + channel, kLanes, s.z_stride, t, 4, s.num_tokens);
      const Lanes x = load(s.x + t * s.x_stride + channel);
      const Lanes d = softplus(add(load(s.dt + t * s.dt_stride + channel), dt_bias));
      const Lanes dx = mul(d, x), d_log2 = mul(d, set1(1.44269504f));
      const float *b = s.b + t * s.bc_stride, *c = s.c + t * s.bc_stride;
      Lanes y = mul(skip, x);
      for (std::size_t n = 0; n < s.state_size; ++n) {
        const Lanes decay = exp2_below_0(mul(d_log2, load(a + n * kLanes)));
        const Lanes h = fma(decay, load(state + n * kLanes), mul(dx, set1(b[n])));
        store(state + n * kLanes, h);
        y = fma(h, set1(c[n]), y);
      }
      store(s.y + t * s.y_stride + channel, mul(y, silu(load(s.z + t * s.z_stride + channel))));
    }
  }
}

// Calls fn.template operator()<N>(first block) for all blocks of a head, N = 4 blocks at once as long as possible, else
// 1: the four share common values, and their independent chains hide the latency of additions.
template <class Fn>
inline void for_blocks(std::size_t num_blocks, const Fn& fn) {
  std::size_t block = 0;
  for (; block + 4 <= num_blocks; block += 4) fn.template operator()<4>(block);
  for (; block < num_blocks; ++block) fn.template operator()<1>(block);
}

void scan_head(const HeadScan& s) {
  const Lanes skip = set1(s.skip);
  for_blocks(s.head_dim / kLanes, [&]<std::size_t N>(std::size_t block) {
    const std::size_t channel = block * kLanes, state_floats = s.state_size * kLanes;
    float* state = s.state + block * state_floats;
    for (std::size_t t = 0; t < s.num_tokens; ++t) {
      const Lanes d = softplus(add(set1(s.dt[t * s.dt_stride]), set1(s.dt_bias)));
      const Lanes decay = exp(mul(d, set1(s.a)));
      const float *b = s.b + t * s.bc_stride, *c = s.c + t * s.bc_stride;
      Lanes dx[N], y[N];
      for (std::size_t i = 0; i < N; ++i) {
        const Lanes x = load(s.x + t * s.x_stride + channel + i * kLanes);
        dx[i] = mul(d, x);
        y[i] = mul(skip, x);
      }
      for (std::size_t n = 0; n < s.state_size; ++n) {
        const Lanes b_n = set1(b[n]), c_n = set1(c[n]);
        for (std::size_t i = 0; i < N; ++i) {
          float* at = state + i * state_floats + n * kLanes;
          const Lanes h = fma(decay, load(at), mul(dx[i], b_n));
          store(at, h);
          y[i] = fma(h, c_n, y[i]);
        }
      }
      for (std::size_t i = 0; i < N; ++i) {
        if (s.z) y[i] = mul(y[i], silu(load(s.z + t * s.z_stride + channel + i * kLanes)));
        store(s.y + t * s.y_stride + channel + i * kLanes, y[i]);
      }
    }
  });
}

// out = norm over the head(y) * weight + bias. `out` may be y.
void norm_head(const float* y, const float* weight, const float* bias, float* out, std::size_t size) {
  layer_norm_row(y, weight, bias, out, size, kWkvNormEpsilon);
}

void wkv6_head(const Wkv6& h) {
  const std::size_t size = h.head_size;
  const float* const inputs[] = {h.r, h.k, h.v, h.w, h.gate};
  alignas(64) float w[kMaxWkvHead], y[kMaxWkvHead];
  for (std::size_t t = 0; t < h.num_tokens; ++t) {
    const std::size_t row = t * h.stride;
    const float *r = h.r + row, *k = h.k + row, *v = h.v + row;
    for (const float* x : inputs) fetch(x + row, size, h.stride, t, 1, h.num_tokens);
    Lanes bonus = zero();  // sum over i of r[i] first[i] k[i]
    for (std::size_t i = 0; i < size; i += kLanes) {
      const Lanes decay = add(load(h.decay + i), load(h.w + row + i));
      store(w + i, exp(negative(exp(decay))));
      bonus = fma(mul(load(r + i), load(h.first + i)), load(k + i), bonus);
    }
    bonus = sum(bonus);
    for_blocks(size / kLanes, [&]<std::size_t N>(std::size_t block) {
      float* state = h.state + block * size * kLanes;
      Lanes value[N], total[N];
      for (std::size_t b = 0; b < N; ++b) {
        value[b] = load(v + (block + b) * kLanes);
        total[b] = mul(bonus, value[b]);
      }
      for (std::size_t i = 0; i < size; ++i) {
        const Lanes r_i = set1(r[i]), w_i = set1(w[i]), k_i = set1(k[i]);
        for (std::size_t b = 0; b < N; ++b) {
          float* at = state + (b * size + i) * kLanes;
          const Lanes s = load(at);
          total[b] = fma(r_i, s, total[b]);
          store(at, fma(w_i, s, mul(k_i, value[b])));
        }
      }
      for (std::size_t b = 0; b < N; ++b) store(y + (block + b) * kLanes, total[b]);
    });
    norm_head(y, h.norm_weight, h.norm_bias, y, size);
    for (std::size_t i = 0; i < size; i += kLanes)
      store(h.out + row + i, mul(load(y + i), silu(load(h.gate + row + i))));
  }
}

void wkv7_head(const Wkv7& h) {
  constexpr float kDecay = -0.606531f;  // -exp(-1/2), rounded as in the reference implementation
  const std::size_t size = h.head_size;
  const float* const inputs[] = {h.r, h.w, h.k, h.v, h.a, h.gate, h.v_mix, h.v_mix ? h.v_first : nullptr};
  alignas(64) float w[kMaxWkvHead], key[kMaxWkvHead], value[kMaxWkvHead], kk[kMaxWkvHead], kka[kMaxWkvHead],
      y[kMaxWkvHead];
  for (std::size_t t = 0; t < h.num_tokens; ++t) {
    const std::size_t row = t * h.stride;
    const float* r = h.r + row;
    for (const float* x : inputs)
      if (x) fetch(x + row, size, h.stride, t, 1, h.num_tokens);
    Lanes squares = zero(), bonus = zero();
    for (std::size_t i = 0; i < size; i += kLanes) {
      const Lanes a = sigmoid(add(load(h.a0 + i), load(h.a + row + i)));
      const Lanes k = load(h.k + row + i);
      store(w + i, exp(mul(set1(kDecay), sigmoid(add(load(h.w0 + i), load(h.w + row + i))))));
      const Lanes scaled = mul(k, load(h.k_k + i));
      squares = fma(scaled, scaled, squares);
      store(kk + i, scaled);
      store(kka + i, a);
      const Lanes damped = mul(k, load(h.k_a + i));
      const Lanes mixed = add(k, sub(mul(a, damped), damped));
      store(key + i, mixed);
      bonus = fma(mul(mixed, load(r + i)), load(h.r_k + i), bonus);
      Lanes v = load(h.v + row + i);
      if (h.v_mix) {
        const Lanes part = sigmoid(add(load(h.v0 + i), load(h.v_mix + row + i)));
        v = fma(sub(load(h.v_first + row + i), v), part, v);
      }
      store(value + i, v);
    }
    bonus = sum(bonus);
    const Lanes length = max(root(sum(squares)), set1(1e-12f));
    for (std::size_t i = 0; i < size; i += kLanes) {
      const Lanes direction = div(load(kk + i), length);
      store(kk + i, direction);
      store(kka + i, mul(direction, load(kka + i)));
    }
    for_blocks(size / kLanes, [&]<std::size_t N>(std::size_t block) {
      float* state = h.state + block * size * kLanes;
      Lanes v[N], removed[N], total[N];
      for (std::size_t b = 0; b < N; ++b) {
        v[b] = load(value + (block + b) * kLanes);
        removed[b] = total[b] = zero();
      }
      for (std::size_t j = 0; j < size; ++j) {
        const Lanes kk_j = set1(kk[j]);
        for (std::size_t b = 0; b < N; ++b) removed[b] = fma(load(state + (b * size + j) * kLanes), kk_j, removed[b]);
      }
      for (std::size_t j = 0; j < size; ++j) {
        const Lanes w_j = set1(w[j]), key_j = set1(key[j]), kka_j = set1(kka[j]), r_j = set1(r[j]);
        for (std::size_t b = 0; b < N; ++b) {
          float* at = state + (b * size + j) * kLanes;
          const Lanes s = fma(load(at), w_j, sub(mul(v[b], key_j), mul(removed[b], kka_j)));
          store(at, s);
          total[b] = fma(s, r_j, total[b]);
        }
      }
      for (std::size_t b = 0; b < N; ++b) store(y + (block + b) * kLanes, total[b]);
    });
    norm_head(y, h.norm_weight, h.norm_bias, y, size);
    for (std::size_t i = 0; i < size; i += kLanes) {
      Lanes out = fma(bonus, load(value + i), load(y + i));
      if (h.gate) out = mul(out, load(h.gate + row + i));
      store(h.out + row + i, out);
    }
  }
}

// out = x / sqrt(sum of x^2 + kDeltaEpsilon) * scale.
void to_unit_length(const float* x, float* out, std::size_t size, Lanes scale) {
  Lanes squares = zero();
  for (std::size_t i = 0; i < size; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const Lanes factor = div(scale, root(add(sum(squares), set1(kDeltaEpsilon))));
  for (std::size_t i = 0; i < size; i += kLanes) store(out + i, mul(load(x + i), factor));
}

// found = s^T k for some blocks of a state.
template <std::size_t N>
inline void recall(const float* state, std::size_t size, const float* k, Lanes (&found)[N]) {
  for (std::size_t b = 0; b < N; ++b) found[b] = zero();
  for (std::size_t i = 0; i < size; ++i) {
    const Lanes k_i = set1(k[i]);
    for (std::size_t b = 0; b < N; ++b) found[b] = fma(load(state + (b * size + i) * kLanes), k_i, found[b]);
  }
}

// s = decay s + k update^T and y = s^T q.
template <std::size_t N>
inline void update_state(float* state, std::size_t size, Lanes decay, const float* k, const float* q,
                         const Lanes (&update)[N], Lanes (&y)[N]) {
  for (std::size_t b = 0; b < N; ++b) y[b] = zero();
  for (std::size_t i = 0; i < size; ++i) {
    const Lanes k_i = set1(k[i]), q_i = set1(q[i]);
    for (std::size_t b = 0; b < N; ++b) {
      float* const at = state + (b * size + i) * kLanes;
      const Lanes s = fma(decay, load(at), mul(k_i, update[b]));
      store(at, s);
      y[b] = fma(s, q_i, y[b]);
    }
  }
}

// Tokens whose q and k are kept beside a part of the state, four blocks or less, in a first-level cache.
constexpr std::size_t kDeltaTokens = 8;

void delta_rule_head(const DeltaRule& h) {
  const std::size_t size = h.key_size;
  const Lanes q_scale = div(one(), root(set1(static_cast<float>(size))));
  alignas(64) float q[kDeltaTokens * kMaxDeltaKey], k[kDeltaTokens * kMaxDeltaKey];
  Lanes decay[kDeltaTokens], share[kDeltaTokens], squares[kDeltaTokens];
  for (std::size_t first = 0; first < h.num_tokens; first += kDeltaTokens) {
    const std::size_t count = h.num_tokens - first < kDeltaTokens ? h.num_tokens - first : kDeltaTokens;
    for (std::size_t t = 0; t < count; ++t) {
      const std::size_t row = first + t;
      fetch(h.q + row * h.stride, size, h.stride, row, 1, h.num_tokens);
      fetch(h.k + row * h.stride, size, h.stride, row, 1, h.num_tokens);
      fetch(h.v + row * h.stride, h.value_size, h.stride, row, 0, h.num_tokens);
      fetch(h.gate + row * h.gate_stride, h.value_size, h.gate_stride, row, 0, h.num_tokens);
      to_unit_length(h.q + row * h.stride, q + t * size, size, q_scale);
      to_unit_length(h.k + row * h.stride, k + t * size, size, one());
      const Lanes step = softplus(add(set1(h.alpha[row * h.step_stride]), set1(h.dt_bias)));
      decay[t] = exp(mul(step, set1(h.a)));
      share[t] = sigmoid(set1(h.beta[row * h.step_stride]));
      squares[t] = zero();
    }
    for_blocks(h.value_size / kLanes, [&]<std::size_t N>(std::size_t block) {
      float* const state = h.state + block * size * kLanes;
      Lanes found[N], update[N], y[N];
      for (std::size_t t = 0; t < count; ++t) {
        const std::size_t row = first + t, channel = block * kLanes;
        const float *k_t = k + t * size, *q_t = q + t * size;
        const float *v = h.v + row * h.stride + channel, *gate = h.gate + row * h.gate_stride + channel;
        float* const out = h.out + row * h.out_stride + channel;
        recall(state, size, k_t, found);
        for (std::size_t b = 0; b < N; ++b)
          update[b] = mul(share[t], sub(load(v + b * kLanes), mul(decay[t], found[b])));
        update_state(state, size, decay[t], k_t, q_t, update, y);
        // Weighted and gated, y waits in `out` for the norm's factor, which needs all blocks.
        for (std::size_t b = 0; b < N; ++b) {
          squares[t] = fma(y[b], y[b], squares[t]);
          const Lanes opened = mul(load(h.norm_weight + channel + b * kLanes), silu(load(gate + b * kLanes)));
          store(out + b * kLanes, mul(y[b], opened));
        }
      }
    });
    for (std::size_t t = 0; t < count; ++t) {
      float* const out = h.out + (first + t) * h.out_stride;
      const Lanes mean = div(sum(squares[t]), set1(static_cast<float>(h.value_size)));
      const Lanes factor = div(one(), root(add(mean, set1(h.norm_epsilon))));
      for (std::size_t i = 0; i < h.value_size; i += kLanes) store(out + i, mul(load(out + i), factor));
    }
  }
}

constexpr RecurrentKernels kRecurrentKernels{map_rows,  layer_norm_row, mix_rows,  convolve_channels, scan_blocks,
                                             scan_head, wkv6_head,      wkv7_head, delta_rule_head};

}  // namespace
}  // namespace troupe::kernels

// Defines these functions in a variant's namespace.
#define TROUPE_RECURRENT_KERNELS                                                      \
  const RecurrentKernels recurrent = kRecurrentKernels;                               \
  void silu_mul(const float* gate, const float* up, float* out, std::size_t count) {  \
    gate_rows<Function::silu>(gate, up, out, count);                                  \
  }                                                                                   \
  void gelu_mul(const float* gate, const float* up, float* out, std::size_t count) {  \
    gate_rows<Function::gelu>(gate, up, out, count);                                  \
  }                                                                                   \
  void relu2_mul(const float* gate, const float* up, float* out, std::size_t count) { \
    gate_rows<Function::relu_squared>(gate, up, out, count);                          \
  }
