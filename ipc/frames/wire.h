// Converts between protobuf messages and our own types: protobuf is used inside ipc only.
#pragma once

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/gateway.h"
#include "actors/requests/request.h"
#include "ipc/tools/answer_calls.h"
#include "ipc/troupe.pb.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {

using scheduler::Refusal;

[[nodiscard]] std::string server_name();  // "troupe 0.1.0"

// Credit of a stream when the client sets none: how many tokens it may be ahead of what was written to the socket.
inline constexpr std::uint64_t kImplicitCredit = 64;

// The largest prompt, as text or as 4 bytes per id: no larger than a frame can carry.
[[nodiscard]] constexpr std::uint64_t max_prompt_bytes(std::uint64_t max_frame_bytes) {
  return std::min<std::uint64_t>(actors::kMaxPromptBytes, max_frame_bytes);
}

// Refuses repeated fields of a Generate or Embed with more entries than their limit. Call before anything reads the
// entries: a frame has room for two million of them. O(1).
[[nodiscard]] std::optional<Refusal> check_counts(const v1::ClientFrame& frame);

using RequestOrRefusal = std::variant<actors::Request, Refusal>;

// Converts to a request for the gateway, or returns the refusal: checks what the frame alone can have (fields, values
// of the wire) and then applies request_rules.h. The gateway checks what needs the model. check_counts() must have
// passed. Moves the prompt out of the message.
//   tenant            its policy has the most urgent priority and the cache scope of requests that name none
//   max_prompt_bytes  see max_prompt_bytes()
[[nodiscard]] RequestOrRefusal to_request(v1::Generate& generate, const scheduler::Tenant& tenant,
                                          std::uint64_t max_prompt_bytes);
[[nodiscard]] RequestOrRefusal to_request(v1::Embed& embed, const scheduler::Tenant& tenant,
                                          std::uint64_t max_prompt_bytes);

// Checks paths and values; names and files are checked when the model is loaded.
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const std::vector<actors::ModelCheck>& checks);
[[nodiscard]] std::variant<actors::ModelRequest, Refusal> to_model_request(const v1::LoadModel& asked);
[[nodiscard]] std::variant<actors::SessionQuestion, Refusal> to_question(const v1::SessionRequest& asked,
                                                                         const scheduler::Tenant& tenant);

[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const Refusal& refusal, bool closing = false);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const actors::LoadWait& wait);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, actors::TokenRun&& run);
// Of an answer that may call tools: its text in pieces instead of run.text. None: there is nothing to send.
[[nodiscard]] std::vector<v1::ServerFrame> to_frames(std::uint64_t stream, actors::TokenRun&& run,
                                                     std::vector<AnswerPiece> pieces);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, actors::End&& end);
// for_owner: a chat template's file is named with its folder.
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const std::vector<actors::ModelDescription>& models,
                                       bool for_owner);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const actors::SessionAnswer& answer);
[[nodiscard]] v1::Health to_health(actors::Readiness readiness, double load_fraction, bool stalled);
// for_owner: else the problems of models name no folder of this machine.
[[nodiscard]] v1::Health::Model to_model_health(const actors::ModelHealth& health, bool for_owner);

// Appends a frame: length and body. The body is below 2 GiB (asserted).
void append_frame(std::string& out, const google::protobuf::MessageLite& message);
// As append_frame(), as a string of its own.
[[nodiscard]] std::string to_bytes(const google::protobuf::MessageLite& message);

}  // namespace troupe::ipc
