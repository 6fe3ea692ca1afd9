// Converts between the messages of the protocol and the types of the client library. Internal to the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/client/client.h"
#include "ipc/troupe.pb.h"

namespace troupe::client {

// Credit window when the library grants credit itself: large enough to hide the round trip at any speed, small enough
// that a slow reader's stream is parked soon.
inline constexpr std::uint64_t kCreditWindow = 256;

template <class Number>
std::chrono::milliseconds to_ms(Number count) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(count));
}

// A text of the server as an error shows it: one line of at most kMaxMessageBytes that no terminal obeys.
[[nodiscard]] std::string printable(const std::string& text);

// Strings must be valid UTF-8: otherwise the server would end the whole connection. Errors: invalid_argument.
[[nodiscard]] Error not_utf8(const std::string& what);
[[nodiscard]] Status check_text(const Request& request);
[[nodiscard]] Status check_text(const EmbedRequest& request);

[[nodiscard]] v1::ClientFrame to_frame(std::uint64_t stream, const Request& request, bool takes_presets);
[[nodiscard]] v1::ClientFrame to_frame(std::uint64_t stream, const EmbedRequest& request);

// Moves the text out of `in`.
[[nodiscard]] Tokens to_tokens(v1::Tokens& in);
[[nodiscard]] Waiting to_waiting(v1::Waiting&& in);
// From a frame with Done, Refused or Failed.
[[nodiscard]] Ended to_ended(const v1::ServerFrame& frame);
[[nodiscard]] Error to_error(const v1::Refused& refused);
[[nodiscard]] Health to_health(const v1::Health& health);
[[nodiscard]] Health::Model to_model_health(const v1::Health::Model& model);
// Without ServerInfo::distrust.
[[nodiscard]] ServerInfo to_info(const v1::Welcome& welcome);
[[nodiscard]] std::vector<ModelDescription> to_models(const v1::Models& in);
[[nodiscard]] Embeddings to_embeddings(const v1::Embeddings& in);
[[nodiscard]] UsageReport to_usage_report(const v1::UsageReport& in);
[[nodiscard]] ServerStatus to_status(const v1::Status& in);
[[nodiscard]] std::vector<SessionInfo> to_sessions(const v1::Sessions& in);

}  // namespace troupe::client
