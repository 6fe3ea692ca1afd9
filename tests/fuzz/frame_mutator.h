// Mutates frames by their fields, through protobuf's reflection, and by their bytes.
#pragma once

#include <google/protobuf/message.h>

#include <random>
#include <string>
#include <string_view>

namespace troupe::fuzz {

// The body of a frame that is `frame` with some fields of it or of what lies in it set to extremes, repeated, emptied,
// or unknown to the protocol; sometimes with bytes flipped, cut or inserted on top. The same random state gives the
// same bytes.
std::string mutate_frame(const google::protobuf::Message& frame, std::mt19937_64& random);

// A length, mostly the right one, and the body.
std::string mutate_framing(std::string_view body, std::mt19937_64& random);

}  // namespace troupe::fuzz
