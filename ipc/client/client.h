/// @file
/// The client library of troupe: connect to the local server, send prompts, and get the answers as they are generated.
///
///     auto client = troupe::client::Client::connect();
///     if (!client) return fail(client.error().message);
///     auto answer = (*client)->complete({.prompt = "Once upon a time", .sampling = {.max_tokens = 64}});
///     if (answer) std::puts(answer->text.c_str());
///
/// A failure between client and server is an Error of the call (troupe::Result); how a request ended, refusals
/// included, is the Outcome in its Ended. docs/protocol.md describes the protocol.
///
/// The server is not trusted: what breaks the protocol ends the connection, and every call and stream that waits on it
/// with ErrorCode::protocol; a part of a frame is waited for for a minute. Error::message, Ended::message and
/// Ended::field are one line of at most 8 KiB without control characters and overrides of the writing direction: they
/// can be printed whatever the server sends. Every other text (an answer's, names, Health::Model::problem,
/// UsageReport::note) is as it came, UTF-8 with any characters: escape it before a terminal shows it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cache/ids.h"
#include "config/metric.h"
#include "config/result.h"
#include "scheduler/outcome.h"

/// The client library.
namespace troupe::client {

using scheduler::Outcome;

/// Where the text of an answer may match a stop string: anywhere; behind the reasoning; likewise, and the prompt ends
/// within reasoning.
enum class StopScope : std::uint8_t { text, answer, behind_reasoning };

/// How the next token is chosen. Absent fields are neutral: the model's own distribution. The server refuses values out
/// of range with the field's name and its range.
struct Sampling {
  std::optional<float> temperature{};           ///< 0: greedy; 1 if absent
  std::optional<std::int32_t> top_k{};          ///< keep the k likeliest; 0 or absent: all
  std::optional<float> top_p{};                 ///< keep the smallest set with this probability
  std::optional<float> min_p{};                 ///< drop tokens below min_p times the top probability
  std::optional<float> repeat_penalty{};        ///< divides the logits of repeated tokens
  std::optional<float> presence_penalty{};      ///< subtracted once from each token of the answer
  std::optional<float> frequency_penalty{};     ///< subtracted for each time the answer has a token
  std::optional<std::int32_t> repeat_last_n{};  ///< window of repeat_penalty in tokens; 64 if absent, -1: all
  std::optional<std::uint64_t> seed{};          ///< drawn by the server if absent; see Ended::seed
  std::optional<std::uint32_t> max_tokens{};    ///< if absent as the server has it (--predict), or what fits
  bool ignore_eos = false;                      ///< never draw an end-of-generation token
  /// The answer does not end at an end-of-generation token, a stop id or a stop string before it has so many tokens.
  std::uint32_t min_tokens = 0;
  std::vector<std::pair<TokenId, float>> logit_bias{};  ///< added to the logits of these tokens
  std::vector<TokenId> stop_ids{};                      ///< one of these ends the answer and is not part of it
};

/// A function that the program offers: an answer may call it, and the program runs it.
struct Tool {
  std::string name{};         ///< at most 128 bytes, without spaces, quotes, brackets and commas
  std::string description{};  ///< for the model
  std::string parameters{};   ///< a JSON schema of the arguments, an object; empty: none
  bool strict = false;        ///< refuse the request if that cannot be enforced; else any object is taken for arguments
};

/// Whether an answer calls tools.
enum class ToolChoice : std::uint8_t {
  automatic,  ///< the model decides
  none,       ///< it is not told of them
  required,   ///< the answer is one or more calls
};

/// A call of a tool in an answer.
struct ToolCall {
  std::string id{};          ///< by which the result names it
  std::string name{};        ///< of the tool; one of those that the request offers, unless the server errs
  std::string arguments{};   ///< JSON as the model wrote it: check it
  bool is_complete = false;  ///< false: the answer was cut in it
};

/// One turn of a conversation.
struct Message {
  std::string role{};       ///< "system", "user", "assistant", or what else the model's chat template knows
  std::string content{};    ///< UTF-8; never becomes a control token
  std::string name{};       ///< of a user or a tool; empty: none
  std::string reasoning{};  ///< of an assistant, for templates that show it again; empty: none
  std::string members{};    ///< a JSON object of further members that the template knows; not beside the three below
  std::vector<ToolCall> tool_calls{};  ///< of an assistant: Completion::calls
  std::string tool_call_id{};          ///< of the role "tool": whose result the content is
  bool is_error = false;               ///< of the role "tool": the call failed, and the content says why
};

/// A conversation that the model's chat template makes a prompt of; refused (unsupported) by a model without one.
struct Conversation {
  std::vector<Message> messages{};      ///< 1 to 16,384
  bool add_generation_prompt = true;    ///< the prompt ends where the assistant's answer begins
  std::string variables{};              ///< a JSON object of further variables of the template; empty: none
  bool continue_final_message = false;  ///< the answer goes on with the last message's text; no generation prompt then
};

/// How steps verify proposed tokens together; never changes an answer. Absent fields: as the server was started.
struct Speculation {
  std::string type{};                    ///< "off", "auto", "draft", "ngram" or "suffix"; empty: the server's
  std::optional<std::uint32_t> n_max{};  ///< tokens of a draft, at most 16
  std::optional<std::uint32_t> n_min{};  ///< shorter drafts are not used
  std::optional<float> p_min{};          ///< a draft model's draft ends before a token of lower probability
};

/// What kind of a Form.
enum class FormKind : std::uint8_t { json_object, json_schema, regex, choice, grammar, calls };

/// What calls of tools an answer has.
struct FormCalls {
  std::string format{};               ///< in which they are written, as --tool-format has it; empty: the model's own
  bool must_call = false;             ///< the answer is calls and nothing else
  std::string name{};                 ///< of the tool that is called; empty: any
  bool single = false;                ///< one call
  std::vector<std::string> strict{};  ///< tools that are refused if their schema cannot be enforced
};

/// What an answer has to be, as receipts have it (docs/structured.md).
struct Form {
  FormKind kind = FormKind::json_object;  ///< which of them
  std::string text{};                     ///< the schema, pattern or grammar, or a JSON list of the tools
  std::vector<std::string> choices{};     ///< of FormKind::choice
  bool compact_json = false;              ///< as Request::compact_json
  FormCalls calls{};                      ///< of FormKind::calls
};

/// A prompt to continue, and how.
struct Request {
  std::string model{};  ///< empty: the server's only or default model
  std::variant<std::string, std::vector<TokenId>, Conversation> prompt{};  ///< UTF-8 text, exact ids, or messages
  bool add_special = true;  ///< text only: begin with BOS as the vocabulary asks
  /// Text only: control tokens written in it become their ids. For text that strangers wrote set it to false, or send
  /// messages, in which none does.
  bool parse_special = true;
  Sampling sampling{};              ///< how tokens are chosen
  Sampling presets{};               ///< numbers for what neither `sampling` nor the model's defaults say
  std::vector<std::string> stop{};  ///< strings that end the answer and are not part of it
  std::optional<std::chrono::milliseconds> deadline{};  ///< from arrival, enforced by the server
  std::int32_t priority = 0;  ///< lower is earlier; -1000 to 1000, below 0 only for the server's owner and root
  /// Requests of the caller's tenant with the same scope share cached prefixes; "public": those of all tenants. Empty:
  /// the tenant's own scope, or public where a rule of the server says so.
  std::string cache_scope{};
  std::optional<std::uint32_t> logprobs{};  ///< report logprobs, and those of this many likeliest tokens
  /// Number of answers, sampled independently from one computation of the prompt: choices 0 to n - 1. At most 64.
  std::uint32_t n = 1;
  /// Manual flow control: the server sends this many tokens of each choice before Stream::credit grants more.
  /// Absent: the library grants credit as on_tokens returns.
  std::optional<std::uint64_t> credit{};
  /// The conversation to continue, or to begin: its tokens come before the prompt, and the answer becomes part of it.
  /// Letters, digits, ".", "_" and "-", at most 64; empty: none. n must be 1.
  std::string session{};
  Speculation speculation{};  ///< what drafts tokens for it
  /// Tokens of reasoning before the marker that ends it comes; as many as the model likes if absent.
  std::optional<std::uint32_t> reasoning_budget{};
  /// Also if it was computed under another numerics_id of this model, or by another one with the same vocabulary and
  /// chat template.
  bool session_recompute = false;
  /// What the caller believes to be the answer, or its beginning: as long as it is, it comes as fast as a prompt is
  /// read. Never changes the answer. n must be 1.
  std::vector<TokenId> proposal{};
  /// The text that the answer begins with, behind its reasoning: a part of the answer. UTF-8, at most 1,024 bytes;
  /// control tokens written in it become their ids. Empty: none.
  std::string begins_with{};
  /// What the answer has to be, at most one of these (docs/structured.md): JSON that meets a JSON Schema, text that a
  /// pattern of ECMA-262 matches as a whole, one of some texts, text of a grammar of GBNF, or any JSON object. Not
  /// beside tools.
  std::string json_schema{};
  std::string regex{};                             ///< see json_schema
  std::vector<std::string> choices{};              ///< see json_schema
  std::string grammar{};                           ///< see json_schema
  bool json_object = false;                        ///< see json_schema
  bool compact_json = false;                       ///< of json_schema and json_object: without spaces between the parts
  std::optional<Form> form{};                      ///< the same as a receipt has it; none of the others beside it
  std::vector<TokenId> shown_ids{};                ///< control tokens whose text is a part of the answer's; at most 64
  std::uint32_t first_choice = 0;                  ///< draws as this choice of a request for several
  bool proof = false;                              ///< fill in Receipt::proof
  StopScope stop_scope = StopScope::text;          ///< of text and ids; a conversation's is its own
  std::vector<Tool> tools{};                       ///< of a conversation; at most 1,024
  ToolChoice tool_choice = ToolChoice::automatic;  ///< whether the answer calls them
  std::string called_tool{};        ///< with ToolChoice::required: of which the first call is; empty: of any
  bool parallel_tool_calls = true;  ///< false: the answer ends behind its first call
};

/// A candidate token.
struct TokenLogprob {
  TokenId id = 0;     ///< the token
  float logprob = 0;  ///< log-softmax of the raw logits
};

/// The chosen token's logprob and those of the likeliest tokens.
struct Logprobs {
  float logprob = 0;                ///< of the chosen token
  std::vector<TokenLogprob> top{};  ///< as many as requested, likeliest first
};

/// A part of a call: its begin, bytes of its arguments, its end, or several of these.
struct CallPart {
  std::uint32_t index = 0;  ///< among the calls of this answer
  std::string id{};         ///< of a call that begins, as `name`; else empty
  std::string name{};       ///< of the tool
  std::string arguments{};  ///< the next bytes of its JSON
  bool ends = false;        ///< the call is complete
};

/// Consecutive tokens of an answer.
struct Tokens {
  std::uint32_t choice = 0;          ///< which of the Request::n answers this is
  std::uint64_t first_index = 0;     ///< of ids[0] in the answer
  std::vector<TokenId> ids{};        ///< exact
  std::string text{};                ///< whole UTF-8 characters; may lag behind the ids
  std::vector<Logprobs> logprobs{};  ///< one per id, if asked for
  std::vector<CallPart> calls{};     ///< behind `text`, of which calls are no part; there may be no ids beside them
  /// When the read of the socket returned that brought the last byte of it: runs that came together have the same.
  std::chrono::steady_clock::time_point received_at{};
};

/// Counts and times of an ended request, as measured by the server.
struct Usage {
  std::uint32_t prompt_tokens = 0;      ///< of the prompt, BOS included
  std::uint32_t cached_tokens = 0;      ///< of those, served from the prefix cache
  std::uint32_t completion_tokens = 0;  ///< in the answer
  std::uint32_t preemptions = 0;        ///< times the sequence was preempted and replayed
  double queue_seconds = 0;             ///< arrival to first step
  double prefill_seconds = 0;           ///< first step to first token
  double decode_seconds = 0;            ///< first token to last
  double ttft_seconds = 0;              ///< arrival to first token
  std::uint32_t tool_calls = 0;         ///< in the answer
  std::uint32_t tool_call_tokens = 0;   ///< of completion_tokens, those of calls
};

/// What is needed to compute an answer again, token for token: docs/verification.md.
struct Proof {
  std::string numerics_id{};        ///< under which it was computed; it has the hash of the model's file
  std::string model{};              ///< the name under which it was served
  std::vector<TokenId> prompt{};    ///< all of it, a session's tokens included
  Sampling sampling{};              ///< as used: every number, the seed; max_tokens: what request and context allowed
  std::vector<std::string> stop{};  ///< strings that would have ended the answer
  std::uint32_t choice = 0;         ///< among the answers to its request
  std::optional<std::uint32_t> reasoning_budget{};  ///< as Request::reasoning_budget
  std::vector<TokenId> ids{};                       ///< the answer
  std::string text{};                               ///< the answer
  Outcome outcome = Outcome::internal;              ///< how it ended
  StopScope stop_scope = StopScope::text;           ///< as Request::stop_scope
  std::string matched_stop{};                       ///< of `stop`, what ended it
  std::string begins_with{};                        ///< that it had to: Request::begins_with, or a demanded call's
  std::vector<TokenId> shown_ids{};                 ///< Request::shown_ids, and the marks of calls
  std::optional<Form> form{};                       ///< that it had to have
  std::string recomputed_from{};                    ///< as Receipt's; nothing that is proved depends on it
};

/// What one answer waited for and what it took, as measured by the server. Queue, prefill and decode are consecutive;
/// stalled, preempted and parked are parts of them.
struct Receipt {
  double queue_seconds = 0;           ///< arrival to first step
  double prefill_seconds = 0;         ///< first step to first token
  double decode_seconds = 0;          ///< first token to last
  double stalled_seconds = 0;         ///< from the first step on: it could be computed, and no step did
  double preempted_seconds = 0;       ///< from the first step on: without a place in the batch
  double parked_seconds = 0;          ///< without credit
  double compute_seconds = 0;         ///< its part of the time of the steps that computed it
  double cpu_seconds = 0;             ///< compute_seconds times the threads that computed
  std::uint32_t prompt_tokens = 0;    ///< of the prompt, BOS included
  std::uint32_t cached_tokens = 0;    ///< of those, served from the prefix cache
  std::uint64_t computed_tokens = 0;  ///< of prompt and answer; computed again after a preemption, they count again
  double block_seconds = 0;           ///< KV blocks times the seconds that it held them
  std::uint32_t preemptions = 0;      ///< times the sequence was preempted and replayed
  std::uint64_t drafted_tokens = 0;   ///< proposals that were verified (Speculation)
  std::uint64_t accepted_tokens = 0;  ///< of these, tokens of the answer
  double share = 0;                   ///< of all computing from its arrival to its end, the caller's part: 0 to 1
  std::optional<Proof> proof{};       ///< of an answer that ended, with Request::proof
  /// Of a session's turn with Request::session_recompute: the numerics_id under which the session was computed before,
  /// if it is another than this answer's. Empty: it went on as it was.
  std::string recomputed_from{};
};

/// How an answer ended.
struct Ended {
  std::uint32_t choice = 0;              ///< which of the Request::n answers; a refusal is for all of them
  Outcome outcome = Outcome::internal;   ///< scheduler::info() returns its kind, name and exit code
  std::string message{};                 ///< refused, failed or stalled: what is wrong and what to do
  std::string field{};                   ///< refused: path of the offending field, or a limit's name
  std::string stop{};                    ///< the stop string that matched, as the server sends it
  std::optional<std::uint64_t> limit{};  ///< refused: the limit that was met
  std::optional<std::chrono::milliseconds> retry_after{};  ///< refused: a retry may succeed after this time
  /// Refused as deadline_unmeetable: when the first and the last token would have come, from the refusal on.
  std::optional<std::chrono::milliseconds> predicted_first{};
  std::optional<std::chrono::milliseconds> predicted_last{};  ///< the same of the last token
  std::uint64_t seed = 0;                                     ///< the seed that was used
  Usage usage{};                                              ///< counts and times
  std::optional<Receipt> receipt{};                           ///< absent: refused, or the server is older than receipts

  /// Whether the stream ended normally, cancelled and deadline included (an Outcome of kind done).
  [[nodiscard]] bool done() const;
};

/// A whole answer.
struct Completion {
  std::string text{};                ///< all of it, without its calls
  std::vector<TokenId> ids{};        ///< all tokens
  std::vector<Logprobs> logprobs{};  ///< one per id, if asked for
  Ended ended{};                     ///< how it ended
  /// What the program has to run. The next request has the conversation with this answer, its calls included, and a
  /// message of the role "tool" for each of them.
  std::vector<ToolCall> calls{};
};

/// Adds the next part, of Tokens::calls, to the calls of an answer so far.
void add_call_part(std::vector<ToolCall>& calls, const CallPart& part);

/// Whether and how a refused request is sent again: after the server's retry_after, then after twice that, and so on,
/// each delay lengthened by a random part, so that clients that were refused together do not retry together.
struct RetryPolicy {
  std::uint32_t max_retries = 0;                ///< attempts after the first; 0: none, a refusal is the answer
  std::chrono::milliseconds max_delay{30'000};  ///< of one wait; if the server's retry_after is longer, no retry
  std::uint64_t seed = 0;                       ///< of the random parts: give every client a different one
};

/// The waits of one request under a RetryPolicy. Plain: no clock, no thread; the same seed gives the same waits.
class Backoff {
 public:
  /// For a request that has not been sent yet.
  explicit Backoff(const RetryPolicy& policy);
  /// How long to wait before the request that ended like this is sent again: never less than its retry_after, and at
  /// most 1.5 times RetryPolicy::max_delay. nullopt: do not retry, because it was not refused, the refusal has no
  /// retry_after or one above max_delay, the server is draining, or the retries are used up.
  [[nodiscard]] std::optional<std::chrono::milliseconds> next(const Ended& ended);

 private:
  RetryPolicy policy_;
  std::uint32_t retries_ = 0;
  std::uint64_t random_;
};

/// The callbacks of a stream, called on the client's reader thread, one call at a time. While a callback runs no other
/// stream of this client makes progress: do long work on another thread. Callbacks may call generate(),
/// Stream::cancel, Stream::credit and Stream::id, but no function that waits (it returns an error).
struct Callbacks {
  std::function<void(const Tokens&)> on_tokens{};  ///< may be empty
  /// Called exactly once for each choice, after its last on_tokens, with how it ended. But only once for all open
  /// choices if the request was refused, with io if the connection was lost, or with protocol if the server breaks the
  /// protocol: a gap in the tokens, a choice that was not requested, more tokens than Sampling::max_tokens or than
  /// there is credit for, another number of logprobs than of ids. May be empty.
  std::function<void(const Result<Ended>&)> on_end{};
};

/// Handle to a running request. Cheap to copy, safe from any thread, harmless after the end. Destroying it does not end
/// the request.
class Stream {
 public:
  /// The number of this stream on its connection.
  [[nodiscard]] std::uint64_t id() const;
  /// Asks the server to end the stream, which then ends with Outcome::cancelled.
  void cancel() const;
  /// Grants credit for `tokens` more tokens of a choice (only with Request::credit).
  void credit(std::uint64_t tokens, std::uint32_t choice = 0) const;
  /// Waits for the end of every choice, and returns that of the last to end. Errors: io when the connection
  /// is lost; protocol, permission, busy or unsupported when the server breaks the protocol or ends the connection with
  /// a refusal; invalid_argument inside a callback.
  Result<Ended> wait() const;
  /// As wait(), but returns nullopt after `timeout`; the stream goes on.
  std::optional<Result<Ended>> wait_for(std::chrono::milliseconds timeout) const;

 private:
  friend class Client;
  struct State;
  explicit Stream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Whether the server can answer.
enum class Readiness {
  loading,     ///< the model is being loaded; requests wait
  ready,       ///< serves requests
  draining,    ///< finishes running requests and refuses new ones
  failed,      ///< the model could not be loaded
  on_request,  ///< of a model: it is not in memory, and the first request for it has it loaded
};

/// The server's state.
struct Health {
  /// One model of the server.
  struct Model {
    std::string name{};                        ///< for Request::model
    Readiness readiness = Readiness::loading;  ///< see Readiness
    double load_fraction = 0;                  ///< 0 to 1
    bool stalled = false;                      ///< work for it waits, and no step of it has ended for too long
    std::string problem{};                     ///< why it failed
    std::vector<std::string> aliases{};        ///< other names for Request::model
    bool replacing = false;                    ///< is loaded to take the place of the one of this name
    bool retiring = false;                     ///< was replaced, and finishes the requests that it has
    bool on_request = false;                   ///< is loaded when a request asks for it, and put out for others
  };
  Readiness readiness =
      Readiness::loading;       ///< ready while any model is or comes on request, failed once all have failed
  double load_fraction = 0;     ///< 0 to 1, of the default model
  bool stalled = false;         ///< work waits, and no step has ended for longer than the server's progress_timeout
  std::vector<Model> models{};  ///< all, the default one first; empty: the server is older
};

/// What a model's answers are made with where a request says nothing. What is absent or empty is as Sampling has it.
struct ModelDefaults {
  std::optional<float> temperature{};               ///< as Sampling's, like the seven that follow
  std::optional<std::int32_t> top_k{};              ///< likewise
  std::optional<float> top_p{};                     ///< likewise
  std::optional<float> min_p{};                     ///< likewise
  std::optional<float> repeat_penalty{};            ///< likewise
  std::optional<float> presence_penalty{};          ///< likewise
  std::optional<float> frequency_penalty{};         ///< likewise
  std::optional<std::int32_t> repeat_last_n{};      ///< likewise
  std::string reasoning{};                          ///< "none", "low", ..., "max": for the chat template
  std::optional<std::uint32_t> reasoning_budget{};  ///< as Request::reasoning_budget
  std::string system{};                             ///< first message of a conversation without one of that role
};

/// A model to load while the server runs. What is empty or absent is as the server was started with.
struct ModelRequest {
  std::string path{};                        ///< of a GGUF file on the server's machine; absolute
  std::string name{};                        ///< for Request::model; empty: the one in the file
  std::string draft{};                       ///< path of a draft model
  std::string chat_template{};               ///< by name
  std::string chat_template_source{};        ///< in Jinja
  std::optional<std::uint32_t> ctx_size{};   ///< tokens of a sequence; 0: as long as the model was trained for
  std::optional<std::uint32_t> kv_blocks{};  ///< 0: what its memory allows
  std::string kv_type{};                     ///< f16, f32 or int8
  std::uint64_t memory = 0;                  ///< bytes that it may take; 0: what it needs, and what is left
  bool pinned = false;                       ///< never unloaded to make room for another
  double weight = 1;                         ///< of its computing beside other models', 0.001 to 1000
  std::optional<std::uint32_t> predict{};  ///< tokens of an answer where Sampling::max_tokens is absent; 2^32 - 1: any
  std::vector<std::string> aliases{};      ///< other names for Request::model; at most 16
  std::string tool_format{};               ///< how it writes calls of tools, by name; empty: as its chat template says
  ModelDefaults defaults{};                ///< before those that its file names
  /// Of the model that has its name: "beside" loads beside it, while it serves on, and switches then; "unload-first"
  /// gives its memory back first, and requests wait meanwhile. Empty: a name that is taken is refused.
  std::string replace{};
  std::string load{};        ///< "start": now; "on-request": once a request asks for it; empty: now
  std::string keep_alive{};  ///< of one on request: put out after so long without a request: "10m", "0", "forever"
};

/// The server's answer to Hello.
struct ServerInfo {
  std::uint32_t protocol = 0;                  ///< version spoken
  std::string server{};                        ///< name and version
  std::string numerics_id{};                   ///< of the default model; equal ids give equal bits; empty while loading
  Health health{};                             ///< at that time
  std::uint32_t max_frame_bytes = 0;           ///< of one message's body
  std::uint32_t max_streams = 0;               ///< of this connection at a time
  std::uint32_t max_choices = 0;               ///< Request::n
  std::uint32_t max_embed_inputs = 0;          ///< EmbedRequest::inputs
  std::uint64_t max_outbox_bytes = 0;          ///< unread bytes at which the server ends the connection
  std::chrono::milliseconds stall_timeout{0};  ///< a stream without credit for this long is ended
  std::string tenant{};                        ///< for which requests count: a name of the server's rules, or a uid
  bool takes_presets = false;                  ///< Request::presets; for an older server they are a part of `sampling`
  std::string distrust{};                      ///< why ConnectOptions::strict_modes would have refused it, if so
};

/// A model that the server serves.
struct ModelDescription {
  std::string name{};                    ///< for Request::model
  std::string family{};                  ///< "llama"
  std::string weight_types{};            ///< "Q4_K x 135, F32 x 45"
  std::uint64_t num_parameters = 0;      ///< weights
  std::uint32_t context = 0;             ///< longest sequence served, in tokens
  std::uint32_t trained_context = 0;     ///< the longest that the model was trained on
  std::uint32_t vocab_size = 0;          ///< ids are below this
  std::uint32_t num_layers = 0;          ///< depth
  std::uint32_t dim = 0;                 ///< width
  std::optional<TokenId> bos{};          ///< begin of sequence
  std::optional<TokenId> eos{};          ///< end of sequence
  std::vector<TokenId> end_ids{};        ///< each of them ends an answer, eos included
  std::uint64_t kv_bytes_per_token = 0;  ///< KV cache memory per token
  std::string numerics_id{};             ///< equal ids give equal bits
  std::string chat_template{};           ///< its name; empty: there is none, and messages are refused
  std::string reasoning_open{};          ///< begins its reasoning, before its answer; empty without a chat template
  std::string reasoning_close{};         ///< ends it
  bool begins_reasoning = false;  ///< its template ends a prompt within reasoning, if its variables say nothing else
  std::string tool_format{};      ///< how it writes calls of tools, by name; empty without a chat template
  std::vector<std::string> aliases{};  ///< other names for Request::model
  ModelDefaults defaults{};            ///< of its answers: those that it was loaded with, and its file's
};

/// The server's memory of one kind.
struct MemoryUse {
  std::string kind{};            ///< "weights"; docs/metrics.md lists them
  std::uint64_t bytes = 0;       ///< resident now
  std::uint64_t peak_bytes = 0;  ///< the most so far
};

/// The time of one operation of the server's steps; docs/protocol.md explains the fields.
struct OperationTime {
  std::string operation{};              ///< "attn_qkv"
  std::uint64_t calls = 0;              ///< in the measured steps
  double seconds = 0;                   ///< of all these calls
  std::uint64_t joins = 0;              ///< parallel sections, in which the team's threads work together
  double join_seconds = 0;              ///< of all joins; times num_threads it is the sum of the next four
  double busy_seconds = 0;              ///< of threads while they work
  double wake_up_seconds = 0;           ///< of threads until they begin
  double wait_seconds = 0;              ///< of threads after their last piece of work
  double absent_seconds = 0;            ///< of threads that got no work
  std::vector<double> layer_seconds{};  ///< by layer; empty if the operation belongs to none
};

/// The steps of one kind.
struct PhaseTime {
  std::string phase{};                      ///< "decode" or "prefill"
  std::uint64_t steps = 0;                  ///< since the start
  std::uint64_t tokens = 0;                 ///< computed in these steps
  double seconds = 0;                       ///< of these steps
  std::uint64_t measured_steps = 0;         ///< steps whose operations were measured
  double measured_seconds = 0;              ///< of the measured steps
  std::vector<OperationTime> operations{};  ///< in the order they run
};

/// The time of the server's steps by operation.
struct Profile {
  std::uint32_t num_threads = 0;    ///< of the compute team
  std::vector<PhaseTime> phases{};  ///< those that occurred
};

/// A request that has not ended.
struct LiveRequest {
  std::uint64_t request = 0;           ///< counts from 1, in order of arrival; of a guest its own requests alone
  std::uint64_t stream = 0;            ///< Stream::id of a request of this client; 0: of another one
  std::uint32_t uid = 0;               ///< of its connection
  std::string tenant{};                ///< for which it counts, as ServerInfo::tenant
  std::string client_id{};             ///< over HTTP: its X-Request-Id
  std::string state{};                 ///< "received", "encoding", "queued", "running" or "parked"
  std::int32_t priority = 0;           ///< lower is earlier
  std::uint32_t prompt_tokens = 0;     ///< 0: not known yet
  std::uint32_t cached_tokens = 0;     ///< of the prompt, served from the prefix cache
  std::uint32_t computed_tokens = 0;   ///< of the prompt, the cached ones included; all of them: the answer is next
  std::uint32_t generated_tokens = 0;  ///< so far
  std::uint32_t preemptions = 0;       ///< so far
  double age_seconds = 0;              ///< since its arrival
};

/// Counters of the server since its start, and its state now.
struct ServerStatus {
  /// Requests of one kind ("generate", "health", ...) and how they ended; docs/protocol.md, Status.Kind.
  struct Kind {
    std::string kind{};                                          ///< name of the kind
    std::uint64_t received = 0;                                  ///< since start
    std::vector<std::pair<std::string, std::uint64_t>> ended{};  ///< by outcome's name, those that occurred
  };
  /// What one model takes and does; for a guest without requests, tokens and memory.
  struct ModelUse {
    std::string name{};                  ///< for Request::model
    std::string numerics_id{};           ///< empty: it is not loaded
    std::string kernels{};               ///< the kernel variant in use
    std::uint64_t weight_bytes = 0;      ///< memory of the weights
    std::uint64_t kv_bytes = 0;          ///< memory of the KV blocks
    std::uint64_t requests_waiting = 0;  ///< before their first step
    std::uint64_t requests_running = 0;  ///< in steps
    std::uint64_t requests_parked = 0;   ///< without credit
    std::uint64_t prompt_tokens = 0;     ///< of requests that were begun
    std::uint64_t cached_tokens = 0;     ///< of these, served from the prefix cache
    std::uint64_t generated_tokens = 0;  ///< of answers
    std::vector<MemoryUse> memory{};     ///< resident, without peaks
  };
  Health health{};                                                      ///< readiness
  std::string server{};                                                 ///< name and version
  std::vector<ModelUse> models{};                                       ///< all, the default one first
  std::string first_model{};                                            ///< that it was started with
  std::string model{};                                                  ///< name of the default model
  std::string numerics_id{};                                            ///< of the model
  std::string kernels{};                                                ///< the kernel variant in use
  std::vector<std::pair<std::string, std::uint64_t>> requests_ended{};  ///< by outcome's name
  std::vector<Kind> kinds{};                                            ///< those that occurred
  bool own_only = false;                                                ///< for a guest: counts only its own requests
  std::uint64_t weight_bytes = 0;                                       ///< memory of the weights
  std::uint64_t kv_bytes = 0;                                           ///< memory of the KV blocks
  std::uint32_t num_threads = 0;                                        ///< of the compute team
  MetricList metrics{};                      ///< every number of the server; a guest gets its own
  std::vector<double> histogram_bounds{};    ///< upper bounds in seconds, ascending
  std::vector<MemoryUse> memory{};           ///< kinds whose sum is the resident memory within 5 %
  std::vector<LiveRequest> live_requests{};  ///< if requested: at most 256, oldest first
  std::optional<Profile> profile{};          ///< if requested, and the server was started with --profile

  /// The value of the metric with this key ("step_seconds"), 0 if there is none.
  [[nodiscard]] double value(std::string_view key) const { return metrics.value(key); }
  /// The value of the metric with this key ("steps"), which counts in whole numbers; 0 if there is none.
  [[nodiscard]] std::uint64_t count(std::string_view key) const { return metrics.count(key); }
};

/// How the hidden states of an input's tokens become one vector.
enum class Pooling {
  mean,  ///< their mean
  cls,   ///< the first one
  last,  ///< the last one
};

/// Asks for one vector for each input.
struct EmbedRequest {
  /// Texts, or exact ids; at most ServerInfo::max_embed_inputs, none longer than the model's context, nor than 2,048
  /// tokens if the model is not an encoder, unless they are cut.
  std::variant<std::vector<std::string>, std::vector<std::vector<TokenId>>> inputs{};
  std::string model{};               ///< empty: the only or default model
  std::optional<Pooling> pooling{};  ///< absent: the model's own
  bool normalise = true;             ///< to a length of 1
  bool add_special = true;           ///< texts: add the vocabulary's special tokens around them
  bool parse_special = false;        ///< texts: the text of control tokens becomes their ids
  std::optional<bool> truncate{};    ///< cut inputs that are too long at their end; absent: as the server was started
  std::uint32_t truncate_to = 0;     ///< cut them to so many tokens at most, too; 0: to what the model reads
};

/// The vectors, in the order of the inputs.
struct Embeddings {
  std::vector<std::vector<float>> vectors{};  ///< one for each input
  Pooling pooling = Pooling::mean;            ///< the pooling used
  std::uint32_t prompt_tokens = 0;            ///< of all inputs, as far as they were read
  std::uint32_t truncated_tokens = 0;         ///< cut from them
  std::optional<Receipt> receipt{};           ///< absent: the server is older than receipts
};

/// What one row of usage sums up. Days and hours are those of UTC.
enum class UsagePeriod {
  total,  ///< all of the time that was asked for
  day,    ///< one day
  hour,   ///< one hour
};

/// What a tenant has used in a period: its Generate and Embed requests, by the time of their ends.
struct UsageRow {
  std::int64_t begin = 0;            ///< of the period, in seconds since 1970; of a total 0
  std::optional<std::uint32_t> uid;  ///< the tenant is this user; absent: the one with this name
  std::string tenant{};              ///< empty for a user
  std::uint64_t done = 0;            ///< requests, each answer counts: ended by themselves or at their length
  std::uint64_t cancelled = 0;       ///< or at their deadline
  std::uint64_t refused = 0;         ///< nothing was computed
  std::uint64_t failed = 0;          ///< on the server's side
  std::uint64_t prompt_tokens = 0;   ///< of requests for answers, as far as begun
  std::uint64_t cached_tokens = 0;   ///< of these, served from the prefix cache
  std::uint64_t answer_tokens = 0;   ///< generated
  std::uint64_t embed_tokens = 0;    ///< of texts whose vectors were asked for
  double cpu_seconds = 0;            ///< charged, of all threads that compute
  double block_seconds = 0;          ///< KV blocks times the seconds that they were held
};

/// What tenants have used, also before the server's last start.
struct UsageReport {
  std::vector<UsageRow> rows{};  ///< by period, then users by uid, then others by name
  bool own_only = false;         ///< for a guest: its own tenant alone
  std::string note{};            ///< why this is not all that was used; empty: it is
};

/// The state of a session after a whole number of blocks of its tokens.
struct SessionAnchor {
  std::uint32_t position = 0;  ///< in tokens
  std::uint64_t hash = 0;      ///< of the tokens before it
  bool cached = false;         ///< a request would be served these tokens from the cache
};

/// A named conversation that the server keeps.
struct SessionInfo {
  std::string name{};                    ///< for Request::session
  std::uint64_t created = 0;             ///< seconds since 1970
  std::uint64_t last_used = 0;           ///< the same, of its last answer
  std::uint32_t tokens = 0;              ///< all of it
  std::uint32_t computed = 0;            ///< of these, with K and V (or state) on disk
  std::uint32_t blocks = 0;              ///< of these
  std::uint32_t answers = 0;             ///< in it
  std::uint64_t bytes = 0;               ///< on disk
  std::uint32_t file_version = 0;        ///< of its files' format
  std::string numerics_id{};             ///< under which it was computed
  bool in_use = false;                   ///< by a request that has not ended
  std::string problem{};                 ///< why it cannot be continued, if so
  std::vector<SessionAnchor> anchors{};  ///< Client::inspect_session() only
  bool cache_known = false;              ///< whether SessionAnchor::cached was looked up
};

/// Where and how to connect.
struct ConnectOptions {
  /// Path of the socket. Empty: TROUPE_HOST (unix:///path), else the first that answers of
  /// $XDG_RUNTIME_DIR/troupe/troupe.sock (or /run/user/UID/...), ~/.troupe/HOST.sock and /run/troupe/troupe.sock.
  std::string socket{};
  /// Whether to refuse (permission) a server that runs as another user than this process's or root, unless only that
  /// user, root and this user can write to the socket's directory: otherwise any user's server might read and answer
  /// the prompts. False: such a server is used, and ServerInfo::distrust says what is wrong.
  bool strict_modes = true;
  std::chrono::milliseconds connect_timeout{5000};  ///< until the server's welcome
  /// Until the answer to all that waits for one and takes no timeout of its own, and to a cancel.
  std::chrono::milliseconds request_timeout{10000};
  std::string name = "libtroupe";  ///< for the server's log, at most 64 bytes
  /// The tenant for which this client acts: a name of the server's rules, or a uid in digits. Only for users that the
  /// rules call trusted proxies; others are refused (permission). Empty: this process's own.
  std::string tenant{};
};

/// What a check of a model has found.
struct ModelCheck {
  std::string model{};        ///< its name
  bool canary_ok = false;     ///< fixed tokens gave the bits that they gave at the load
  bool weights_ok = false;    ///< all weights in memory have their checksums
  std::uint64_t bytes = 0;    ///< of weights that were checked
  double seconds = 0;         ///< that the check took
  std::string file_change{};  ///< what has changed of the model's files since the load; empty: nothing
  std::string problem{};      ///< what is wrong, or why it was not checked; empty: nothing
};

/// A connection to the server, with any number of streams on it. Every call may come from any thread unless its comment
/// says otherwise.
class Client {
 public:
  /// Connects and exchanges greetings. Errors: invalid_argument (path), io (no server; says which paths
  /// were tried), permission (not let in, or strict_modes), busy (too many
  /// connections, or the server is about to stop), protocol, unsupported.
  static Result<std::unique_ptr<Client>> connect(const ConnectOptions& options = {});

  /// Closes as close() does. Not from a callback.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// The server's Welcome.
  [[nodiscard]] const ServerInfo& server() const;

  /// Sends a request and returns at once; its tokens and its end go to `callbacks`. Errors: io (the
  /// connection is lost), invalid_argument (larger than the server's max_frame_bytes, or text that is not
  /// UTF-8). A refusal is not an error here but the stream's end.
  Result<Stream> generate(const Request& request, Callbacks callbacks);

  /// Sends a request and waits for its whole answer, or for choice 0 if Request::n is above 1. After `timeout` the
  /// stream is cancelled and the answer so far is returned with Outcome::cancelled; Request::deadline does the same on
  /// the server's clock. Not in a callback. Errors as generate(), and io when the connection is lost.
  ///
  /// With a RetryPolicy a request that is refused with a retry_after is sent again as long as the waits end before
  /// `timeout`; the last attempt's answer is returned.
  Result<Completion> complete(const Request& request, std::optional<std::chrono::milliseconds> timeout = std::nullopt,
                              const RetryPolicy& retry = {});
  /// As complete(), and returns all Request::n answers, by choice. A refused request has one.
  Result<std::vector<Completion>> complete_all(const Request& request,
                                               std::optional<std::chrono::milliseconds> timeout = std::nullopt,
                                               const RetryPolicy& retry = {});

  /// Token ids of `text`. Waits, not in a callback. Errors: io, protocol, or the server's refusal.
  Result<std::vector<TokenId>> tokenize(const std::string& text, bool add_special = true, bool parse_special = true,
                                        const std::string& model = {});
  /// The bytes of `ids`, at most 65,536 of them; may be invalid UTF-8. Waits, not in a callback. Errors as tokenize().
  Result<std::string> detokenize(const std::vector<TokenId>& ids, const std::string& model = {});
  /// Embeddings of texts. Waits, not in a callback; after `timeout` the request is cancelled; absent: no timeout.
  /// Errors as tokenize(), and io after `timeout` or if the server failed.
  Result<Embeddings> embed(const EmbedRequest& request,
                           std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// As embed(), and returns at once. `on_end` is called once, on the reader thread, with how the request ended:
  /// Outcome::eos with the vectors; without vectors a refusal, with its limit and retry_after, or the error of a lost
  /// connection. Errors as generate().
  Status embed(const EmbedRequest& request, std::function<void(const Result<Ended>&, const Embeddings&)> on_end);
  /// As tokenize() with special tokens as the vocabulary asks, and returns at once; `on_end` is called as that of
  /// embed(). Errors as generate().
  Status tokenize(const std::string& text, const std::string& model,
                  std::function<void(const Result<Ended>&, const std::vector<TokenId>&)> on_end);
  /// The models served; empty while loading. Waits, not in a callback. Errors as tokenize().
  Result<std::vector<ModelDescription>> models();
  /// Loads one more model, for the server's owner and root. Waits until it is served, however long that takes; not in a
  /// callback. Errors as tokenize(); invalid_argument for a file, name or value that cannot be, or too little memory,
  /// with the numbers.
  Result<Health::Model> load_model(const ModelRequest& request);
  /// Takes a model away, for the server's owner and root. Waits until its requests have ended and its memory is given
  /// back; not in a callback. Errors as tokenize(); invalid_argument if there is no such model, or no other one.
  Result<Health::Model> unload_model(const std::string& model);
  /// Checks whether models still are what was loaded, for the server's owner and root: these, by name or alias, or all.
  /// One that is damaged is taken out. Waits, a second for each ten gigabytes of weights or so; not in a callback.
  /// Errors as tokenize().
  Result<std::vector<ModelCheck>> check_models(const std::vector<std::string>& models = {});
  /// Counters and state, and with list_requests the live requests: the caller's own, or all of them for the server's
  /// owner and root; with `profile` the time of its steps by operation. Waits, not in a callback. Errors as
  /// tokenize().
  Result<ServerStatus> status(bool list_requests = false, bool profile = false);
  /// The live requests of this client alone: how far each is. Waits, not in a callback. Errors as tokenize();
  /// unsupported of a server that cannot tell them apart.
  Result<std::vector<LiveRequest>> own_requests();
  /// Cancels a live request, of whichever client, by its LiveRequest::request: one's own, as the server's owner or root
  /// any. Waits, not in a callback. Errors as tokenize(); invalid_argument if there is none.
  Status cancel_request(std::uint64_t request);
  /// What tenants have used since a time (seconds since 1970; absent: all that is kept): the caller's own, for the
  /// server's owner and root all of them. Waits, not in a callback. Errors as tokenize(); unsupported of a server that
  /// keeps no account, or knows of none.
  Result<UsageReport> usage(UsagePeriod by = UsagePeriod::total, std::optional<std::int64_t> since = std::nullopt);
  /// The caller's sessions, by name. Waits, not in a callback. Errors as tokenize().
  Result<std::vector<SessionInfo>> sessions();
  /// One of them, with its anchors. Waits, not in a callback. Errors as tokenize(); invalid_argument if there is none.
  Result<SessionInfo> inspect_session(const std::string& name);
  /// Waits until what the session has computed is on disk, if it is to be saved. Errors as inspect_session(), and io
  /// after the request_timeout; then it is written nevertheless.
  Result<SessionInfo> save_session(const std::string& name);
  /// Makes a session with the same tokens. Errors as inspect_session(), and if `to` exists.
  Result<SessionInfo> fork_session(const std::string& from, const std::string& to);
  /// Forgets a session. Errors as inspect_session(), and if it is in use.
  Status delete_session(const std::string& name);
  /// Whether the server can answer. Waits, not in a callback. Errors as tokenize().
  Result<Health> health();

  /// Received frames for unknown or ended streams; above 0 the server is faulty, and the connection has ended. For
  /// tests of the server.
  [[nodiscard]] std::uint64_t stray_frames() const;
  /// Whether the server has sent Draining.
  [[nodiscard]] bool draining() const;
  /// Closes the connection; its streams end with an io error and the server cancels them. Idempotent.
  void close();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::client
