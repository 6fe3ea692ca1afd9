// The scalar variant's operations on rows: rounding of activations, norms, elementwise work, sampling.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/rows/exp_scalar.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

// Lanes of a row's sums: the order of additions is fixed and the compiler can still use vectors.
constexpr std::size_t kLanes = 16;

float sum_of_lanes(float (&lanes)[kLanes]) {
  for (std::size_t width = kLanes / 2; width != 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Nearest integer, ties to even, limited to [-127, 127]; NaN gives -127.
std::int8_t round_to_int8(float x) {
  const float rounded = (x + kRoundMagic) - kRoundMagic;
  const float low = rounded > -127.0f ? rounded : -127.0f;
  return static_cast<std::int8_t>(low < 127.0f ? low : 127.0f);
}

// Rounds `count` values with one scale; writes codes, and -sum per 16 of them.
float round_group(const float* x, std::size_t count, std::int8_t* codes, std::int32_t* neg_sum16) {
  float max = 0.0f;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
    max = magnitude > max ? magnitude : max;
  }
  const bool tiny = !(max > layout::kSmallestMax);
  const float inverse = tiny ? 0.0f : 127.0f / max;
  for (std::size_t i = 0; i < count; i += 16) {
    std::int32_t sum = 0;
    for (std::size_t j = i; j < i + 16; ++j) {
      codes[j] = round_to_int8(x[j] * inverse);
      sum += codes[j];
    }
    neg_sum16[i / 16] = -sum;
  }
  return tiny ? 0.0f : max / 127.0f;
}

}  // namespace

void prepare_f32(const float* x, std::size_t k, std::size_t row, std::byte* prepared) {
  std::memcpy(prepared + row * layout::float_row_bytes(k), x, k * sizeof(float));
}

void prepare_i8_group32(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group32Row row = layout::group32_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  for (std::size_t g = 0; g < k / 32; ++g) {
    std::int32_t neg_sums[2];
    const float scale = round_group(x + 32 * g, 32, codes + 32 * g, neg_sums);
    store(out + row.scale + 4 * g, scale);
    store(out + row.scaled_sum + 4 * g, scale * static_cast<float>(-(neg_sums[0] + neg_sums[1])));
    for (std::int32_t& sum : neg_sums) sum *= layout::kSumOffset;
    store(out + row.start + 4 * g, neg_sums[0] + neg_sums[1]);
    std::memcpy(out + row.start16 + 8 * g, neg_sums, 8);
  }
}

void prepare_i8_group256(const float* x, std::size_t k, std::size_t row_index, std::byte* prepared) {
  const layout::Group256Row row = layout::group256_row(k);
  std::byte* out = prepared + row_index * row.bytes;
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  for (std::size_t g = 0; g * 256 < k; ++g) {
    const std::size_t count = k - 256 * g < 256 ? k - 256 * g : 256;
    std::int32_t neg_sums[16];
    store(out + row.scale + 4 * g, round_group(x + 256 * g, count, codes + 256 * g, neg_sums));
    std::int32_t neg_sum = 0;
    for (std::size_t i = 0; i < count / 16; ++i) neg_sum += neg_sums[i];
    store(out + row.start + 4 * g, neg_sum);
  }
  std::memset(out + k, 0, row.scale - k);
}

void rms_norm(const float* x, const float* weight, float* out, std::size_t dim, float eps) {
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < dim; ++i) lanes[i % kLanes] += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(sum_of_lanes(lanes) / static_cast<float>(dim) + eps);
  for (std::size_t i = 0; i < dim; ++i) out[i] = x[i] * inverse * weight[i];
}

void rope(float* x, const float* cos, const float* sin, std::size_t rotated) {
  for (std::size_t i = 0; i < rotated / 2; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

void soft_cap(float* x, float cap, std::size_t count) {
  const float inverse = 1.0f / cap;
  for (std::size_t i = 0; i < count; ++i) x[i] = cap * tanh_scalar(x[i] * inverse);
}

void add(float* x, const float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] += y[i];
}

MaxAt arg_max(const float* x, std::size_t count) {
  MaxAt best{-std::numeric_limits<float>::infinity(), 0};
  bool found = false;
  for (std::size_t i = 0; i < count; ++i)
    if (x[i] > best.value || (!found && x[i] == best.value)) {
      best = {x[i], static_cast<std::uint32_t>(i)};
      found = true;
    }
  return best;
}

float exp_tile(const float* x, float max, float inv_temperature, float* out, std::size_t count) {
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = exp_scalar((x[i] - max) * inv_temperature);
    lanes[i % kLanes] += out[i];
  }
  return sum_of_lanes(lanes);
}

void clamp(float* x, float limit, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float above = x[i] > -limit ? x[i] : -limit;  // also NaN
    x[i] = above < limit ? above : limit;
  }
}

std::size_t collect(const float* x, std::size_t count, float least, std::int32_t first_id, std::int32_t* ids,
                    float* values) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!(x[i] >= least)) continue;
    ids[kept] = first_id + static_cast<std::int32_t>(i);
    values[kept++] = x[i];
  }
  return kept;
}

void sums_above(const float* x, std::size_t count, const float (&least)[kNumBounds], float (&sums)[kNumBounds]) {
  for (std::size_t j = 0; j < kNumBounds; ++j) {
    sums[j] = 0;
    for (std::size_t i = 0; i < count; ++i) sums[j] += x[i] >= least[j] ? x[i] : 0.0f;
  }
}

}  // namespace troupe::kernels::scalar
