#include "kernels/formats/converted_type.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "config/assert.h"
#include "kernels/append_only.h"
#include "kernels/formats/half.h"

namespace troupe::kernels {
namespace {

// Far above every real type; bounded because a group's values are converted on the stack.
constexpr std::uint32_t kMaxGroupSize = 4096;
constexpr std::uint32_t kMaxGroupBytes = 1u << 16;

struct Registry {
  AppendOnly<ConvertedType, kMaxConvertedTypes> types;
  std::mutex adding;
};

Registry& registry() {
  static Registry all;
  return all;
}

Status check(const ConvertedType& type) {
  const WeightTypeInfo& info = type.info;
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::invalid_argument, "weight type '" + std::string(info.name) + "' " + what};
  };
  if (info.name.empty()) return wrong("needs a name");
  const auto clashes = [&](const WeightTypeInfo& other) {
    return other.name == info.name || other.gguf_number == info.gguf_number;
  };
  const auto taken = [&](const WeightTypeInfo& other) {
    return wrong("cannot have the number " + std::to_string(info.gguf_number) + ": there is " +
                 std::string(other.name) + " with " + std::to_string(other.gguf_number));
  };
  for (const WeightTypeInfo& other : weight_types())
    if (clashes(other)) return taken(other);
  for (const ConvertedType* other : converted_types())
    if (clashes(other->info)) return taken(other->info);
  if (info.type != WeightType::f32 && info.type != WeightType::f16 && info.type != WeightType::bf16)
    return wrong("can become F32, F16 or BF16, not " + std::string(kernels::info(info.type).name));
  if (info.group_size < 1 || info.group_size > kMaxGroupSize)
    return wrong("has groups of " + std::to_string(info.group_size) + " weights; 1 to " +
                 std::to_string(kMaxGroupSize) + " are allowed");
  if (info.group_bytes < 1 || info.group_bytes > kMaxGroupBytes)
    return wrong("has groups of " + std::to_string(info.group_bytes) + " bytes; 1 to " +
                 std::to_string(kMaxGroupBytes) + " are allowed");
  if (info.tail_bytes != 0) return wrong("cannot have a tail");
  if (!type.dequantize) return wrong("needs a function that dequantizes a group");
  return Ok{};
}

bool is_finite(float value) { return (bits_of_float(value) & 0x7f800000u) != 0x7f800000u; }

// Rounds a finite value to nearest even.
std::uint16_t bf16_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Stores one value as `type`; false if it is not finite in that type.
bool store_as(WeightType type, float value, std::byte* out) {
  if (!is_finite(value)) return false;
  if (type == WeightType::f32) {
    store(out, value);
    return true;
  }
  const std::uint16_t rounded = type == WeightType::f16 ? half_of_float(value) : bf16_of_float(value);
  store(out, rounded);
  return is_finite(type == WeightType::f16 ? float_of_half(rounded) : float_of_bf16(rounded));
}

}  // namespace

Status register_type(const ConvertedType& type) {
  const std::lock_guard lock(registry().adding);
  if (Status ok = check(type); !ok) return ok;
  if (registry().types.full()) {
    return Error{ErrorCode::invalid_argument, "no room for weight type '" + std::string(type.info.name) +
                                                  "': there are " + std::to_string(kMaxConvertedTypes) + " already"};
  }
  registry().types.add(type);
  return Ok{};
}

std::span<const ConvertedType* const> converted_types() { return registry().types.entries(); }

const ConvertedType* converted_type_of_gguf(std::uint32_t gguf_number) {
  const auto types = converted_types();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const ConvertedType* type) { return type->info.gguf_number == gguf_number; });
  return found == types.end() ? nullptr : *found;
}

void dequantize(const ConvertedType& type, const std::byte* in, float* out, std::size_t count) {
  TROUPE_ASSERT(count % type.info.group_size == 0);
  for (std::size_t i = 0; i < count; i += type.info.group_size, in += type.info.group_bytes)
    type.dequantize(in, out + i);
}

bool convert(const ConvertedType& type, const std::byte* in, std::byte* out, std::size_t count) {
  TROUPE_ASSERT(count % type.info.group_size == 0);
  const std::uint32_t bytes_each = info(type.info.type).group_bytes;
  float values[kMaxGroupSize];
  bool finite = true;
  for (std::size_t i = 0; i < count; i += type.info.group_size, in += type.info.group_bytes) {
    type.dequantize(in, values);
    for (std::uint32_t j = 0; j < type.info.group_size; ++j)
      finite &= store_as(type.info.type, values[j], out + (i + j) * bytes_each);
  }
  return finite;
}

}  // namespace troupe::kernels
