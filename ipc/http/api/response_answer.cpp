// Answers in the shape of OpenAI's Responses: items with parts, and numbered events that add to them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/http/api/text_answer.h"

namespace troupe::ipc::api {
namespace {

class ResponseAnswer final : public TextAnswer {
 public:
  ResponseAnswer(ApiCall asked, AnswerFacts with) : TextAnswer(std::move(asked), std::move(with), true, true) {}

 private:
  enum class Item : std::uint8_t { none, reasoning, message, call };

  void begin(std::string& out) override {
    for (const char* name : {"response.created", "response.in_progress"})
      event(out, name, [&](JsonWriter& json) { write_response(json.key("response"), "in_progress", nullptr); });
  }

  void add(std::string& out, std::uint32_t, const ChoiceText& text) override {
    if (!text.reasoning.empty()) {
      open(out, Item::reasoning);
      open_text_ += text.reasoning;
      event(out, "response.reasoning_text.delta", [&](JsonWriter& json) {
        write_place(json);
        json.field("delta", text.reasoning);
      });
    }
    pending_logprobs_.insert(pending_logprobs_.end(), text.logprobs.begin(), text.logprobs.end());
    if (text.call) return add_call(out, *text.call);
    if (text.content.empty()) return;
    open(out, Item::message);
    open_text_ += text.content;
    event(out, "response.output_text.delta", [&](JsonWriter& json) {
      write_place(json);
      json.field("delta", text.content).key("logprobs");
      write_logprobs(json, pending_logprobs_);
    });
    open_logprobs_.insert(open_logprobs_.end(), pending_logprobs_.begin(), pending_logprobs_.end());
    pending_logprobs_.clear();
  }

  void add_call(std::string& out, const ClientCall& call) {
    if (call.begins) {
      if (open_ != Item::none) close(out);
      open_ = Item::call;
      open_text_.clear();
      open_call_ = call;
      open_call_.arguments.clear();
      open_id_ = call_item_id(call);
      has_called_ = true;
      event(out, "response.output_item.added", [&](JsonWriter& json) {
        json.field("output_index", items_.size()).key("item");
        write_call(json, open_call_, "in_progress");
      });
    }
    open_call_.arguments += call.arguments;
    if (!call.arguments.empty())
      event(out, std::string(argument_events(call)) + ".delta", [&](JsonWriter& json) {
        json.field("item_id", open_id_).field("output_index", items_.size()).field("delta", call.arguments);
      });
    if (call.ends) close(out);
  }

  void end_choice(std::string& out, std::uint32_t) override {
    pending_logprobs_.clear();
    if (open_ != Item::message && choice().calls.empty()) open(out, Item::message);  // without text, too, a message
    if (open_ != Item::none) close(out);
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
  std::string_view status() const { return finish_reason(choice()) == "length" ? "incomplete" : "completed"; }
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
    open_text_.clear();
    open_logprobs_.clear();
    open_id_ = item_id(item);
    event(out, "response.output_item.added", [&](JsonWriter& json) {
      json.field("output_index", items_.size()).key("item");
      write_item(json, item, open_id_, "in_progress", {}, {});
    });
    event(out, "response.content_part.added", [&](JsonWriter& json) {
      write_place(json);
      write_part(json.key("part"), item, "", {});
    });
  }

  void close(std::string& out) {
    const Item item = std::exchange(open_, Item::none);
    // What is followed by another item is complete; else its state is the response's.
    const std::string_view state = choice().has_ended ? status() : "completed";
    if (item == Item::call) {
      event(out, std::string(argument_events(open_call_)) + ".done", [&](JsonWriter& json) {
        json.field("item_id", open_id_).field("output_index", items_.size());
        if (!open_call_.tool.is_custom) json.field("name", open_call_.tool.name);
        json.field(open_call_.tool.is_custom ? "input" : "arguments", open_call_.arguments);
      });
    } else {
      const bool is_message = item == Item::message;
      event(out, is_message ? "response.output_text.done" : "response.reasoning_text.done", [&](JsonWriter& json) {
        write_place(json);
        json.field("text", open_text_);
        if (is_message) write_logprobs(json.key("logprobs"), open_logprobs_);
      });
      event(out, "response.content_part.done", [&](JsonWriter& json) {
        write_place(json);
        write_part(json.key("part"), item, open_text_, open_logprobs_);
      });
    }
    std::string whole;
    JsonWriter written(whole);
    if (item == Item::call)
      write_call(written, open_call_, state);
    else
      write_item(written, item, open_id_, item == Item::reasoning ? "completed" : state, open_text_, open_logprobs_);
    event(out, "response.output_item.done",
          [&](JsonWriter& json) { json.field("output_index", items_.size()).raw_field("item", whole); });
    items_.push_back(std::move(whole));
  }

  // Of reasoning and messages: each has one part.
  void write_place(JsonWriter& json) const {
    json.field("item_id", open_id_).field("output_index", items_.size()).field("content_index", 0);
  }

  std::string item_id(Item item) const {
    const std::string id = (item == Item::reasoning ? "rs_" : "msg_") + facts().id;
    return has_called_ ? fmt::format("{}_{}", id, items_.size()) : id;
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
  void write_item(JsonWriter& json, Item item, const std::string& id, std::string_view state, std::string_view text,
                  const std::vector<engine::SampledToken>& logprobs) const {
    json.begin_object().field("type", item == Item::message ? "message" : "reasoning").field("id", id);
    if (item == Item::message)
      json.field("role", "assistant");
    else
      json.key("summary").begin_array().end_array();
    json.field("status", state).key("content").begin_array();
    if (state != "in_progress") write_part(json, item, text, logprobs);
    json.end_array().end_object();
  }

  static std::string call_item_id(const ClientCall& call) { return (call.tool.is_custom ? "ctc_" : "fc_") + call.id; }
  static std::string_view argument_events(const ClientCall& call) {
    return call.tool.is_custom ? "response.custom_tool_call_input" : "response.function_call_arguments";
  }
  static void write_call(JsonWriter& json, const ClientCall& call, std::string_view state) {
    const bool is_custom = call.tool.is_custom;
    json.begin_object().field("type", is_custom ? "custom_tool_call" : "function_call");
    json.field("id", call_item_id(call)).field("call_id", call.id);
    if (!call.tool.name_space.empty()) json.field("namespace", call.tool.name_space);
    json.field("name", call.tool.name).field(is_custom ? "input" : "arguments", call.arguments);
    json.field("status", state).end_object();
  }

  void write_output(JsonWriter& json, std::string_view state) const {
    json.begin_array();
    const bool has_ended = state == "completed" || state == "incomplete";
    if (has_ended)
      for (const std::string& each : items_) json.raw(each);
    if (has_ended && items_.empty()) {  // without a stream
      const ChoiceText& text = choice().text;
      if (!text.reasoning.empty())
        write_item(json, Item::reasoning, item_id(Item::reasoning), "completed", text.reasoning, {});
      if (choice().calls.empty() || !text.content.empty())
        write_item(json, Item::message, item_id(Item::message), choice().calls.empty() ? state : "completed",
                   text.content, text.logprobs);
      for (const ClientCall& each : choice().calls)
        write_call(json, each, &each == &choice().calls.back() ? state : "completed");
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

  // What the request said, or what is taken instead.
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
    const auto drawn_with = [&](std::string_view name, const std::string& value, float used) {
      if (value.empty())
        json.field(name, used);
      else
        json.raw_field(name, value);
    };
    drawn_with("temperature", echoed.temperature, facts().temperature);
    given("tool_choice", echoed.tool_choice, R"("auto")");
    given("top_logprobs", echoed.top_logprobs, "0");
    drawn_with("top_p", echoed.top_p, facts().top_p);
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
  // The item that is being written.
  Item open_ = Item::none;
  std::string open_id_, open_text_;
  ClientCall open_call_;
  bool has_called_ = false;  // a call has begun
  std::vector<engine::SampledToken> open_logprobs_;
  std::vector<std::string> items_;                      // that are complete, as JSON
  std::vector<engine::SampledToken> pending_logprobs_;  // of tokens whose text was not sent yet, or is reasoning
};

}  // namespace

std::unique_ptr<ApiAnswer> make_response_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<ResponseAnswer>(std::move(call), std::move(facts));
}

}  // namespace troupe::ipc::api
