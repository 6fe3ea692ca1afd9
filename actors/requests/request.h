// A request and its answer, as they pass through the gateway: plain values, no protobuf, no CAF.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/requests/proof.h"
#include "cache/ids.h"
#include "config/sampling/sampling_numbers.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/drafting/speculation.h"
#include "engine/layers/pooling.h"
#include "engine/sampling/reasoning_markers.h"
#include "engine/sampling/sampler.h"
#include "scheduler/outcome.h"
#include "scheduler/shares/shared_limit.h"
#include "scheduler/shares/tenant.h"

namespace troupe::engine {
class Tokenizer;
}

namespace troupe::actors {

using RequestId = std::uint64_t;  // given by the gateway; never reused while the server runs
using UnitId = std::uint32_t;     // of a loaded model (model_unit.h)

class SessionTurn;
class AnswerForm;

using TimePoint = std::chrono::steady_clock::time_point;
[[nodiscard]] inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// How a request came.
enum class Protocol : std::uint8_t { frames, http };

// What a request asks for.
enum class WorkKind : std::uint8_t { generate, embed };

using EmbedIds = std::vector<std::vector<TokenId>>;  // of each text

// The texts of which an Embed request wants the vectors.
struct EmbedInputs {
  // Texts, or exact ids; 1 to kMaxEmbedInputs of them, none longer than TextVectors::max_tokens(): an encoder's
  // context, for other models at most engine::kMaxHiddenTokens.
  std::variant<std::vector<std::string>, EmbedIds> texts;
  std::optional<engine::Pooling> pooling;  // none: the model's own
  bool normalise = true;
  // Whether an input that has more tokens than the model reads, the tenant may send, or most_tokens says, is cut at its
  // end (a special token that ends a text stays) instead of refused. None: as GatewayOptions::embed_truncate says.
  std::optional<bool> truncate;
  std::uint32_t most_tokens = std::numeric_limits<std::uint32_t>::max();  // at least 1; only where it is cut

  std::size_t count() const {
    return std::visit([](const auto& each) { return each.size(); }, texts);
  }
};

// One turn of a conversation.
struct ChatMessage {
  std::string role;         // "system", "user", "assistant", or what else the template knows
  std::string content;      // several parts are joined by newlines
  std::string name{};       // of a user or a tool; empty: the message has none
  std::string reasoning{};  // of an assistant, for templates that show it again (reasoning_content); empty: none
  // Further members that the template may know: a JSON object ("{\"tool_call_id\": \"a\"}"). Empty: none.
  std::string members{};
  // The bytes of each part that `content` joins, for templates that read a list of parts. Empty: it is one.
  std::vector<std::uint32_t> part_bytes{};
  bool has_content = true;  // false: it is null, and `content` empty
  bool operator==(const ChatMessage&) const = default;
};

// A conversation that the model's chat template makes a prompt of. What the messages say never becomes a control token.
struct ChatPrompt {
  std::vector<ChatMessage> messages;  // 1 to kMaxChatMessages, of kMaxPromptBytes together
  bool add_generation_prompt = true;  // the prompt ends where the assistant's answer begins
  // Further variables of the template: a JSON object ("{\"enable_thinking\": false}"), at most kMaxChatVariableBytes.
  // `documents` are one of them. Empty: none.
  std::string variables{};
  // The tools that the model is told of: a JSON list in OpenAI's form, at most kMaxToolBytes. Empty: none.
  std::string tools{};
  // The prompt ends with the text of the last message, which the answer goes on with. add_generation_prompt is false
  // then, but for an assistant's last message without a text.
  bool continue_final_message = false;
  // The messages are given to the template as they are: none is rewritten, and what it leaves out is no error.
  bool as_it_is = false;
  // What of it the defaults of its model added (models/model_defaults.h): it does not count against the limits above.
  struct Added {
    std::size_t messages = 0;
    std::uint64_t message_bytes = 0, variable_bytes = 0;
    bool operator==(const Added&) const = default;
  } added{};
  bool operator==(const ChatPrompt&) const = default;
};

// A text, exact ids, or a conversation.
using Prompt = std::variant<std::string, std::vector<TokenId>, ChatPrompt>;

// Tools that an answer may call. What the model is told of them is in the conversation (ChatPrompt::tools).
struct ToolUse {
  std::shared_ptr<const engine::chat::ToolSet> set{};
  bool must_call = false;        // the answer is calls
  std::string name{};            // of their tool; empty: any
  bool may_call_several = true;  // false: the answer ends behind its first call
  // What its calls have to be (requests/answer_form.h); null: the format's marks alone decide what is a call.
  std::shared_ptr<AnswerForm> form{};
};

struct Request {
  scheduler::Tenant tenant;  // by the server's rules, from what the kernel says of the peer or a trusted proxy names
  std::uint32_t uid = 0;     // of the connection, for status
  std::string client_id{};   // its X-Request-Id, for status; empty: it has none
  Protocol protocol = Protocol::frames;
  std::string model;  // empty: the only or default model, whose name the gateway fills in
  Prompt prompt;
  bool add_special = true;     // text and conversations: BOS as the vocabulary asks
  bool parse_special = false;  // text only: control tokens written as text become their ids
  // Set: the request is for vectors of these texts. Prompt, sampling, stop strings, credit and choices are not used
  // then.
  std::optional<EmbedInputs> embed;
  engine::SamplingParams sampling;
  config::SamplingNumbers
      given_numbers{};    // of `sampling`, what the request says; the rest may be the model's defaults
  bool has_seed = false;  // else the gateway draws one and reports it
  // Whether the request says how long its answer may be; else a default of its tenant, of the model or of the server is
  // taken where there is one.
  bool has_max_tokens = false;
  // It came when its tenant had room for it (Gateway::room_of()), so it leaves none to those that are refused later.
  bool has_place = false;
  std::uint32_t first_choice = 0;         // answer i draws as choice first_choice + i of a request for several
  engine::SpeculationChoice speculation;  // never changes the answer
  // What the caller believes to be the answer, or its beginning: as long as it is, steps verify its tokens instead of a
  // draft's, as many at a time as they would compute of a prompt. Never changes the answer. Only for one answer.
  std::vector<TokenId> proposal{};
  // The text that the answer begins with, behind its reasoning; control tokens in it become their ids. UTF-8, at most
  // kMaxBeginningBytes. Empty: none. Not beside a demanded call (ToolUse::must_call), whose beginning the model's
  // format decides.
  std::string begins_with{};
  // Control tokens whose text belongs to the answer's. At most kMaxShownIds; those of the marks of calls are there
  // anyway.
  std::vector<TokenId> shown_ids{};
  bool wants_proof = false;            // End::proof is filled in
  std::optional<ToolUse> tools{};      // of a conversation
  std::shared_ptr<AnswerForm> form{};  // what the answer has to be (requests/answer_form.h); null: any text
  std::vector<std::string> stop_strings;
  StopScope stop_scope = StopScope::text;             // of a conversation: set by the gateway
  std::optional<std::chrono::milliseconds> deadline;  // from submission; then the stream ends with the tokens so far
  std::int32_t priority = 0;                          // lower is earlier
  std::string cache_scope;        // empty: the tenant's own; "public": shared by all; else a name of the tenant's
  std::uint64_t credit = 0;       // tokens that may be sent before the client grants more, of each choice
  std::uint32_t num_choices = 1;  // answers, from one prefill; 1 to kMaxChoices
  // Set by the stream table for all choices but the first: the request id of the first. This choice waits until the
  // first one has computed the prompt, then begins as its fork; if the first ends before that, it computes the prompt
  // itself.
  RequestId fork_of = 0;
  std::string session;  // the conversation of the tenant that it continues (sessions/sessions.h); empty: none
  // Also if that was computed under other numerics, or by a model with the same vocabulary and chat template: then its
  // tokens are computed again.
  bool session_recompute = false;
  std::shared_ptr<SessionTurn> turn{};  // of `session`: set by the gateway

  WorkKind kind() const { return embed ? WorkKind::embed : WorkKind::generate; }
};

// Bytes of a text or a conversation with its variables, or of ids (4 each).
[[nodiscard]] std::uint64_t prompt_bytes(const Prompt& prompt);
// Of what the model is to read: the prompt, or all inputs of an Embed.
[[nodiscard]] std::uint64_t input_bytes(const Request& request);

inline constexpr std::size_t kMaxPromptBytes = 8u << 20;
inline constexpr std::size_t kMaxChatMessages = 16'384;
inline constexpr std::size_t kMaxChatCalls = 16'384;  // of tools, in all messages of a conversation
inline constexpr std::size_t kMaxChatVariableBytes = 1u << 20;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 256;
inline constexpr std::size_t kMaxScopeBytes = 64;
inline constexpr std::size_t kMaxBeginningBytes = 1024;
inline constexpr std::size_t kMaxShownIds = 64;
inline constexpr std::uint32_t kMaxChoices = 64;
// A deadline above a year is a mistake (a wrong unit); this is also far below what overflows.
inline constexpr std::uint64_t kMaxDeadlineMs = 366ull * 24 * 3600 * 1000;
inline constexpr std::size_t kMaxEmbedInputs = 2048;  // as OpenAI takes
inline constexpr std::size_t kMaxDetokenizeIds = 65'536;
inline constexpr std::size_t kMaxTextInActor = 4096;  // takes some 100 us; longer texts are encoded on text threads

// Counts and times of an ended request: its receipt.
struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t truncated_tokens = 0;   // of an Embed: cut from its inputs, not in prompt_tokens
  std::uint32_t cached_tokens = 0;      // of the prompt, served from the prefix cache at first admission
  std::uint32_t completion_tokens = 0;  // emitted
  std::uint32_t tool_calls = 0;         // in the answer
  std::uint32_t tool_call_tokens = 0;   // of completion_tokens, those of calls
  std::uint64_t computed_tokens = 0;    // prompt and answer, without cached ones; replayed ones and drafts count again
  std::uint64_t drafted_tokens = 0;     // proposals that were verified
  std::uint64_t accepted_tokens = 0;    // of these, tokens of the answer
  double queue_seconds = 0;             // submission to first step
  double prefill_seconds = 0;           // first step to first token
  double decode_seconds = 0;            // first token to last
  double ttft_seconds = 0;              // submission to first token
  double stalled_seconds = 0;           // from the first step on: ready to be computed, but in no step
  double preempted_seconds = 0;         // from the first step on: without a place in the batch
  double parked_seconds = 0;            // out of credit
  double compute_seconds = 0;           // its share of the time of the steps and passes that computed it
  double cpu_seconds = 0;               // compute_seconds times the threads that computed
  double block_seconds = 0;             // KV blocks times the seconds that it held them
  double tenant_share = 0;              // of all computing during its life, the part of its tenant; 0 to 1
  std::uint32_t preemptions = 0;
};

// What a tenant used: one choice that has ended, or computing charged after the end of what it was for.
struct UsageEntry {
  scheduler::Tenant tenant{};
  WorkKind kind = WorkKind::generate;
  std::optional<scheduler::Outcome> outcome{};  // none: it was counted before
  bool has_begun = false;                       // a step or pass was planned for it
  Usage usage{};
  // Of a choice that has ended.
  RequestId request = 0;
  std::shared_ptr<const Request> body{};
  double total_seconds = 0;  // submission to end
};

// Consecutive tokens of one choice. `text` is whole UTF-8 characters; it may lag behind the ids.
struct TokenRun {
  std::uint32_t choice = 0;
  std::uint64_t first_index = 0;  // of ids[0] among the tokens of this choice
  std::vector<TokenId> ids;
  std::string text;
  std::vector<engine::SampledToken> logprobs;  // one per id if requested, else empty
  // If requested, in the first run: one per token of the prompt, the first one without a logprob (NaN).
  std::vector<engine::SampledToken> prompt_logprobs{};
  std::uint32_t prompt_tokens = 0, cached_tokens = 0;  // as in Usage
};

struct Embeddings {
  engine::Pooling pooling = engine::Pooling::mean;
  std::uint32_t dim = 0;
  std::vector<float> values;  // [inputs, dim]
};

// How a choice ended. Exactly one for each choice of a submitted request, after its last TokenRun. Until the prompt is
// encoded, the choices of a request end together, with the same outcome.
struct End {
  std::uint32_t choice = 0;
  scheduler::Outcome outcome = scheduler::Outcome::internal;
  std::string message;                 // refused and failed: what is wrong, and what to do
  std::string field;                   // refused: the offending field, or the limit by its name in the configuration
  std::string stop;                    // the stop string that matched
  std::optional<std::uint64_t> limit;  // refused: the limit that was met
  std::optional<scheduler::Overflow> overflow{};
  std::optional<std::chrono::milliseconds> retry_after;
  // Refused as deadline_unmeetable: when the tokens would have come, from now.
  std::optional<std::chrono::milliseconds> predicted_first, predicted_last;
  std::uint64_t seed = 0;  // the seed that was used
  Usage usage;
  // The numerics_id under which the request's session was computed before; empty: it was not recomputed.
  std::string recomputed_from{};
  std::shared_ptr<const Embeddings> embeddings;  // set if an Embed request succeeded; its outcome is eos
  // By the batcher: the most tokens that the answer could have had. None: it was ended otherwise.
  std::optional<std::uint32_t> max_tokens{};
  std::shared_ptr<const Proof> proof;  // of an answer that ended (kind done), if the request wants it
};

// The model that computes an answer, for those who read or show it. What serves its name by then may be another one.
struct AnsweringModel {
  std::string name{};
  std::string numerics_id{};
  engine::ReasoningMarkers reasoning{};
  const engine::chat::ToolFormat* tool_format = nullptr;  // in which it calls tools; null: it has no chat template
  std::shared_ptr<const engine::Tokenizer> tokenizer{};   // null: it has no vocabulary
};

// A choice that has passed the checks of its request and waits for its turn.
struct Admitted {
  std::uint32_t choice = 0;
  bool in_reasoning = false;  // the prompt of its conversation ends within reasoning, which its answer goes on with
  std::shared_ptr<const AnsweringModel> model{};  // null only in tests
  float temperature = 1, top_p = 1;               // with which it is drawn: the request's, or its model's defaults
};

// Receives the answers of a request. ipc implements it, the stream table calls it.
//
// Callable from any thread; must not block. Calls for one choice come one at a time, calls for several choices may be
// concurrent.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Before the choice's tokens, and the vectors of an Embed. It may still end as refused: where its deadline cannot be
  // kept.
  virtual void admitted(const Admitted& /*choice*/) {}
  virtual void tokens(TokenRun run) = 0;
  virtual void end(End end) = 0;  // exactly once per choice, and nothing of that choice after it
};

// Set to true: the answer is not needed any more; the work ends as cancelled, at its next check of the flag.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

// --- definitions ---

inline std::uint64_t prompt_bytes(const Prompt& prompt) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return text->size();
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) return ids->size() * sizeof(TokenId);
  const ChatPrompt& chat = std::get<ChatPrompt>(prompt);
  std::uint64_t bytes = chat.variables.size() + chat.tools.size();
  for (const ChatMessage& each : chat.messages)
    bytes += each.role.size() + each.content.size() + each.name.size() + each.reasoning.size() + each.members.size();
  return bytes;
}

inline std::uint64_t input_bytes(const Request& request) {
  if (!request.embed) return prompt_bytes(request.prompt);
  return std::visit(
      [](const auto& all) {
        std::uint64_t bytes = 0;
        for (const auto& each : all) bytes += each.size() * sizeof(each[0]);
        return bytes;
      },
      request.embed->texts);
}

}  // namespace troupe::actors
