#include "kernels/formats/weight_type.h"

#include "config/assert.h"
#include "kernels/formats/weight_formats.h"

namespace troupe::kernels {
namespace {

template <class Group>
constexpr std::uint32_t tail_bytes() {
  if constexpr (requires { Group::kTailBytes; })
    return Group::kTailBytes;
  else
    return 0;
}

#define TROUPE_INFO(id, number, name, gguf_number, weights, Group, ...) \
  {WeightType::id, name, gguf_number, weights, sizeof(Group), tail_bytes<Group>()},
constexpr WeightTypeInfo kTypes[] = {TROUPE_WEIGHT_TYPES(TROUPE_INFO)};
#undef TROUPE_INFO

template <class Format>
void dequantize_groups(const std::byte* in, float* out, std::size_t count) {
  using Group = typename Format::Group;
  using Packing = typename Format::Packing;
  TROUPE_ASSERT(count % Format::kWeights == 0);
  for (std::size_t i = 0; i < count; i += Format::kWeights, in += sizeof(Group), out += Format::kWeights) {
    const auto group = load<Group>(in);
    if constexpr (kIsNumbers<Packing>) {
      *out = value_of(group);
    } else {
      std::uint8_t codes[Format::kWeights];
      codes_of(group, codes);
      for (std::size_t half = 0; half < Format::kWeights / 16; ++half) {
        const scales::HalfRun scale = Packing::Scales::of(group, half);
        for (std::size_t j = 16 * half; j < 16 * half + 16; ++j)
          out[j] = static_cast<float>(Packing::Values::of(codes[j])) * scale.d - scale.min;
      }
    }
  }
}

}  // namespace

std::span<const WeightTypeInfo> weight_types() { return kTypes; }

const WeightTypeInfo& info(WeightType type) {
  for (const WeightTypeInfo& entry : kTypes)
    if (entry.type == type) return entry;
  TROUPE_ASSERT(!"a WeightType outside the enumeration");
  return kTypes[0];
}

std::optional<WeightType> weight_type_of_gguf(std::uint32_t gguf_number) {
  for (const WeightTypeInfo& entry : kTypes)
    if (entry.gguf_number == gguf_number) return entry.type;
  return std::nullopt;
}

void dequantize(WeightType type, const std::byte* in, float* out, std::size_t count) {
  visit_type(type, [&](auto format) { dequantize_groups<decltype(format)>(in, out, count); });
}

}  // namespace troupe::kernels
