// Reads frames by their descriptors: the stream number of any body, and the fields of a request that this server does
// not serve: those marked (not_served) in the protocol, and unknown fields of a newer protocol.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::ipc {

struct UnservedField {
  std::string path;     // "sampling.typical_p"; "sampling.#57" for an unknown one
  std::string message;  // for the user
};

// The first such field of `request` or of a message within it. O(number of messages in it).
[[nodiscard]] std::optional<UnservedField> find_unserved(const google::protobuf::Message& request);

// The field of `frame`, a ClientFrame or ServerFrame, that is its body; null: none that this program knows.
[[nodiscard]] const google::protobuf::FieldDescriptor* body_of(const google::protobuf::Message& frame);
// The stream number in the body of `frame`; 0: no body, or Hello, Welcome or Draining.
[[nodiscard]] std::uint64_t stream_of(const google::protobuf::Message& frame);

// The stream number of a body that this server does not know at all, found among the unknown fields of
// `frame`: every body of the protocol, of whatever version, has it in field 1. 0 if there is none.
[[nodiscard]] std::uint64_t unknown_body_stream(const google::protobuf::Message& frame);

}  // namespace troupe::ipc
