// Shared by the kernel tests: random weights in file format, packed matrices, prepared rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/kernels.h"
#include "tests/support/variants.h"

namespace troupe::kernels::test {

using troupe::test::variant_built;
using troupe::test::variant_here;
using troupe::test::variants_here;

// Zeroed bytes at a 64-byte boundary, without slack at the end: a sanitizer detects every overrun.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size)
      : size_(size), data_(static_cast<std::byte*>(::operator new (size == 0 ? 1 : size, std::align_val_t{64}))) {
    std::memset(data_, 0, size);
  }
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::size_t size_;
  std::byte* data_;
};

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed, float deviation = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

// The offsets of the scales in a type's group: float16, or the exponent of MXFP4.
inline std::vector<std::size_t> scale_offsets(WeightType type) {
  switch (type) {
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
    case WeightType::i2_s:
      return {};
    case WeightType::q8_0:
    case WeightType::q4_0:
    case WeightType::q5_0:
    case WeightType::iq4_nl:
    case WeightType::iq4_xs:
    case WeightType::mxfp4:
      return {0};
    case WeightType::q4_1:
    case WeightType::q5_1:
    case WeightType::q4_k:
    case WeightType::q5_k:
      return {0, 2};
    case WeightType::q2_k:
      return {80, 82};
    case WeightType::q3_k:
    case WeightType::q6_k:
    case WeightType::tq1_0:
    case WeightType::tq2_0:
      return {info(type).group_bytes - std::size_t{2}};
  }
  return {};
}
inline std::size_t scale_bytes(WeightType type) { return type == WeightType::mxfp4 ? 1 : 2; }

// Random codes under scales of a usual size, as in a file.
inline std::vector<std::byte> random_weights(WeightType type, std::size_t rows, std::size_t k, std::uint32_t seed) {
  const WeightTypeInfo& t = info(type);
  std::mt19937 rng(seed);
  std::vector<std::byte> out(rows * k / t.group_size * t.group_bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(rng());
  std::normal_distribution<float> normal;
  const auto scale = [&](std::byte* at) { store(at, half_of_float(0.01f * (1.0f + std::fabs(normal(rng))))); };
  for (std::size_t at = 0; at < out.size(); at += t.group_bytes) {
    std::byte* group = out.data() + at;
    switch (type) {
      case WeightType::f32:
        store(group, normal(rng));
        break;
      case WeightType::f16:
        store(group, half_of_float(normal(rng)));
        break;
      case WeightType::bf16:
        store(group, static_cast<std::uint16_t>(bits_of_float(normal(rng)) >> 16));
        break;
      case WeightType::mxfp4:
        store(group, static_cast<std::uint8_t>(118 + rng() % 6));
        break;
      default:
        for (const std::size_t offset : scale_offsets(type)) scale(group + offset);
        break;
    }
  }
  return out;
}

// Ternary groups of one row get the scale of its first group, as the tile layout needs.
inline void share_row_scales(WeightType type, std::size_t rows, std::size_t k, std::vector<std::byte>& file) {
  if (type == WeightType::i2_s) return;  // its scale is the tensor's
  const WeightTypeInfo& t = info(type);
  const std::size_t groups = k / t.group_size;
  for (std::size_t g = 0; g < rows * groups; ++g)
    std::memcpy(&file[(g + 1) * t.group_bytes - 2], &file[(g / groups * groups + 1) * t.group_bytes - 2], 2);
}

struct PackedMatrix {
  PackedMatrix(WeightType type, Layout layout, const std::vector<std::byte>& file, std::size_t rows, std::size_t k)
      : body(packed_bytes(type, layout, rows, k)),
        view{.type = type, .layout = layout, .rows = rows, .k = k, .body = body.data()} {
    pack_panels(type, layout, file.data(), rows, k, 0, view.num_panels(), body.data());
  }
  AlignedBytes body;
  MatrixView view;
};

struct PreparedRows {
  PreparedRows(const KernelTable& table, Activation activation, const std::vector<float>& x, std::size_t rows,
               std::size_t k)
      : activation(activation), k(k), bytes(prepared_bytes(activation, k, rows)) {
    std::memset(bytes.data(), 0x55, bytes.size());  // as if from an earlier step
    table.prepare[static_cast<std::size_t>(activation)](x.data(), k, k, 0, rows, bytes.data());
  }
  // Where row r begins, of the forms that keep rows apart.
  const std::byte* row(std::size_t r) const {
    if (activation == Activation::i8_group256_tables)
      return bytes.data() + layout::lookup_row(k, kLookupRows).codes + r * layout::group256_row(k).bytes;
    return bytes.data() + prepared_bytes(activation, k, r);
  }

  Activation activation;
  std::size_t k;
  AlignedBytes bytes;
};

// The element of row r at k = i in the forms with 16 rows side by side; `plane` 1: the low part of a split value.
inline float tiled_bf16(const PreparedRows& a, std::size_t r, std::size_t i, std::size_t plane = 0) {
  const std::size_t plane_bytes = layout::bf16_tiles_bytes(a.k);
  const std::size_t word = layout::run_word(i % 32);
  const std::byte* tile =
      a.bytes.data() + prepared_bytes(a.activation, a.k, r / 16 * 16) + plane * plane_bytes + i / 32 * layout::kTile;
  return float_of_bf16(load<std::uint16_t>(tile + word / 2 * layout::kLine + r % 16 * 4 + word % 2 * 2));
}
inline std::int8_t tiled_code(const PreparedRows& a, std::size_t r, std::size_t i) {
  const std::byte* tile = a.bytes.data() + prepared_bytes(a.activation, a.k, r / 16 * 16) + i / 64 * layout::kTile;
  return load<std::int8_t>(tile + i % 64 / 4 * layout::kLine + r % 16 * 4 + i % 4);
}
struct TiledEnd {
  float scale;
  std::int32_t sum;
};
inline TiledEnd tiled_end(const PreparedRows& a, std::size_t r) {
  const std::byte* end = a.bytes.data() + prepared_bytes(a.activation, a.k, r / 16 * 16 + 16) - 2 * layout::kLine;
  return {load<float>(end + r % 16 * 4), load<std::int32_t>(end + layout::kLine + r % 16 * 4)};
}

// The same where rows are the left operand, with a scale and sums for every 256.
inline const std::byte* group_of(const PreparedRows& a, std::size_t r, std::size_t i) {
  return a.bytes.data() + prepared_bytes(a.activation, a.k, r / 16 * 16) + i / 256 * layout::kI8GroupBytes;
}
inline std::int8_t grouped_code(const PreparedRows& a, std::size_t r, std::size_t i) {
  return load<std::int8_t>(group_of(a, r, i) + i % 256 / 64 * layout::kTile + r % 16 * layout::kLine + i % 64);
}
inline float grouped_scale(const PreparedRows& a, std::size_t r, std::size_t i) {
  return load<float>(group_of(a, r, i) + layout::kI8GroupScales + r % 16 * 4);
}
inline std::int16_t grouped_sum(const PreparedRows& a, std::size_t r, std::size_t i) {
  return load<std::int16_t>(group_of(a, r, i) + layout::kI8GroupSums + r % 16 * 16 + i % 256 / 32 * 2);
}

// The exact values of a prepared row.
inline std::vector<double> prepared_values(const PreparedRows& a, std::size_t r) {
  const std::size_t k = a.k;
  const Activation activation = a.activation;
  std::vector<double> out(k);
  if (is_tiled(activation)) {
    for (std::size_t i = 0; i < k; ++i) {
      if (activation == Activation::i8_group256_tiles) {
        out[i] = static_cast<double>(grouped_code(a, r, i)) * grouped_scale(a, r, i);
        continue;
      }
      out[i] = activation == Activation::i8_tiles ? static_cast<double>(tiled_code(a, r, i)) * tiled_end(a, r).scale
                                                  : tiled_bf16(a, r, i);
      if (activation == Activation::bf16_split_tiles) out[i] += tiled_bf16(a, r, i, 1);
    }
    return out;
  }
  const std::byte* row = a.row(r);
  const auto* codes = reinterpret_cast<const std::int8_t*>(row);
  for (std::size_t i = 0; i < k; ++i) {
    if (activation == Activation::f32) {
      out[i] = load<float>(row + 4 * i);
    } else {
      const std::size_t scale = activation == Activation::i8_group32 ? layout::group32_row(k).scale + i / 32 * 4
                                                                     : layout::group256_row(k).scale + i / 256 * 4;
      out[i] = static_cast<double>(codes[i]) * load<float>(row + scale);
    }
  }
  return out;
}

// Rows [0, num_rows) of `a` become rows of `out` from first_out on.
inline std::vector<float> multiply(const KernelTable& table, const MatrixView& view, const PreparedRows& a,
                                   std::size_t num_rows, std::size_t panel_begin, std::size_t panel_end,
                                   std::vector<float> out, std::size_t out_stride, std::size_t first_out = 0) {
  table.matmul(view.type, view.layout)(view, a.bytes.data(), num_rows, out.data() + first_out * out_stride, out_stride,
                                       panel_begin, panel_end);
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A k that the type allows, with an odd last group or panel where that is possible.
inline std::size_t odd_k(WeightType type) {
  const std::size_t group = info(type).group_size;
  return group == 1 ? 77 : group == 32 ? 32 * 7 : group == 128 ? 128 * 5 : 256 * 3;
}

}  // namespace troupe::kernels::test
