// Turns the texts of a request, or its conversation, into ids.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/requests/request.h"
#include "actors/serving/served_model.h"
#include "config/result.h"
#include "engine/chat/template.h"
#include "engine/chat/tools/tool_form.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::actors {

// The texts of the request: its prompt, or the inputs of an Embed; none if it sends ids.
[[nodiscard]] std::span<const std::string> texts_of(const Request& request);
// Whether it has texts or a conversation, which become ids on their way, or a form of its answer, which becomes a rule.
[[nodiscard]] bool needs_encoding(const Request& request);
// Whether that is a conversation, which a chat template renders.
[[nodiscard]] bool is_conversation(const Request& request);
// Equal for a request and its retry, never 0: a hash of the number of choices, the size of all input, and the first and
// last 4 KiB of the prompt, of the first and last message, or of the first and last input of an Embed. O(messages), for
// the size of all.
[[nodiscard]] std::uint64_t content_of(const Request& request);

// Whether the conversation offers tools (also as a variable `tools` that is not null), calls one or has a tool's
// answer.
[[nodiscard]] bool uses_tools(const ChatPrompt& chat);

// Stop strings end what a conversation's answer says, not the reasoning before it.
[[nodiscard]] StopScope stop_scope_of(const ChatPrompt& chat);

// The text that the answer has to begin with (engine::ForcedBeginning): that of the call that the request demands, in
// this format (null: the model calls no tools), where no rule says what that is; else Request::begins_with. Empty: any.
// Both what is drawn and what is proved come from here. The request's texts are encoded.
[[nodiscard]] std::string beginning_of(const Request& request, const engine::chat::ToolFormat* format);

// The control tokens, ascending, whose text belongs to the answer's: Request::shown_ids, and of a request with tools
// the marks of calls in this format. The model's reasoning markers are shown beside these.
[[nodiscard]] std::vector<TokenId> shown_ids_of(const Request& request, const engine::chat::ToolFormat* format,
                                                const engine::Tokenizer* tokenizer);

// Whether the answer begins within reasoning: the template has opened it at the prompt's end, or so has the message
// that the answer goes on with. prompt: the ids of this conversation.
[[nodiscard]] bool begins_in_reasoning(const ChatPrompt& chat, const ServedModel& model,
                                       std::span<const TokenId> prompt);

// The prompt that the template makes of a conversation, with the tokenizer's BOS and EOS texts; times are the system
// clock's, in UTC. Error: invalid_argument. Throws engine::Interrupted once the flag (may be null) is set. time: what
// is left of it is what all of it may take; null: as long as one rendering may. tools: in which form the template reads
// tools and their calls (as_template_reads).
[[nodiscard]] Result<engine::chat::RenderedPrompt> render(const ChatPrompt& chat,
                                                          const engine::chat::ChatTemplate& chat_template,
                                                          const engine::Tokenizer& tokenizer,
                                                          const std::atomic<bool>* interrupt,
                                                          engine::chat::TimeBudget* time = nullptr,
                                                          const engine::chat::ToolForm& tools = {});

// Likewise for messages that continue a session: what the template writes after an answer, beginning with the marks
// that end it. The session's own tokens, reasoning included, stay as they are, so this does not depend on them.
[[nodiscard]] Result<engine::chat::RenderedPrompt> render_next_turn(const ChatPrompt& chat,
                                                                    const engine::chat::ChatTemplate& chat_template,
                                                                    const engine::Tokenizer& tokenizer,
                                                                    const std::atomic<bool>* interrupt,
                                                                    const engine::chat::ToolForm& tools = {});

// The encoding of all texts of one request, at once or in parts. For one thread at a time.
class Encoding {
 public:
  // The model has a vocabulary, and for a conversation a chat template (asserted).
  Encoding(std::shared_ptr<const Request> request, std::shared_ptr<const ServedModel> model);

  // Bytes that encode_some() encodes or compiles next; at least 1. 0: nothing is left to encode.
  std::uint64_t next_part() const;
  // Compiles the form of the answer, if that waits, and nothing else; else encodes at least one text and stops once it
  // has encoded kBytesPerPart: some milliseconds. Texts are not split.
  // Throws what the tokenizer throws, engine::Interrupted included.
  void encode_some(const std::atomic<bool>* interrupt);

  // Why the template refused the conversation, or the form of the answer cannot be had; then there are no ids.
  const std::optional<Error>& refusal() const { return refusal_; }
  // The field of the request that it is about.
  const std::string& refused_field() const { return refused_field_; }
  // Of each text, in order.
  EmbedIds take_ids() { return std::move(ids_); }

 private:
  static constexpr std::uint64_t kBytesPerPart = 64 << 10;

  bool complete() const;
  bool form_waits() const;  // to be compiled, as a part of its own
  void encode_chat(const ChatPrompt& chat, const engine::EncodeOptions& options);

  const std::shared_ptr<const Request> request_;
  const std::shared_ptr<const ServedModel> model_;
  EmbedIds ids_;
  std::optional<Error> refusal_;
  std::string refused_field_ = "messages";
};

}  // namespace troupe::actors
