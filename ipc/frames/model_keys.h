// The keys of a model in the frame LoadModel, of which the client library and the server have structs with members of
// the same names (config/options/model_keys.h).
#pragma once

#include "config/options/model_keys.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// What is empty is absent in the frame. Keys: config::ModelKeys or client::ModelRequest.
template <class Keys>
void put_model_keys(const Keys& keys, v1::LoadModel& frame) {
#define TROUPE_PUT(member)                                    \
  [](const auto& value, auto& to) {                           \
    if constexpr (requires { to.mutable_##member()->Add(); }) \
      to.mutable_##member()->Add(value.begin(), value.end()); \
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
    else if constexpr (requires { from.has_##member(); }) {     \
      if (from.has_##member()) value = from.member();           \
    } else                                                      \
      value = from.member();                                    \
  }(frame, keys.member);
  TROUPE_MODEL_KEYS(TROUPE_TAKE)
#undef TROUPE_TAKE
}

}  // namespace troupe::ipc
