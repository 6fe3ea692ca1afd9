#include "kernels/formats/converted_type.h"

#include <fmt/format.h>

#include <mutex>
#include <string>

#include "config/assert.h"
#include "kernels/append_only.h"
#include "kernels/formats/weight_formats.h"

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
    return Error{ErrorCode::invalid_argument, fmt::format("weight type '{}' {}", info.name, what)};
  };
  if (info.name.empty()) return wrong("needs a name");
  const auto clashes = [&](const WeightTypeInfo& other) {
    return other.name == info.name || other.gguf_number == info.gguf_number;
  };
  const auto taken = [&](const WeightTypeInfo& other) {
    return wrong(
        fmt::format("cannot have the number {}: there is {} with {}", info.gguf_number, other.name, other.gguf_number));
  };
  for (const WeightTypeInfo& other : weight_types())
    if (clashes(other)) return taken(other);
  for (const ConvertedType* other : converted_types())
    if (clashes(other->info)) return taken(other->info);
  if (!visit_type(info.type, [](auto format) { return kIsNumbers<typename decltype(format)::Packing>; }))
    return wrong(fmt::format("can become F32, F16 or BF16, not {}", kernels::info(info.type).name));
  if (info.group_size < 1 || info.group_size > kMaxGroupSize)
    return wrong(fmt::format("has groups of {} weights; 1 to {} are allowed", info.group_size, kMaxGroupSize));
  if (info.group_bytes < 1 || info.group_bytes > kMaxGroupBytes)
    return wrong(fmt::format("has groups of {} bytes; 1 to {} are allowed", info.group_bytes, kMaxGroupBytes));
  if (info.tail_bytes != 0) return wrong("cannot have a tail");
  if (!type.dequantize) return wrong("needs a function that dequantizes a group");
  return Ok{};
}

bool is_finite(float value) { return (bits_of_float(value) & 0x7f800000u) != 0x7f800000u; }

// Stores one value; false if it is not finite as `Number`.
template <class Number>
bool store_as(float value, std::byte* out) {
  if (!is_finite(value)) return false;
  Number number;
  set_value(number, value);
  store(out, number);
  return is_finite(value_of(number));
}

}  // namespace

Status register_type(const ConvertedType& type) {
  const std::lock_guard lock(registry().adding);
  if (Status ok = check(type); !ok) return ok;
  if (registry().types.full())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("no room for weight type '{}': there are {} already", type.info.name, kMaxConvertedTypes)};
  registry().types.add(type);
  return Ok{};
}

std::span<const ConvertedType* const> converted_types() { return registry().types.entries(); }

const ConvertedType* converted_type_of_gguf(std::uint32_t gguf_number) {
  for (const ConvertedType* type : converted_types())
    if (type->info.gguf_number == gguf_number) return type;
  return nullptr;
}

void dequantize(const ConvertedType& type, const std::byte* in, float* out, std::size_t count) {
  TROUPE_ASSERT(count % type.info.group_size == 0);
  for (std::size_t i = 0; i < count; i += type.info.group_size, in += type.info.group_bytes)
    type.dequantize(in, out + i);
}

bool convert(const ConvertedType& type, const std::byte* in, std::byte* out, std::size_t count) {
  TROUPE_ASSERT(count % type.info.group_size == 0);
  return visit_type(type.info.type, [&](auto format) {
    using Number = typename decltype(format)::Group;
    bool finite = true;
    if constexpr (kIsNumbers<typename decltype(format)::Packing>) {
      float values[kMaxGroupSize];
      for (std::size_t i = 0; i < count; i += type.info.group_size, in += type.info.group_bytes) {
        type.dequantize(in, values);
        for (std::uint32_t j = 0; j < type.info.group_size; ++j)
          finite &= store_as<Number>(values[j], out + (i + j) * sizeof(Number));
      }
    }
    return finite;
  });
}

}  // namespace troupe::kernels
