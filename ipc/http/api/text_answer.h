// What the answers of all endpoints that generate have in common. Within the folder only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizers/reasoning_splitter.h"
#include "ipc/http/api/answer.h"
#include "ipc/http/api/custom_input.h"
#include "ipc/http/json/json_writer.h"
#include "ipc/tools/answer_calls.h"

namespace troupe::ipc::api {

using engine::ReasoningSplitter;

// What an answer says of one of its calls, for its client.
struct ClientCall : CallText {
  ClientTool tool{};  // as the client knows `name`; the input of a custom one is in place of arguments
};

// Tokens of one choice that are written as text, or the whole choice.
struct ChoiceText {
  std::string reasoning{};
  std::string content{};
  std::optional<ClientCall> call{};              // then there is no reasoning and no content
  std::vector<engine::SampledToken> logprobs{};  // if the request asks for them

  bool empty() const { return reasoning.empty() && content.empty() && !call && logprobs.empty(); }
};

struct ChoiceState {
  ReasoningSplitter splitter;
  std::optional<CallReader> reader{};         // of requests with tools
  ClientTool open_tool{};                     // of the call that is open
  std::optional<CustomInput> custom_input{};  // of that
  ChoiceText text{};                // of the whole choice so far; with stream only of answers that end with all of it
  std::vector<ClientCall> calls{};  // whole, as `text`
  std::uint64_t tokens = 0;         // so far
  std::uint64_t reasoning_tokens = 0;
  bool has_begun = false;
  bool has_ended = false;
  actors::End end{};
};

// The order of events; a derived class writes them in its API's shape. The writers append to `out`, and are called in
// this order: begin() once; add() and end_choice() of each choice; end() once. Without stream only body() is called.
class TextAnswer : public ApiAnswer {
 public:
  TextAnswer(ApiCall call, AnswerFacts facts, bool splits_reasoning, bool keeps_text);

  [[nodiscard]] AnswerOutput on_tokens(actors::TokenRun&& run) final;
  [[nodiscard]] AnswerOutput on_end(actors::End&& end) final;
  [[nodiscard]] AnswerOutput on_silence() final;
  [[nodiscard]] bool streams() const final { return call_.stream; }
  [[nodiscard]] bool finished() const final { return finished_; }
  [[nodiscard]] bool has_begun() const final { return has_begun_; }
  void set_model(const actors::AnsweringModel& model) final;
  void set_drawing(float temperature, float top_p) final {
    facts_.temperature = temperature;
    facts_.top_p = top_p;
  }
  void set_reasoning_open() final;

 protected:
  virtual void begin(std::string& out) = 0;
  virtual void add(std::string& out, std::uint32_t choice, const ChoiceText& text) = 0;
  virtual void end_choice(std::string& out, std::uint32_t choice) = 0;
  virtual void end(std::string& out) = 0;
  virtual void fail(std::string& out, const ApiError& error);  // after begin()
  [[nodiscard]] virtual std::string body() = 0;

  const ApiCall& call() const { return call_; }
  const AnswerFacts& facts() const { return facts_; }
  const std::vector<ChoiceState>& choices() const { return choices_; }
  // Sums over the choices; each prompt counts once.
  struct Totals {
    std::uint64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
  };
  Totals totals() const;
  // {"prompt_tokens":..., ...}
  void write_usage(JsonWriter& json) const;
  // The key "troupe" with the receipts of these choices.
  void write_receipts(JsonWriter& json, std::uint32_t first, std::uint32_t count) const;
  // OpenAI's array of tokens with their logprobs, of chat and responses.
  void write_logprobs(JsonWriter& json, const std::vector<engine::SampledToken>& tokens) const;
  std::string token_bytes(TokenId id) const;

 private:
  void start(AnswerOutput& out);  // begin(), before the first event
  void make_readers();            // of each choice, as the facts say
  // Text behind the reasoning, and the calls in it; at_end: with what was held back.
  std::vector<ChoiceText> read_calls(std::uint32_t choice, std::string content, bool at_end);
  // What a part adds to the whole of its choice, where that is kept.
  void keep(ChoiceState& choice, const ChoiceText& text) const;
  // A part of a call in the words of the client.
  ClientCall client_call(ChoiceState& choice, CallText&& call) const;
  // Of the calls' ids: that of the request, else one of this answer alone.
  std::uint64_t id_seed() const;
  // Where events go: into `out`, after begin(). Of several prompts (then begin() writes nothing) they are held until
  // each has been admitted, as one that is refused refuses them all.
  [[nodiscard]] std::string& events_to(AnswerOutput& out);
  [[nodiscard]] bool all_admitted() const;
  std::vector<ChoiceText> split(std::uint32_t choice, actors::TokenRun&& run);

  ApiCall call_;
  AnswerFacts facts_;
  const bool splits_reasoning_;
  const bool keeps_text_;  // also with stream
  std::vector<ChoiceState> choices_;
  std::uint32_t num_ended_ = 0;
  std::string held_;  // events, until all prompts have been admitted
  bool has_begun_ = false;
  bool finished_ = false;
};

// How a choice ended, as OpenAI's finish_reason: "stop", "length" or "tool_calls".
[[nodiscard]] std::string_view finish_reason(const ChoiceState& choice);
// A finite logprob: OpenAI's -9999 for what has no probability.
[[nodiscard]] float shown_logprob(float logprob);
[[nodiscard]] std::string server_sent_event(std::string_view name, std::string_view json);

[[nodiscard]] std::unique_ptr<ApiAnswer> make_chat_answer(ApiCall call, AnswerFacts facts);
[[nodiscard]] std::unique_ptr<ApiAnswer> make_completion_answer(ApiCall call, AnswerFacts facts);
[[nodiscard]] std::unique_ptr<ApiAnswer> make_response_answer(ApiCall call, AnswerFacts facts);
[[nodiscard]] std::unique_ptr<ApiAnswer> make_messages_answer(ApiCall call, AnswerFacts facts);
[[nodiscard]] std::unique_ptr<ApiAnswer> make_embedding_answer(ApiCall call, AnswerFacts facts);

}  // namespace troupe::ipc::api
