// Answers in the shape of OpenAI's Responses: items with parts, and numbered events that add to them.
#include <utility>

#include "ipc/http/api/text_answer.h"

namespace troupe::ipc::api {
namespace {

class ResponseAnswer final : public TextAnswer {
 public:
  ResponseAnswer(ApiCall asked, AnswerFacts with) : TextAnswer(std::move(asked), std::move(with), true, true) {}

 private:
  enum class Item : std::uint8_t { none, reasoning, message };

  void begin(std::string& out) override {
    for (const char* name : {"response.created", "response.in_progress"})
      event(out, name, [&](JsonWriter& json) { write_response(json.key("response"), "in_progress", nullptr); });
  }

  void add(std::string& out, std::uint32_t, const ChoiceText& text) override {
    if (!text.reasoning.empty()) {
      open(out, Item::reasoning);
      event(out, "response.reasoning_text.delta", [&](JsonWriter& json) {
        write_place(json, true);
        json.field("delta", text.reasoning);
      });
    }
    pending_logprobs_.insert(pending_logprobs_.end(), text.logprobs.begin(), text.logprobs.end());
    if (text.content.empty()) return;
    open(out, Item::message);
    event(out, "response.output_text.delta", [&](JsonWriter& json) {
      write_place(json, true);
      json.field("delta", text.content).key("logprobs");
      write_logprobs(json, std::exchange(pending_logprobs_, {}));
    });
  }

  void end_choice(std::string& out, std::uint32_t) override {
    open(out, Item::message);  // an answer without text, too, has a message
    close(out);
  }

  void end(std::string& out) override {
    const bool is_complete = status() == std::string_view("completed");
    event(out, is_complete ? "response.completed" : "response.incomplete",
          [&](JsonWriter& json) { write_response(json.key("response"), status(), nullptr); });
  }

  void fail(std::string& out, const ApiError& error) override {
    event(out, "response.failed", [&](JsonWriter& json) { write_response(json.key("response"), "failed", &error); });
  }

  std::string body() override {
    std::string out;
    JsonWriter json(out);
    write_response(json, status(), nullptr);
    return out;
  }

  const ChoiceState& choice() const { return choices().front(); }
  std::string_view status() const {
    return finish_reason(choice().end.outcome) == "length" ? "incomplete" : "completed";
  }
  std::string item_id(Item item) const { return (item == Item::reasoning ? "rs_" : "msg_") + facts().id; }
  std::uint32_t output_index() const { return open_ == Item::message && has_reasoning_ ? 1 : 0; }

  template <class Members>
  void event(std::string& out, std::string_view name, Members write_members) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().field("type", name).field("sequence_number", next_number_++);
    write_members(json);
    json.end_object();
    out += server_sent_event(name, text);
  }

  // Begins this item, if it is not open, and ends the one before it.
  void open(std::string& out, Item item) {
    if (open_ == item) return;
    if (open_ != Item::none) close(out);
    open_ = item;
    if (item == Item::reasoning) has_reasoning_ = true;
    event(out, "response.output_item.added", [&](JsonWriter& json) {
      json.field("output_index", output_index()).key("item");
      write_item(json, item, "in_progress", {});
    });
    event(out, "response.content_part.added", [&](JsonWriter& json) {
      write_place(json, true);
      write_part(json.key("part"), item, "", {});
    });
  }

  void close(std::string& out) {
    const bool is_message = open_ == Item::message;
    const std::string& text = is_message ? choice().text.content : choice().text.reasoning;
    event(out, is_message ? "response.output_text.done" : "response.reasoning_text.done", [&](JsonWriter& json) {
      write_place(json, true);
      json.field("text", text);
      if (is_message) write_logprobs(json.key("logprobs"), choice().text.logprobs);
    });
    event(out, "response.content_part.done", [&](JsonWriter& json) {
      write_place(json, true);
      write_part(json.key("part"), open_, text, choice().text.logprobs);
    });
    // Reasoning that is followed by a message is complete; else its state is the response's.
    const std::string_view state = !is_message || !choice().has_ended ? "completed" : status();
    event(out, "response.output_item.done", [&](JsonWriter& json) {
      json.field("output_index", output_index()).key("item");
      write_item(json, open_, state, text);
    });
    open_ = Item::none;
  }

  void write_place(JsonWriter& json, bool with_part) const {
    json.field("item_id", item_id(open_)).field("output_index", output_index());
    if (with_part) json.field("content_index", 0);
  }

  void write_part(JsonWriter& json, Item item, std::string_view text,
                  const std::vector<engine::SampledToken>& logprobs) const {
    json.begin_object().field("type", item == Item::message ? "output_text" : "reasoning_text").field("text", text);
    if (item == Item::message) {
      json.key("annotations").begin_array().end_array().key("logprobs");
      write_logprobs(json, logprobs);
    }
    json.end_object();
  }

  // text: of its only part; no part while it is in progress.
  void write_item(JsonWriter& json, Item item, std::string_view state, std::string_view text) const {
    json.begin_object().field("type", item == Item::message ? "message" : "reasoning").field("id", item_id(item));
    if (item == Item::message)
      json.field("role", "assistant");
    else
      json.key("summary").begin_array().end_array();
    json.field("status", state).key("content").begin_array();
    if (state != "in_progress") write_part(json, item, text, choice().text.logprobs);
    json.end_array().end_object();
  }

  void write_output(JsonWriter& json, std::string_view state) const {
    json.begin_array();
    if (state == "completed" || state == "incomplete") {
      if (!choice().text.reasoning.empty()) write_item(json, Item::reasoning, "completed", choice().text.reasoning);
      write_item(json, Item::message, state, choice().text.content);
    }
    json.end_array();
  }

  void write_response(JsonWriter& json, std::string_view state, const ApiError* error) const {
    json.begin_object().field("id", "resp_" + facts().id).field("object", "response");
    json.field("created_at", facts().created).field("status", state).field("background", false);
    write_error(json, error);
    json.key("incomplete_details");
    if (state == "incomplete")
      json.begin_object().field("reason", "max_output_tokens").end_object();
    else
      json.null();
    write_output(json.field("model", facts().model).key("output"), state);
    write_request(json);
    const bool has_ended = state == "completed" || state == "incomplete";
    if (has_ended) {
      write_response_usage(json.key("usage"));
      write_receipts(json, 0, 1);
    }
    json.end_object();
  }

  static void write_error(JsonWriter& json, const ApiError* error) {
    json.key("error");
    if (!error) return void(json.null());
    const char* code = "server_error";  // of a list that the API has
    if (error->status == 429) code = "rate_limit_exceeded";
    if (error->status >= 400 && error->status < 429) code = "invalid_prompt";
    json.begin_object().field("code", code).field("message", error->message).end_object();
  }

  // What the request said, or the defaults.
  void write_request(JsonWriter& json) const {
    const Echoed& echoed = call().echoed;
    const auto given = [&](std::string_view name, const std::string& value, std::string_view otherwise) {
      json.raw_field(name, value.empty() ? otherwise : std::string_view(value));
    };
    given("instructions", echoed.instructions, "null");
    given("max_output_tokens", echoed.max_output_tokens, "null");
    given("metadata", echoed.metadata, "{}");
    given("parallel_tool_calls", echoed.parallel_tool_calls, "true");
    given("reasoning", echoed.reasoning, R"({"effort":null,"summary":null})");
    given("temperature", echoed.temperature, "1");
    given("tool_choice", echoed.tool_choice, R"("auto")");
    given("top_logprobs", echoed.top_logprobs, "0");
    given("top_p", echoed.top_p, "1");
    json.raw_field("text", R"({"format":{"type":"text"}})")
        .raw_field("tools", call().echoed.tools.empty() ? "[]" : call().echoed.tools);
    json.field("truncation", "disabled").field("service_tier", "default").field("store", false);
    json.null_field("previous_response_id");
    if (!echoed.user.empty()) json.raw_field("user", echoed.user);
    if (!echoed.safety_identifier.empty()) json.raw_field("safety_identifier", echoed.safety_identifier);
    if (!echoed.prompt_cache_key.empty()) json.raw_field("prompt_cache_key", echoed.prompt_cache_key);
  }

  void write_response_usage(JsonWriter& json) const {
    const Totals sum = totals();
    json.begin_object().field("input_tokens", sum.prompt).key("input_tokens_details").begin_object();
    json.field("cached_tokens", sum.cached).field("cache_write_tokens", 0).end_object();
    json.field("output_tokens", sum.completion).key("output_tokens_details").begin_object();
    json.field("reasoning_tokens", sum.reasoning).end_object();
    json.field("total_tokens", sum.prompt + sum.completion).end_object();
  }

  std::uint32_t next_number_ = 0;
  Item open_ = Item::none;
  bool has_reasoning_ = false;
  std::vector<engine::SampledToken> pending_logprobs_;  // of tokens whose text was not sent yet, or is reasoning
};

}  // namespace

std::unique_ptr<ApiAnswer> make_response_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<ResponseAnswer>(std::move(call), std::move(facts));
}

}  // namespace troupe::ipc::api
