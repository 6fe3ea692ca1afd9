// From the JSON body of a request to a request for the gateway. Plain: no sockets, no threads, no clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actors/requests/request.h"
#include "ipc/http/api/endpoint.h"
#include "ipc/http/api/error.h"
#include "scheduler/shares/tenant.h"

namespace troupe::ipc::api {

// What a request is checked against.
struct ApiContext {
  scheduler::Tenant tenant{};
  std::uint32_t uid = 0;  // of the connection, for status
  std::uint64_t max_prompt_bytes = actors::kMaxPromptBytes;
  // The width of the vectors of the model with this name (empty: the default one), if it is known. May be null.
  std::function<std::optional<std::uint32_t>(const std::string& model)> vector_dim{};
};

// What to say about the request in its answer, as JSON text. Empty: null, or the default.
struct Echoed {
  std::string user, metadata, instructions, temperature, top_p, max_output_tokens, prompt_cache_key, safety_identifier,
      service_tier, reasoning, top_logprobs, text, tools, tool_choice, parallel_tool_calls, truncation;
};

// A tool that its client names or calls otherwise than the model does.
struct ClientTool {
  std::string name{};
  std::string name_space{};  // of the tool; empty: none
  bool is_custom = false;    // its input is a text, not a JSON object
};

// A checked request, and what its answer depends on.
struct ApiCall {
  Endpoint endpoint = Endpoint::completions;
  // For the gateway, without credit, which depends on the connection. Also of endpoints that ask for no answer: its
  // prompt is the text, the ids or the conversation of which they ask something.
  actors::Request request{};
  // Of completions: further prompts, each a request like the first with a prompt of its own. The answer has the choices
  // of the first prompt, then those of the next.
  std::vector<actors::Prompt> more_prompts{};
  bool stream = false;
  bool include_usage = false;                 // a last chunk with the usage
  bool continuous_usage = false;              // the tokens so far in each chunk
  bool echo = false;                          // the prompt comes before each answer
  bool only_prompt = false;                   // no tokens behind it: max_tokens is 0, and the request asks for one
  bool logprobs = false;                      // request.sampling.num_logprobs of each token are shown
  bool base64 = false;                        // vectors as base64 of little-endian float32
  bool show_reasoning = true;                 // false: reasoning is split off and left out
  bool receipt = true;                        // the answer has the receipt of each choice
  std::optional<std::uint32_t> dimensions{};  // that the vectors must have
  Echoed echoed{};
  std::unordered_map<std::string, ClientTool> client_tools{};  // by the names that the model knows
  std::vector<std::string_view> ignored{};                     // fields that were passed over
  bool with_pieces = false;                                    // tokenize: each id with its text

  // Of all prompts together; at most actors::kMaxChoices.
  [[nodiscard]] std::uint32_t num_choices() const {
    return request.num_choices * static_cast<std::uint32_t>(1 + more_prompts.size());
  }
};

// Reads and checks a body. Everything that the endpoint's table of fields (fields.h) does not name is refused.
// O(body.size()).
[[nodiscard]] std::variant<ApiCall, ApiError> parse_call(Endpoint endpoint, std::string_view body,
                                                         const ApiContext& context);

inline constexpr std::size_t kMaxBodyMessages = 4096;   // of one body; of a frame: actors::kMaxChatMessages
inline constexpr std::size_t kMaxContentParts = 256;    // of one message
inline constexpr std::size_t kMaxMetadataEntries = 16;  // OpenAI's limits
inline constexpr std::size_t kMaxMetadataKeyBytes = 64;
inline constexpr std::size_t kMaxMetadataValueBytes = 512;
inline constexpr std::size_t kMaxNameBytes = 256;  // of models, users, keys

}  // namespace troupe::ipc::api
