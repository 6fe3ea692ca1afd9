// What the kernel tests share: random weights in file format, packed matrices, prepared rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "kernels/groups.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/packed_layout.h"

namespace troupe::kernels::test {

// Zeroed bytes at a 64-byte boundary, without slack at the end: a sanitizer sees every overrun.
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

// Random codes under scales of a usual size, as they would lie in a file.
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
      case WeightType::q4_k:
      case WeightType::q5_k:
        scale(group + 2);
        [[fallthrough]];
      case WeightType::q8_0:
      case WeightType::q4_0:
        scale(group);
        break;
      case WeightType::q6_k:
      case WeightType::tq1_0:
      case WeightType::tq2_0:
        scale(group + t.group_bytes - 2);
        break;
    }
  }
  return out;
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
      : stride(prepared_bytes(activation, k)), bytes(stride * rows) {
    for (std::size_t r = 0; r < rows; ++r)
      table.prepare[static_cast<std::size_t>(activation)](x.data() + r * k, k, bytes.data() + r * stride);
  }
  std::size_t stride;
  AlignedBytes bytes;
};

// The exact values that a prepared row stands for.
inline std::vector<double> prepared_values(Activation activation, const std::byte* row, std::size_t k) {
  std::vector<double> out(k);
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

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A k that the type allows, with an odd last group or panel where that is possible.
inline std::size_t odd_k(WeightType type) {
  const std::size_t group = info(type).group_size;
  return group == 1 ? 77 : group == 32 ? 32 * 7 : 256 * 3;
}

}  // namespace troupe::kernels::test
