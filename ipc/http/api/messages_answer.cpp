// Answers in the shape of Anthropic's Messages: blocks of content, one after another.
#include <utility>

#include "ipc/http/api/text_answer.h"
#include "ipc/tools/request_tools.h"

namespace troupe::ipc::api {
namespace {

class MessagesAnswer final : public TextAnswer {
 public:
  MessagesAnswer(ApiCall asked, AnswerFacts with) : TextAnswer(std::move(asked), std::move(with), true, false) {}

 private:
  // Nothing is hidden, so there is nothing to sign; but some clients drop thinking that has no signature.
  static constexpr const char* kSignature = "unsigned";
  enum class Block : std::uint8_t { none, thinking, text, tool_use };

  void begin(std::string& out) override {
    event(out, "message_start", [&](JsonWriter& json) {
      write_head(json.key("message"));
      json.key("content").begin_array().end_array().null_field("stop_reason").null_field("stop_sequence");
      write_message_usage(json.key("usage"));
      json.end_object();
    });
  }

  void add(std::string& out, std::uint32_t, const ChoiceText& text) override {
    if (!text.reasoning.empty()) delta(out, Block::thinking, text.reasoning);
    if (!text.content.empty()) delta(out, Block::text, text.content);
    if (text.call) add_call(out, *text.call);
  }

  void end_choice(std::string& out, std::uint32_t) override {
    if (open_ == Block::none && has_calls_) return;
    if (open_ != Block::text) open(out, Block::text);  // an answer without text, too, has a block
    close(out);
  }

  void end(std::string& out) override {
    event(out, "message_delta", [&](JsonWriter& json) {
      json.key("delta").begin_object();
      write_stop(json);
      json.end_object();
      write_message_usage(json.key("usage"));
      write_receipts(json, 0, 1);
    });
    event(out, "message_stop", [](JsonWriter&) {});
  }

  std::string body() override {
    std::string out;
    JsonWriter json(out);
    const ChoiceText& text = choices().front().text;
    write_head(json);
    json.key("content").begin_array();
    if (!text.reasoning.empty()) write_block(json, Block::thinking, text.reasoning);
    const std::vector<ClientCall>& calls = choices().front().calls;
    if (calls.empty() || !text.content.empty()) write_block(json, Block::text, text.content);
    for (const ClientCall& each : calls) write_call(json, each, arguments_object(each.arguments));
    json.end_array();
    write_stop(json);
    write_message_usage(json.key("usage"));
    write_receipts(json, 0, 1);
    json.end_object();
    return out;
  }

  template <class Members>
  static void event(std::string& out, std::string_view name, Members write_members) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().field("type", name);
    write_members(json);
    json.end_object();
    out += server_sent_event(name, text);
  }

  void delta(std::string& out, Block block, const std::string& text) {
    if (open_ != block) open(out, block);
    const bool is_text = block == Block::text;
    write_delta(out, is_text ? "text_delta" : "thinking_delta", is_text ? "text" : "thinking", text);
  }
  void write_delta(std::string& out, const char* type, const char* member, const std::string& text) {
    event(out, "content_block_delta", [&](JsonWriter& json) {
      json.field("index", index_).key("delta").begin_object().field("type", type).field(member, text).end_object();
    });
  }

  void open(std::string& out, Block block) {
    begin_block(out, block, [&](JsonWriter& json) { write_block(json, block, ""); });
  }
  template <class Content>
  void begin_block(std::string& out, Block block, Content write_content) {
    if (open_ != Block::none) close(out);
    open_ = block;
    event(out, "content_block_start",
          [&](JsonWriter& json) { write_content(json.field("index", index_).key("content_block")); });
  }

  void add_call(std::string& out, const ClientCall& call) {
    if (call.begins) begin_block(out, Block::tool_use, [&](JsonWriter& json) { write_call(json, call, "{}"); });
    has_calls_ = true;
    if (!call.arguments.empty()) write_delta(out, "input_json_delta", "partial_json", call.arguments);
    if (call.ends) close(out);
  }
  // input: a JSON object.
  static void write_call(JsonWriter& json, const ClientCall& call, std::string_view input) {
    json.begin_object()
        .field("type", "tool_use")
        .field("id", call.id)
        .field("name", call.tool.name)
        .raw_field("input", input);
    json.end_object();
  }

  void close(std::string& out) {
    if (open_ == Block::thinking) write_delta(out, "signature_delta", "signature", kSignature);
    event(out, "content_block_stop", [&](JsonWriter& json) { json.field("index", index_); });
    open_ = Block::none;
    ++index_;
  }

  static void write_block(JsonWriter& json, Block block, std::string_view text) {
    const char* const type = block == Block::text ? "text" : "thinking";
    json.begin_object().field("type", type).field(type, text);
    if (block == Block::thinking) json.field("signature", text.empty() ? "" : kSignature);
    json.end_object();
  }

  void write_head(JsonWriter& json) const {
    json.begin_object().field("id", "msg_" + facts().id).field("type", "message").field("role", "assistant");
    json.field("model", facts().model);
  }

  void write_stop(JsonWriter& json) const {
    using scheduler::Outcome;
    const actors::End& end = choices().front().end;
    const bool at_limit = end.outcome == Outcome::length || end.outcome == Outcome::deadline;
    const bool has_calls = finish_reason(choices().front()) == "tool_calls";
    const bool at_stop = end.outcome == Outcome::stop_string && !has_calls;
    json.field("stop_reason", at_limit    ? "max_tokens"
                              : has_calls ? "tool_use"
                              : at_stop   ? "stop_sequence"
                                          : "end_turn");
    if (at_stop)
      json.field("stop_sequence", end.stop);
    else
      json.null_field("stop_sequence");
  }

  void write_message_usage(JsonWriter& json) const {
    const Totals sum = totals();
    json.begin_object().field("input_tokens", sum.prompt - sum.cached).field("cache_creation_input_tokens", 0);
    json.field("cache_read_input_tokens", sum.cached).field("output_tokens", sum.completion).end_object();
  }

  Block open_ = Block::none;
  std::uint32_t index_ = 0;
  bool has_calls_ = false;
};

}  // namespace

std::unique_ptr<ApiAnswer> make_messages_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<MessagesAnswer>(std::move(call), std::move(facts));
}

}  // namespace troupe::ipc::api
