// The numbers of a Sampling or ModelDefaults message by their names: a field of config/sampling/sampling_numbers.h
// needs no code here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "config/assert.h"
#include "config/normal_float.h"
#include "config/sampling/sampling_numbers.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

template <class Message>
[[nodiscard]] const google::protobuf::FieldDescriptor& field_of(const config::SamplingNumber& number) {
  const auto* const field = Message::descriptor()->FindFieldByName(std::string(number.name));
  TROUPE_ASSERT(field);
  return *field;
}

template <class Message>
[[nodiscard]] bool has(const Message& message, const config::SamplingNumber& number) {
  return Message::GetReflection()->HasField(message, &field_of<Message>(number));
}

// Leaves `value` as it is where the message has none.
template <class Message>
void read(const Message& message, const config::SamplingNumber& number, float& value) {
  if (has(message, number))
    value = config::to_normal_float(double{Message::GetReflection()->GetFloat(message, &field_of<Message>(number))});
}
template <class Message>
void read(const Message& message, const config::SamplingNumber& number, std::int32_t& value) {
  if (has(message, number)) value = Message::GetReflection()->GetInt32(message, &field_of<Message>(number));
}
template <class Message, class Value>
void read(const Message& message, const config::SamplingNumber& number, std::optional<Value>& value) {
  using Field = std::conditional_t<std::is_floating_point_v<Value>, float, std::int32_t>;
  if (!has(message, number)) return;
  Field read_to{};
  read(message, number, read_to);
  value = static_cast<Value>(read_to);
}

template <class Message>
void write(Message& message, const config::SamplingNumber& number, float value) {
  Message::GetReflection()->SetFloat(&message, &field_of<Message>(number), value);
}
template <class Message>
void write(Message& message, const config::SamplingNumber& number, std::int32_t value) {
  Message::GetReflection()->SetInt32(&message, &field_of<Message>(number), value);
}
template <class Message, class Value>
void write(Message& message, const config::SamplingNumber& number, const std::optional<Value>& value) {
  if (!value) return;
  if constexpr (std::is_floating_point_v<Value>)
    write(message, number, config::to_normal_float(double{*value}));
  else
    write(message, number, static_cast<std::int32_t>(*value));
}

}  // namespace troupe::ipc
