// Between protobuf messages and our own types: nothing behind ipc sees the former.
#pragma once

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "actors/gateway.h"
#include "actors/request.h"
#include "ipc/troupe.pb.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {

// Why a request or a connection gets no answer.
struct Refusal {
  scheduler::Outcome code = scheduler::Outcome::invalid_argument;
  std::string field;    // path within the request, or the limit's name
  std::string message;  // what is wrong, the numbers, what to do
  std::optional<std::uint64_t> limit;
  std::optional<std::chrono::milliseconds> retry_after;
};

[[nodiscard]] std::string server_name();  // "troupe 0.1.0"

// Tokens that the server lets a stream run ahead of the socket when the client leaves credit to it.
inline constexpr std::uint64_t kImplicitCredit = 64;

// Ids of one Detokenize: its answer is several times its size.
inline constexpr std::size_t kMaxDetokenizeIds = 65536;

// The largest prompt, as text or as 4 bytes per id, where a frame may have so many bytes: what no frame can carry is
// not promised.
[[nodiscard]] constexpr std::uint32_t max_prompt_bytes(std::uint32_t max_frame_bytes) {
  return std::min(static_cast<std::uint32_t>(actors::kMaxPromptBytes), max_frame_bytes);
}

// A value above a limit, in words and numbers.
[[nodiscard]] Refusal above(scheduler::Outcome code, std::string field, const std::string& what, std::uint64_t value,
                            std::uint64_t limit);

// Counts above their limits, of what a request repeats. Comes before everything that looks at each of
// what is counted: a frame has room for two million entries. O(1).
[[nodiscard]] std::optional<Refusal> check_counts(const v1::Generate& generate);
[[nodiscard]] std::optional<Refusal> check_counts(const v1::Embed& embed);

// What the gateway is asked, or why it is not, given that check_counts() had nothing to say: everything that can be
// told without a model is checked. Takes the prompt out of `generate`.
//   max_prompt_bytes  as max_prompt_bytes() says
[[nodiscard]] std::variant<actors::Request, Refusal> to_request(v1::Generate& generate, std::uint32_t uid,
                                                                std::uint32_t max_prompt_bytes);

// The same of vectors.
[[nodiscard]] std::variant<actors::EmbedRequest, Refusal> to_request(v1::Embed& embed, std::uint32_t uid,
                                                                     std::uint32_t max_prompt_bytes);

[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const Refusal& refusal, bool closing = false);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, actors::EmbedAnswer&& answer);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, actors::TokenRun&& run);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, actors::End&& end);
[[nodiscard]] v1::ServerFrame to_frame(std::uint64_t stream, const std::vector<actors::ModelDescription>& models);
[[nodiscard]] v1::Health to_health(actors::Readiness readiness, double load_fraction, bool stalled);

// Appends a frame: length and body. The body is below 2 GiB (asserted).
void append_frame(std::string& out, const google::protobuf::MessageLite& message);
// That frame alone.
[[nodiscard]] std::string to_bytes(const google::protobuf::MessageLite& message);

}  // namespace troupe::ipc
