#include "ipc/frames/decode.h"

#include <string>
#include <utility>

#include "ipc/frames/unserved.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

// The stream number of any request; every body has it in field 1.
std::uint64_t stream_of(const v1::ClientFrame& frame) {
  switch (frame.body_case()) {
    case v1::ClientFrame::kGenerate:
      return frame.generate().stream();
    case v1::ClientFrame::kTokenize:
      return frame.tokenize().stream();
    case v1::ClientFrame::kDetokenize:
      return frame.detokenize().stream();
    case v1::ClientFrame::kModels:
      return frame.models().stream();
    case v1::ClientFrame::kStatus:
      return frame.status().stream();
    case v1::ClientFrame::kHealth:
      return frame.health().stream();
    case v1::ClientFrame::kEmbed:
      return frame.embed().stream();
    case v1::ClientFrame::kLoadModel:
      return frame.load_model().stream();
    case v1::ClientFrame::kUnloadModel:
      return frame.unload_model().stream();
    case v1::ClientFrame::kCancelRequest:
      return frame.cancel_request().stream();
    case v1::ClientFrame::kCancel:
      return frame.cancel().stream();
    case v1::ClientFrame::kCredit:
      return frame.credit().stream();
    case v1::ClientFrame::kHello:
      return 0;
    case v1::ClientFrame::BODY_NOT_SET:
      return unknown_body_stream(frame);
  }
  return 0;
}

RequestKind kind_of(const v1::ClientFrame& frame) {
  switch (frame.body_case()) {
    case v1::ClientFrame::kGenerate:
      return RequestKind::generate;
    case v1::ClientFrame::kEmbed:
      return RequestKind::embed;
    case v1::ClientFrame::kTokenize:
      return RequestKind::tokenize;
    case v1::ClientFrame::kDetokenize:
      return RequestKind::detokenize;
    case v1::ClientFrame::kModels:
      return RequestKind::models;
    case v1::ClientFrame::kStatus:
      return RequestKind::status;
    case v1::ClientFrame::kHealth:
      return RequestKind::health;
    default:
      return RequestKind::other;
  }
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
  return Refusal{.code = Outcome::unsupported,
                 .field = dot == std::string::npos ? unserved->path : unserved->path.substr(dot + 1),
                 .message = unserved->message,
                 .limit = {},
                 .retry_after = {}};
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
  decoded.stream = stream_of(frame);
  decoded.kind = kind_of(frame);
  decoded.count = count_of(frame);
  decoded.refusal = frame.has_embed() ? check_counts(frame.embed()) : check_counts(frame.generate());
  if (!decoded.refusal) decoded.refusal = check_served(frame);
  if (decoded.refusal) frame = v1::ClientFrame();  // freed here, because on the io thread it could delay others
  return decoded;
}

}  // namespace troupe::ipc
