// Answers in the shape of OpenAI's chat completions, completions and embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "config/assert.h"
#include "config/utf8.h"
#include "ipc/http/api/text_answer.h"

namespace troupe::ipc::api {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

// The members at the beginning of every chunk and body of one answer.
std::string common_members(const AnswerFacts& facts, std::string_view id_prefix, std::string_view object) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", std::string(id_prefix) + facts.id).field("object", object);
  json.field("created", facts.created).field("model", facts.model);
  if (!facts.fingerprint.empty()) json.field("system_fingerprint", facts.fingerprint);
  json.end_object();
  return out.substr(1, out.size() - 2);
}

// Chunks that all begin with the same members, and end with [DONE].
class ChunkedAnswer : public TextAnswer {
 protected:
  ChunkedAnswer(ApiCall asked, AnswerFacts with, bool splits_reasoning, std::string_view id_prefix,
                std::string_view chunk_object)
      : TextAnswer(std::move(asked), std::move(with), splits_reasoning, false),
        id_prefix_(id_prefix),
        chunk_object_(chunk_object) {}

  template <class Choices>
  void chunk(std::string& out, Choices write_choices) const {
    chunk(out, write_choices, [](JsonWriter&) {});
  }
  template <class Choices, class Rest>
  void chunk(std::string& out, Choices write_choices, Rest write_rest) const {
    if (members_.empty()) members_ = common_members(facts(), id_prefix_, chunk_object_);
    out += "data: {";
    out += members_;
    out.push_back(',');
    JsonWriter json(out);
    json.key("choices").begin_array();
    write_choices(json);
    json.end_array();
    if (call().continuous_usage && !all_ended_) {
      const std::uint64_t prompt = totals().prompt, completion = tokens_so_far();
      json.key("usage").begin_object().field("prompt_tokens", prompt).field("completion_tokens", completion);
      json.field("total_tokens", prompt + completion).end_object();
    } else if (call().include_usage && !all_ended_) {
      json.null_field("usage");  // as documented: null in all but the last
    }
    write_rest(json);
    out += "}\n\n";
  }

 private:
  void begin(std::string&) final {}

  void end(std::string& out) final {
    const auto no_choices = [](JsonWriter&) {};
    all_ended_ = true;
    if (call().include_usage) chunk(out, no_choices, [&](JsonWriter& json) { write_usage(json.key("usage")); });
    out += kDone;
  }

  std::uint64_t tokens_so_far() const {
    std::uint64_t sum = 0;
    for (const ChoiceState& choice : choices()) sum += choice.tokens;
    return sum;
  }

  const std::string_view id_prefix_, chunk_object_;
  mutable std::string members_;  // of each chunk; from the first one on, before which the model is known
  bool all_ended_ = false;
};

class ChatAnswer final : public ChunkedAnswer {
 public:
  ChatAnswer(ApiCall asked, AnswerFacts with)
      : ChunkedAnswer(std::move(asked), std::move(with), true, "chatcmpl-", "chat.completion.chunk"),
        has_role_(call().num_choices()) {}

 private:
  void add(std::string& out, std::uint32_t choice, const ChoiceText& text) override {
    if (text.call && !text.call->begins && text.call->arguments.empty()) return;  // its end alone
    chunk(out, [&](JsonWriter& json) {
      json.begin_object().field("index", choice).key("delta").begin_object();
      write_role(json, choice);
      if (!text.reasoning.empty()) json.field("reasoning_content", text.reasoning);
      if (text.call) {
        json.key("tool_calls").begin_array();
        write_call(json, *text.call, true);
        json.end_array();
      } else if (!text.content.empty() || text.reasoning.empty()) {
        json.field("content", text.content);
      }
      json.end_object();
      if (call().logprobs) write_chat_logprobs(json, text.logprobs);
      json.null_field("finish_reason").end_object();
    });
  }

  void end_choice(std::string& out, std::uint32_t choice) override {
    chunk(
        out,
        [&](JsonWriter& json) {
          json.begin_object().field("index", choice).key("delta").begin_object();
          if (write_role(json, choice)) json.field("content", "");
          json.end_object();
          json.field("finish_reason", finish_reason(choices()[choice])).end_object();
        },
        [&](JsonWriter& json) { write_receipts(json, choice, 1); });
  }

  std::string body() override {
    std::string out = "{" + common_members(facts(), "chatcmpl-", "chat.completion") + ",";
    std::string rest;
    JsonWriter json(rest);
    json.begin_object().key("choices").begin_array();
    for (std::uint32_t i = 0; i < choices().size(); ++i) {
      const ChoiceState& choice = choices()[i];
      json.begin_object().field("index", i).key("message").begin_object().field("role", "assistant");
      if (choice.calls.empty() || !choice.text.content.empty())
        json.field("content", choice.text.content);
      else
        json.null_field("content");
      json.null_field("refusal");
      if (!choice.text.reasoning.empty()) json.field("reasoning_content", choice.text.reasoning);
      if (!choice.calls.empty()) {
        json.key("tool_calls").begin_array();
        for (const ClientCall& each : choice.calls) write_call(json, each, false);
        json.end_array();
      }
      json.end_object();
      if (call().logprobs)
        write_chat_logprobs(json, choice.text.logprobs);
      else
        json.null_field("logprobs");
      json.field("finish_reason", finish_reason(choice)).end_object();
    }
    json.end_array();
    write_usage(json.key("usage"));
    if (!call().echoed.metadata.empty()) json.raw_field("metadata", call().echoed.metadata);
    write_receipts(json, 0, static_cast<std::uint32_t>(choices().size()));
    json.end_object();
    return out.append(rest, 1);
  }

  // Whole, or a part of it within a delta.
  static void write_call(JsonWriter& json, const ClientCall& call, bool is_part) {
    json.begin_object();
    if (is_part) json.field("index", call.index);
    const char* const type = call.tool.is_custom ? "custom" : "function";
    if (call.begins) json.field("id", call.id).field("type", type);
    json.key(type).begin_object();
    if (call.begins) json.field("name", call.tool.name);
    json.field(call.tool.is_custom ? "input" : "arguments", call.arguments).end_object().end_object();
  }

  // Returns whether this is the first delta of the choice.
  bool write_role(JsonWriter& json, std::uint32_t choice) {
    if (has_role_[choice]) return false;
    has_role_[choice] = true;
    json.field("role", "assistant");
    return true;
  }

  void write_chat_logprobs(JsonWriter& json, const std::vector<engine::SampledToken>& tokens) const {
    json.key("logprobs").begin_object().key("content");
    write_logprobs(json, tokens);
    json.null_field("refusal").end_object();
  }

  std::vector<bool> has_role_;
};

// As OpenAI writes a token that is a part of a character: "bytes:\xe2\x82".
std::string completion_token(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

class CompletionAnswer final : public ChunkedAnswer {
 public:
  CompletionAnswer(ApiCall asked, AnswerFacts with)
      : ChunkedAnswer(std::move(asked), std::move(with), false, "cmpl-", "text_completion"),
        offsets_(call().num_choices()),
        has_prompt_(call().num_choices()) {}

 private:
  void add(std::string& out, std::uint32_t choice, const ChoiceText& text) override {
    chunk(out, [&](JsonWriter& json) {
      write_choice(json, choice, prompt_once(choice) + text.content, call().logprobs ? &text.logprobs : nullptr, {});
    });
  }

  void end_choice(std::string& out, std::uint32_t choice) override {
    chunk(
        out,
        [&](JsonWriter& json) {
          write_choice(json, choice, prompt_once(choice), nullptr, finish_reason(choices()[choice]));
        },
        [&](JsonWriter& json) { write_receipts(json, choice, 1); });
  }

  std::string body() override {
    std::string out = "{" + common_members(facts(), "cmpl-", "text_completion") + ",";
    std::string rest;
    JsonWriter json(rest);
    json.begin_object().key("choices").begin_array();
    for (std::uint32_t i = 0; i < choices().size(); ++i) {
      const ChoiceState& choice = choices()[i];
      write_choice(json, i, prompt_once(i) + choice.text.content, call().logprobs ? &choice.text.logprobs : nullptr,
                   finish_reason(choice));
    }
    json.end_array();
    write_usage(json.key("usage"));
    write_receipts(json, 0, static_cast<std::uint32_t>(choices().size()));
    json.end_object();
    return out.append(rest, 1);
  }

  void write_choice(JsonWriter& json, std::uint32_t choice, const std::string& text,
                    const std::vector<engine::SampledToken>* logprobs, std::string_view finish) {
    json.begin_object().field("index", choice).field("text", text).key("logprobs");
    if (logprobs)
      write_parallel_logprobs(json, *logprobs, choice);
    else
      json.null();
    if (finish.empty())
      json.null_field("finish_reason");
    else
      json.field("finish_reason", finish);
    json.end_object();
  }

  // OpenAI's four arrays.
  void write_parallel_logprobs(JsonWriter& json, const std::vector<engine::SampledToken>& tokens,
                               std::uint32_t choice) {
    std::uint64_t& offset = offsets_[choice];  // of the next token
    json.begin_object().key("tokens").begin_array();
    for (const auto& token : tokens) json.string(completion_token(token_bytes(token.id)));
    json.end_array().key("token_logprobs").begin_array();
    for (const auto& token : tokens) is_first(token) ? json.null() : json.number(shown_logprob(token.logprob));
    json.end_array().key("top_logprobs").begin_array();
    for (const auto& token : tokens) write_top(json, token);
    json.end_array().key("text_offset").begin_array();
    for (const auto& token : tokens) {
      json.natural(offset);
      const std::string bytes = token_bytes(token.id);
      if (is_first(token) && !prompt_text(choice).starts_with(bytes)) continue;  // it begins every text
      offset += static_cast<std::uint64_t>(
          std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    }
    json.end_array().end_object();
  }

  // Of an echoed prompt: nothing was before it.
  static bool is_first(const engine::SampledToken& token) { return std::isnan(token.logprob); }

  // The likeliest tokens and the chosen one by their texts; of tokens with the same text, the likeliest.
  void write_top(JsonWriter& json, const engine::SampledToken& token) const {
    if (is_first(token)) return void(json.null());
    std::vector<std::string> written;
    json.begin_object();
    const auto write = [&](TokenId id, float logprob) {
      std::string text = completion_token(token_bytes(id));
      if (std::ranges::find(written, text) != written.end()) return;
      json.field(text, shown_logprob(logprob));
      written.push_back(std::move(text));
    };
    for (const engine::TokenLogprob& each : token.top) write(each.id, each.logprob);
    write(token.id, token.logprob);
    json.end_object();
  }

  // The prompt, before the first text of a choice, if it is to be echoed.
  std::string prompt_once(std::uint32_t choice) {
    if (!call().echo || has_prompt_[choice]) return {};
    has_prompt_[choice] = true;
    return prompt_text(choice);
  }

  std::string prompt_text(std::uint32_t choice) const {
    const std::uint32_t index = choice / call().request.num_choices;
    const auto& prompt = index == 0 ? call().request.prompt : call().more_prompts[index - 1];
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    std::string out;
    for (const TokenId id : std::get<std::vector<TokenId>>(prompt)) out += token_bytes(id);
    return valid_utf8(out);
  }

  std::vector<std::uint64_t> offsets_;  // of each choice, in characters
  std::vector<bool> has_prompt_;
};

// RFC 4648, with padding.
std::string base64(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
  const std::size_t size = values.size_bytes();
  std::string out;
  out.reserve((size + 2) / 3 * 4);
  for (std::size_t i = 0; i < size; i += 3) {
    const std::size_t num = std::min<std::size_t>(3, size - i);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < num ? bytes[i + j] : 0u);
    for (std::size_t j = 0; j < 4; ++j) out += j <= num ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

class EmbeddingAnswer final : public ApiAnswer {
 public:
  EmbeddingAnswer(ApiCall call, AnswerFacts facts) : call_(std::move(call)), facts_(std::move(facts)) {}

  AnswerOutput on_tokens(actors::TokenRun&&) override { return {}; }
  AnswerOutput on_silence() override { return {}; }
  bool streams() const override { return false; }
  bool finished() const override { return finished_; }
  bool has_begun() const override { return finished_; }
  void set_model(const actors::AnsweringModel& model) override { facts_.set(model, false); }
  void set_drawing(float, float) override {}
  void set_reasoning_open() override {}

  AnswerOutput on_end(actors::End&& end) override {
    TROUPE_ASSERT(!finished_);
    finished_ = true;
    if (!end.embeddings) {
      ApiError error = api_error(end);
      if (error.param == "texts" || error.param == "token_ids") error.param = "input";
      return error_answer(error, Dialect::openai);
    }
    if (call_.dimensions && *call_.dimensions != end.embeddings->dim)
      return error_answer(
          api_error(scheduler::invalid(
              "dimensions", fmt::format("dimensions is {}; this model's vectors have {}, and are not shortened",
                                        *call_.dimensions, end.embeddings->dim))),
          Dialect::openai);
    return {.head = AnswerHead{}, .bytes = body(*end.embeddings, end.usage), .last = true};
  }

 private:
  std::string body(const actors::Embeddings& embeddings, const actors::Usage& usage) const {
    std::string out;
    JsonWriter json(out);
    json.begin_object().field("object", "list").key("data").begin_array();
    const std::span<const float> values = embeddings.values;
    for (std::size_t begin = 0; begin < values.size(); begin += embeddings.dim) {
      const auto row = values.subspan(begin, embeddings.dim);
      json.begin_object().field("object", "embedding").field("index", begin / embeddings.dim).key("embedding");
      if (call_.base64) {
        json.string(base64(row));
      } else {
        json.begin_array();
        for (const float value : row) json.number(value);
        json.end_array();
      }
      json.end_object();
    }
    json.end_array().field("model", facts_.model).key("usage").begin_object();
    json.field("prompt_tokens", usage.prompt_tokens).field("total_tokens", usage.prompt_tokens);
    if (usage.truncated_tokens > 0) json.field("truncated_tokens", usage.truncated_tokens);
    json.end_object().key("troupe").begin_object().field("queue_seconds", usage.queue_seconds);
    json.field("compute_seconds", usage.compute_seconds).field("cpu_seconds", usage.cpu_seconds);
    if (!call_.echoed.user.empty()) json.raw_field("user", call_.echoed.user);
    json.end_object().end_object();
    return out;
  }

  const ApiCall call_;
  AnswerFacts facts_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<ApiAnswer> make_chat_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<ChatAnswer>(std::move(call), std::move(facts));
}

std::unique_ptr<ApiAnswer> make_completion_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<CompletionAnswer>(std::move(call), std::move(facts));
}

std::unique_ptr<ApiAnswer> make_embedding_answer(ApiCall call, AnswerFacts facts) {
  return std::make_unique<EmbeddingAnswer>(std::move(call), std::move(facts));
}

}  // namespace troupe::ipc::api
