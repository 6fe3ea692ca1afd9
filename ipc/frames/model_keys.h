// The keys of a model in the frame LoadModel, of which the client library and the server have structs with members of
// the same names (config/options/model_keys.h).
#pragma once

#include "config/options/model_keys.h"
#include "ipc/frames/sampling_message.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// Defaults: config::ModelDefaults or client::ModelDefaults.
template <class Defaults>
void put_defaults(const Defaults& defaults, v1::ModelDefaults& frame) {
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { write(frame, number, value); }, defaults);
  frame.set_reasoning(defaults.reasoning);
  frame.set_system(defaults.system);
  if (defaults.reasoning_budget) frame.set_reasoning_budget(static_cast<std::uint32_t>(*defaults.reasoning_budget));
}
template <class Defaults>
void take_defaults(const v1::ModelDefaults& frame, Defaults& defaults) {
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) { read(frame, number, value); }, defaults);
  defaults.reasoning = frame.reasoning();
  defaults.system = frame.system();
  if (frame.has_reasoning_budget()) defaults.reasoning_budget = frame.reasoning_budget();
}

// What is empty is absent in the frame. Keys: config::ModelKeys or client::ModelRequest.
template <class Keys>
void put_model_keys(const Keys& keys, v1::LoadModel& frame) {
#define TROUPE_PUT(member)                                    \
  [](const auto& value, auto& to) {                           \
    if constexpr (requires { to.mutable_##member()->Add(); }) \
      to.mutable_##member()->Add(value.begin(), value.end()); \
    else if constexpr (requires { value.reasoning_budget; })  \
      put_defaults(value, *to.mutable_##member());            \
    else if constexpr (requires { value.has_value(); })       \
      value ? to.set_##member(*value) : to.clear_##member();  \
    else                                                      \
      to.set_##member(value);                                 \
  }(keys.member, frame);
  TROUPE_MODEL_KEYS(TROUPE_PUT)
#undef TROUPE_PUT
}

// What is absent in the frame stays as it is in `keys`.
template <class Keys>
void take_model_keys(const v1::LoadModel& frame, Keys& keys) {
#define TROUPE_TAKE(member)                                     \
  [](const auto& from, auto& value) {                           \
    if constexpr (requires { value.emplace_back(); })           \
      value.assign(from.member().begin(), from.member().end()); \
    else if constexpr (requires { value.reasoning_budget; })    \
      take_defaults(from.member(), value);                      \
    else if constexpr (requires { from.has_##member(); }) {     \
      if (from.has_##member()) value = from.member();           \
    } else                                                      \
      value = from.member();                                    \
  }(frame, keys.member);
  TROUPE_MODEL_KEYS(TROUPE_TAKE)
#undef TROUPE_TAKE
}

}  // namespace troupe::ipc
