#include "ipc/frames/decode.h"

#include <algorithm>
#include <string>

#include "ipc/frames/unserved.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

// Kinds have the names of their bodies in ClientFrame.
RequestKind kind_of(const v1::ClientFrame& frame) {
  const auto* const body = body_of(frame);
  const auto found = std::ranges::find(kRequestKinds, body ? body->name() : "other", &RequestKindInfo::name);
  return found == kRequestKinds.end() ? RequestKind::other : found->kind;
}

// The number of requests in a frame: n of a Generate; 1 if n is out of range, since such a frame is refused as one.
std::uint64_t count_of(const v1::ClientFrame& frame) {
  const v1::Generate& generate = frame.generate();
  return generate.has_n() && generate.n() >= 1 && generate.n() <= actors::kMaxChoices ? generate.n() : 1;
}

// Refuses a request that has a field which this server does not serve or does not know.
std::optional<Refusal> check_served(const v1::ClientFrame& frame) {
  const auto unserved = find_unserved(frame);
  if (!unserved) return std::nullopt;
  // Paths begin inside the request, without the name of its body in the frame.
  const std::size_t dot = unserved->path.find('.');
  return Refusal{.outcome = Outcome::unsupported,
                 .message = unserved->message,
                 .field = dot == std::string::npos ? unserved->path : unserved->path.substr(dot + 1)};
}

}  // namespace

Decoded decode(std::string_view body) {
  Decoded decoded;
  v1::ClientFrame& frame = decoded.frame;
  if (!frame.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    frame = v1::ClientFrame();
    decoded.damaged = true;
    return decoded;
  }
  if (frame.has_hello()) {
    // Fields that a newer client adds to its Hello are ignored: Welcome tells it the version in use.
    frame.DiscardUnknownFields();
    return decoded;
  }
  decoded.stream = body_of(frame) ? stream_of(frame) : unknown_body_stream(frame);
  decoded.kind = kind_of(frame);
  decoded.count = count_of(frame);
  decoded.refusal = check_counts(frame);
  if (!decoded.refusal) decoded.refusal = check_served(frame);
  if (decoded.refusal) frame = v1::ClientFrame();  // freed here, because on the io thread it could delay others
  return decoded;
}

}  // namespace troupe::ipc
