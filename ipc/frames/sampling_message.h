// The numbers of a Sampling message by their names: a field of config/options/sampling_numbers.h needs no code here.
#pragma once

#include <cstdint>
#include <string>

#include "config/assert.h"
#include "config/normal_float.h"
#include "config/options/sampling_numbers.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

[[nodiscard]] inline const google::protobuf::FieldDescriptor& field_of(const config::SamplingNumber& number) {
  const auto* const field = v1::Sampling::descriptor()->FindFieldByName(std::string(number.name));
  TROUPE_ASSERT(field);
  return *field;
}

// Leaves `value` as it is where the message has none.
inline void read(const v1::Sampling& message, const config::SamplingNumber& number, float& value) {
  const auto& field = field_of(number);
  if (v1::Sampling::GetReflection()->HasField(message, &field))
    value = config::to_normal_float(double{v1::Sampling::GetReflection()->GetFloat(message, &field)});
}
inline void read(const v1::Sampling& message, const config::SamplingNumber& number, std::int32_t& value) {
  const auto& field = field_of(number);
  if (v1::Sampling::GetReflection()->HasField(message, &field))
    value = v1::Sampling::GetReflection()->GetInt32(message, &field);
}

inline void write(v1::Sampling& message, const config::SamplingNumber& number, float value) {
  v1::Sampling::GetReflection()->SetFloat(&message, &field_of(number), value);
}
inline void write(v1::Sampling& message, const config::SamplingNumber& number, std::int32_t value) {
  v1::Sampling::GetReflection()->SetInt32(&message, &field_of(number), value);
}

}  // namespace troupe::ipc
