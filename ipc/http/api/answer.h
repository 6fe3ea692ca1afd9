// From tokens and ends to the bytes of an HTTP answer: one JSON body, or server-sent events. Plain: time and ids are
// arguments, so that a test can replay an answer byte for byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/requests/request.h"
#include "config/sampling/model_defaults.h"
#include "engine/chat/tools/tool_format.h"
#include "ipc/http/api/call.h"
#include "ipc/http/api/error.h"

namespace troupe::ipc::api {

using engine::ReasoningMarkers;

struct AnswerFacts {
  std::string id;             // letters and digits, the same in every id of this answer: "chatcmpl-" + id
  std::int64_t created = 0;   // Unix time in seconds
  std::string model{};        // that serves it, as it is named in the answer
  bool takes_name = false;    // the request names none: the name is that of the model which answers
  std::string fingerprint{};  // system_fingerprint: the numerics id, with which a seed gives the same answer
  // The bytes of a token: Tokenizer::piece(), or raw_piece() of a control token. Null: logprobs have no texts.
  std::function<std::string(TokenId)> token_bytes{};
  ReasoningMarkers reasoning{};  // the model's
  // In which the model calls tools; null: it has no chat template.
  const engine::chat::ToolFormat* tool_format = nullptr;
  float temperature = 1, top_p = 1;  // with which its tokens are drawn

  // What is known of the model that answers. with_pieces: the bytes of its tokens, too.
  void set(const actors::AnsweringModel& answering, bool with_pieces);
};

// Status and headers of the answer.
struct AnswerHead {
  int status = 200;
  std::string_view content_type = "application/json";      // or text/event-stream
  bool streams = false;                                    // more outputs follow; else the output is the whole body
  std::optional<std::chrono::milliseconds> retry_after{};  // as in ApiError
  std::optional<bool> should_retry{};                      // set for errors
};

// What to send now.
struct AnswerOutput {
  std::optional<AnswerHead> head{};  // set once: these go before `bytes`
  std::string bytes{};
  bool last = false;  // the answer is complete
  // An error has ended an answer that streams: after `bytes` the body must not look complete.
  bool cut_off = false;
};

// The answer to one ApiCall. Not thread-safe: calls for one answer come one at a time, also those of several choices.
//
// The head comes with the first output that has bytes, so that a request refused before its first token gets the
// status of its refusal, whether it streams or not, unless on_silence() was called before. After `last` nothing may
// come (asserted). If one of several choices is refused or fails, the answer is that error, and `last`; the caller then
// cancels the others and drops what they still report.
class ApiAnswer {
 public:
  virtual ~ApiAnswer() = default;
  [[nodiscard]] virtual AnswerOutput on_tokens(actors::TokenRun&& run) = 0;
  [[nodiscard]] virtual AnswerOutput on_end(actors::End&& end) = 0;
  // Nothing was sent for a while, and the request was admitted: the head, if it was not sent, or what clients pass
  // over. Nothing unless the answer streams.
  [[nodiscard]] virtual AnswerOutput on_silence() = 0;
  [[nodiscard]] virtual bool streams() const = 0;
  // Whether an output was the last one.
  [[nodiscard]] virtual bool finished() const = 0;
  // Whether an event was written: then an error is one, too.
  [[nodiscard]] virtual bool has_begun() const = 0;
  // The model that answers, whose facts these are from now on. Called before the first token, and before
  // set_reasoning_open().
  virtual void set_model(const actors::AnsweringModel& model) = 0;
  // With which its tokens are drawn: the request's, or the model's defaults. Called before the first token.
  virtual void set_drawing(float temperature, float top_p) = 0;
  // The prompt ends within reasoning. Called before the first token, as the template may decide it.
  virtual void set_reasoning_open() = 0;
};

// For endpoints that generate or embed.
[[nodiscard]] std::unique_ptr<ApiAnswer> make_answer(ApiCall call, AnswerFacts facts);

// The head of an answer that streams, and an event that clients pass over: also for what waits before its answer is
// made.
[[nodiscard]] AnswerHead stream_answer_head();
[[nodiscard]] std::string passed_over_event(Dialect dialect);
// The same with a line that a person may read. state: one line.
[[nodiscard]] std::string waiting_event(std::string_view state, Dialect dialect);

// A whole answer: an error as JSON.
[[nodiscard]] AnswerOutput error_answer(const ApiError& error, Dialect dialect, const std::string& request_id = {});

// Bodies of the other endpoints.
[[nodiscard]] std::string count_tokens_body(std::uint64_t num_tokens);
//   pieces  empty, or the bytes of each id
[[nodiscard]] std::string tokenize_body(std::span<const TokenId> ids, std::span<const std::string> pieces,
                                        std::uint32_t max_context);
[[nodiscard]] std::string detokenize_body(std::string_view text);

// What programs ask a vocabulary for, in the names of tokenizer_config.json. Absent: it has no such token.
struct TokenizerFacts {
  std::string model;
  std::optional<std::string> bos, eos, unknown;
  bool adds_bos = false;
  std::uint32_t max_context = 0;
  std::string chat_template{};  // its source; empty: there is none
};
[[nodiscard]] std::string tokenizer_info_body(const TokenizerFacts& facts);
[[nodiscard]] std::string apply_template_body(std::string_view prompt);

struct ListedModel {
  std::string name;
  std::string alias_of{};              // this is another name of that model; empty: it is its own
  std::vector<std::string> aliases{};  // of its own name: the others
  std::uint32_t max_context = 0;
  std::uint32_t vocab_size = 0;
  std::uint64_t num_parameters = 0;
  std::string numerics_id{};
  bool has_chat_template = false;    // conversations can be answered; else texts are only continued
  std::string tool_format{};         // with one: how the model writes calls of tools, by name
  config::ModelDefaults defaults{};  // of its answers
  std::string likely_template{};     // without one: the name of that of its kind, if it is known
  bool is_loaded = true;             // else the numbers above are unknown, and left out
  std::string readiness = "ready";   // or "loading", "failed", "draining", "on-request"
  double load_fraction = 1;
};
[[nodiscard]] std::string models_body(std::span<const ListedModel> models, std::int64_t created);
[[nodiscard]] std::string model_body(const ListedModel& model, std::int64_t created);

// The OpenAPI document of all endpoints, written from the table of fields (fields.h).
[[nodiscard]] std::string openapi_document(std::string_view version);

}  // namespace troupe::ipc::api
