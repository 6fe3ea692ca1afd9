#include "actors/serving/encoding.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "actors/requests/answer_form.h"
#include "actors/serving/message_rewrites.h"
#include "actors/sessions/sessions.h"
#include "config/printable.h"
#include "engine/tokenizers/reasoning_limit.h"
#include "engine/tokenizers/reasoning_markers.h"

namespace troupe::actors {
namespace {

// The first and last bytes of a text or of ids.
template <class Container>
std::size_t hash_ends(const Container& input) {
  constexpr std::size_t kMostBytes = 4096;  // of either end
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size() * sizeof(input[0]));
  const std::size_t count = std::min(bytes.size(), kMostBytes);
  const std::hash<std::string_view> hash;
  return hash(bytes.substr(0, count)) * 31 + hash(bytes.substr(bytes.size() - count));
}

std::size_t hash_ends(const ChatPrompt& chat) {
  std::size_t hash = hash_ends(chat.variables) * 31 + chat.messages.size();
  if (!chat.messages.empty())
    hash = (hash * 31 + hash_ends(chat.messages.front().content)) * 31 + hash_ends(chat.messages.back().content);
  return hash;
}

}  // namespace

std::span<const std::string> texts_of(const Request& request) {
  if (request.embed) {
    const auto* const texts = std::get_if<std::vector<std::string>>(&request.embed->texts);
    return texts ? std::span<const std::string>(*texts) : std::span<const std::string>();
  }
  const auto* const text = std::get_if<std::string>(&request.prompt);
  return text ? std::span<const std::string>(text, 1) : std::span<const std::string>();
}

bool needs_encoding(const Request& request) {
  return !texts_of(request).empty() || is_conversation(request) || form_of(request);
}

bool is_conversation(const Request& request) {
  return !request.embed && std::holds_alternative<ChatPrompt>(request.prompt);
}

std::uint64_t content_of(const Request& request) {
  std::uint64_t hash = input_bytes(request) * 31 + request.num_choices;
  if (!request.embed) {
    hash = hash * 31 + std::visit([](const auto& prompt) { return hash_ends(prompt); }, request.prompt);
  } else if (request.embed->count() > 0) {
    hash = hash * 31 + std::visit([](const auto& all) { return hash_ends(all.front()) * 31 + hash_ends(all.back()); },
                                  request.embed->texts);
  }
  return std::max<std::uint64_t>(hash, 1);
}

namespace {

using engine::chat::Json;

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// A template that does not know developers, whose messages OpenAI's newer clients send as those of the system, would
// leave them out or refuse them.
std::string role_for(const std::string& role, const engine::chat::ChatTemplate& chat_template) {
  const bool is_known = chat_template.knows_developer() && chat_template.form().reads("developer");
  return role == "developer" && !is_known ? "system" : role;
}

Result<Json::Object> read_object(const std::string& text, std::string_view what) {
  auto object = engine::chat::parse_json(text);
  if (object && object->object() != nullptr) return *object->object();
  return Error{ErrorCode::invalid_argument,
               std::string(what) + " must be a JSON object" + (object ? "" : ": " + object.error().message)};
}

// The content in the form that the template reads. In the other one: several parts are one, others a text for a list
// and a list for a text.
Json content_of(const ChatMessage& from, bool reads_parts, bool in_other_form) {
  const bool has_parts = from.part_bytes.size() > 1;
  if (reads_parts && in_other_form && has_parts) return Json::List{engine::chat::text_part(from.content)};
  if (reads_parts == in_other_form) return from.content;
  Json::List parts;
  std::string_view rest = from.content;
  for (const std::uint32_t bytes : from.part_bytes) {
    parts.push_back(engine::chat::text_part(rest.substr(0, bytes)));
    rest.remove_prefix(std::min<std::size_t>(bytes + 1, rest.size()));
  }
  if (parts.empty()) parts.push_back(engine::chat::text_part(rest));
  return parts;
}

Result<Json> message_of(const ChatMessage& from, const engine::chat::ChatTemplate& chat_template,
                        const engine::chat::ToolForm& tools, bool in_other_form) {
  const engine::chat::MessageForm& form = chat_template.form();
  const std::string role = role_for(from.role, chat_template);
  const bool has_calls = from.members.find("\"tool_calls\"") != std::string::npos;
  const bool is_null = !from.has_content && (has_calls ? form.takes_null_beside_calls : form.takes_null_alone);
  Json::Object message = {{"role", role},
                          {"content", is_null ? Json() : content_of(from, form.reads_parts(role), in_other_form)}};
  if (!from.name.empty()) message.emplace_back("name", from.name);
  if (!from.reasoning.empty()) message.emplace_back("reasoning_content", from.reasoning);
  if (from.members.empty()) return Json(std::move(message));
  auto members = read_object(from.members, "a message's further members");
  if (!members) return members.error();
  const std::size_t num_own = message.size();
  for (auto& member : *members) {
    if (member.first == "tool_calls" && tools.arguments_are_text) write_arguments_as_text(member.second);
    if (tools.wants_short_ids) write_short_ids(member);
    if (std::ranges::any_of(std::span(message).first(num_own),
                            [&](const auto& each) { return each.first == member.first; }))
      return Error{ErrorCode::invalid_argument,
                   "a message's further members have '" + member.first + "' a second time"};
    message.push_back(std::move(member));
  }
  return Json(std::move(message));
}

// others: the messages, ascending, whose content comes in the form that the template does not read as a rule.
Result<Json> messages_of(std::span<const ChatMessage> from, const engine::chat::ChatTemplate& chat_template,
                         const engine::chat::ToolForm& tools, std::span<const std::size_t> others) {
  Json::List messages;
  messages.reserve(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    auto message = message_of(from[i], chat_template, tools, std::ranges::binary_search(others, i));
    if (!message) return message.error();
    messages.push_back(*std::move(message));
  }
  return Json(std::move(messages));
}

// The first message whose text the template has left out, against the client's wish. It may leave out an assistant's
// earlier reasoning, also if that is all that the message has; and those of the system and of tools that it writes in
// other places of a conversation.
std::optional<std::size_t> leaves_out(const engine::chat::RenderedPrompt& prompt, std::span<const ChatMessage> messages,
                                      const engine::chat::ChatTemplate& chat_template,
                                      const engine::chat::ToolForm& tools) {
  const bool leaves_text_out = tools.text_beside_calls == engine::chat::ToolForm::TextBesideCalls::left_out;
  const auto found = std::ranges::find_if(prompt.left_out, [&](std::size_t i) {
    const std::string role = role_for(messages[i].role, chat_template);
    // What an agent says beside its calls is no reason to stop it.
    if (role == "assistant" && leaves_text_out && !messages[i].members.empty()) return false;
    if (role == "assistant") return !engine::ends_with_reasoning(messages[i].content);
    if (role == "system") return false;  // where the template never writes those, they are the user's
    if (role == "tool") return !chat_template.form().reads(role);
    return true;
  });
  if (found == prompt.left_out.end()) return std::nullopt;
  return *found;
}

Error no_earlier_answers(const engine::chat::ChatTemplate& chat_template) {
  return {ErrorCode::invalid_argument,
          "chat template '" + chat_template.name() +
              "' does not write earlier answers, so messages cannot continue a session; send text, or all messages "
              "without a session"};
}

// num_ours: of the messages, those before the client's.
Error left_out_error(const engine::chat::ChatTemplate& chat_template, std::span<const ChatMessage> messages,
                     std::size_t index, std::size_t num_ours) {
  if (index < num_ours) return no_earlier_answers(chat_template);
  const ChatMessage& message = messages[index];
  const bool has_calls = message.members.find("\"tool_calls\"") != std::string::npos;
  return {ErrorCode::invalid_argument,
          "chat template '" + chat_template.name() + "' leaves out what messages[" + std::to_string(index - num_ours) +
              "] says, of the role '" + Printable(message.role).text() + "'" + (has_calls ? " with tool_calls" : "") +
              (has_calls ? "; send its text as a message of its own, or leave it out"
                         : "; send the text in a message of another role, or start the server with another "
                           "--chat-template")};
}

// As render(), of which the first num_ours messages are not the client's.
Result<engine::chat::RenderedPrompt> render_all(const ChatPrompt& chat, std::size_t num_ours,
                                                const engine::chat::ChatTemplate& chat_template,
                                                const engine::chat::ToolForm& form, const engine::Tokenizer& tokenizer,
                                                const std::atomic<bool>* interrupt,
                                                engine::chat::TimeBudget* given_time = nullptr) {
  // Both renderings take no longer than one may.
  engine::chat::TimeBudget own_time(engine::chat::Limits().max_time);
  engine::chat::TimeBudget* const time = given_time != nullptr ? given_time : &own_time;
  engine::chat::ChatInput input;
  // To continue an answer that has no text yet is to begin it.
  const ChatMessage& last = chat.messages.back();
  const bool begins_answer = chat.continue_final_message && chat.messages.size() > 1 && last.role == "assistant" &&
                             is_blank(last.content) && last.members.empty();
  Json::List tools;
  if (!chat.tools.empty()) {
    auto list = engine::chat::parse_json(chat.tools);
    if (!list || list->list() == nullptr) return Error{ErrorCode::invalid_argument, "tools must be a JSON list"};
    tools = *list->list();
  }
  const auto sent = std::span(chat.messages).first(chat.messages.size() - (begins_answer ? 1 : 0));
  const engine::chat::ToolForm as_it_is, &tool_form = chat.as_it_is ? as_it_is : form;
  const auto read = chat.as_it_is ? Result<RewrittenMessages>(RewrittenMessages{})
                                  : as_template_reads(sent, tools, chat_template.form(), tool_form);
  if (!read) return read.error();
  const std::span<const ChatMessage> given = chat.as_it_is ? sent : std::span<const ChatMessage>(read->messages);
  if (auto messages = messages_of(given, chat_template, tool_form, {}))
    input.messages = *std::move(messages);
  else
    return messages.error();
  input.continue_final_message = chat.continue_final_message && !begins_answer;
  input.add_generation_prompt = begins_answer || (chat.add_generation_prompt && !chat.continue_final_message);
  if (!chat.variables.empty()) {
    auto variables = read_object(chat.variables, "the template's variables");
    if (!variables) return variables.error();
    input.variables = *std::move(variables);
  }
  if (!tools.empty() && tool_form.reads_tools)
    engine::chat::give_tools(input, std::move(tools), tool_form.tools_variable);
  if (const auto bos = tokenizer.bos()) input.bos_token = tokenizer.raw_piece(*bos);
  if (const auto eos = tokenizer.eos()) input.eos_token = tokenizer.raw_piece(*eos);
  input.now = [](std::string_view format) {
    using namespace std::chrono;
    return engine::chat::format_time(format, floor<seconds>(system_clock::now()));
  };
  auto prompt = chat_template.render(input, interrupt, time);
  if (!prompt || !leaves_out(*prompt, given, chat_template, tool_form)) return prompt;
  // What the template does with these messages need not be what it did with those of the probes.
  const auto other = messages_of(given, chat_template, tool_form, prompt->left_out);
  if (!other) return other.error();
  input.messages = *other;
  auto again = chat_template.render(input, interrupt, time);
  if (again && !again->writes_whole_parts && !leaves_out(*again, given, chat_template, tool_form)) return again;
  if (chat.as_it_is) return prompt;
  return left_out_error(chat_template, sent, read->origins[*leaves_out(*prompt, given, chat_template, tool_form)],
                        num_ours);
}

}  // namespace

StopScope stop_scope_of(const ChatPrompt& chat) {
  const bool is_within = chat.continue_final_message && !chat.messages.empty() &&
                         engine::is_within_reasoning(chat.messages.back().content);
  return is_within ? StopScope::behind_reasoning : StopScope::answer;
}

std::string beginning_of(const Request& request, const engine::chat::ToolFormat* format) {
  if (format == nullptr || !request.tools || !request.tools->must_call) return request.begins_with;
  if (request.tools->form && request.tools->form->rule()) return {};
  return engine::chat::call_beginning(*format, request.tools->name);
}

std::vector<TokenId> shown_ids_of(const Request& request, const engine::chat::ToolFormat* format,
                                  const engine::Tokenizer* tokenizer) {
  std::vector<TokenId> ids = request.shown_ids;
  if (request.tools && format != nullptr && tokenizer != nullptr)
    std::ranges::copy(engine::chat::marker_ids(*format, *tokenizer), std::back_inserter(ids));
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool begins_in_reasoning(const ChatPrompt& chat, const ServedModel& model, std::span<const TokenId> prompt) {
  const engine::ReasoningMarkers& markers = model.reasoning();
  if (engine::ends_with_opening(*model.tokenizer(), markers, prompt)) return true;
  if (!chat.continue_final_message) return false;
  const std::string& text = chat.messages.back().content;
  const std::size_t open = text.rfind(markers.open);
  return open != std::string::npos && text.find(markers.close, open) == std::string::npos;
}

bool uses_tools(const ChatPrompt& chat) {
  const auto has = [](const std::string& object, std::string_view name) {
    // Most have no such name, and need not be parsed.
    if (object.find(name) == std::string::npos) return false;
    const auto parsed = engine::chat::parse_json(object);
    const Json* const value = parsed && parsed->object() != nullptr ? parsed->find(name) : nullptr;
    return value != nullptr && !std::holds_alternative<std::monostate>(value->value);
  };
  return !chat.tools.empty() || has(chat.variables, "tools") ||
         std::ranges::any_of(chat.messages, [&](const ChatMessage& each) {
           return each.role == "tool" || has(each.members, "tool_calls");
         });
}

Result<engine::chat::RenderedPrompt> render(const ChatPrompt& chat, const engine::chat::ChatTemplate& chat_template,
                                            const engine::Tokenizer& tokenizer, const std::atomic<bool>* interrupt,
                                            engine::chat::TimeBudget* time, const engine::chat::ToolForm& tools) {
  return render_all(chat, 0, chat_template, tools, tokenizer, interrupt, time);
}

Result<engine::chat::RenderedPrompt> render_next_turn(const ChatPrompt& chat,
                                                      const engine::chat::ChatTemplate& chat_template,
                                                      const engine::Tokenizer& tokenizer,
                                                      const std::atomic<bool>* interrupt,
                                                      const engine::chat::ToolForm& tools) {
  // Stands for the last answer. It comes first, so the same text in a later message changes nothing.
  constexpr const char* kAnswer = "troupe-answer-8f31c6d2";
  ChatPrompt whole = chat;
  whole.messages.insert(whole.messages.begin(),
                        {{.role = "user", .content = "-"}, {.role = "assistant", .content = kAnswer}});
  auto prompt = render_all(whole, 2, chat_template, tools, tokenizer, interrupt);
  if (!prompt) return prompt;
  auto& segments = prompt->segments;
  for (auto it = segments.begin(); it != segments.end(); ++it) {
    const std::size_t at = it->from_input ? it->text.find(kAnswer) : std::string::npos;
    if (at == std::string::npos) continue;
    it->text.erase(0, at + std::string_view(kAnswer).size());
    segments.erase(segments.begin(), it->text.empty() ? it + 1 : it);
    if (segments.empty()) break;
    return prompt;
  }
  return no_earlier_answers(chat_template);
}

Encoding::Encoding(std::shared_ptr<const Request> request, std::shared_ptr<const ServedModel> model)
    : request_(std::move(request)), model_(std::move(model)) {}

bool Encoding::complete() const {
  if (refusal_) return true;
  if (!request_->embed) return !ids_.empty();
  return ids_.size() == texts_of(*request_).size();
}

bool Encoding::form_waits() const {
  const auto form = form_of(*request_);
  return form && !form->is_compiled();
}

std::uint64_t Encoding::next_part() const {
  if (complete()) return 0;
  if (form_waits()) return engine::constraints::bytes_of(form_of(*request_)->constraint()) + 1;
  if (texts_of(*request_).empty()) return input_bytes(*request_) + 1;  // a conversation, or ids
  std::uint64_t bytes = 1;
  for (const std::string& text : texts_of(*request_).subspan(ids_.size())) {
    bytes += text.size();
    if (bytes >= kBytesPerPart) break;
  }
  return bytes;
}

void Encoding::encode_some(const std::atomic<bool>* interrupt) {
  if (form_waits()) {
    const auto form = form_of(*request_);
    const Status compiled = form->compile(
        {.trie = model_->token_trie(), .tokenizer = model_->tokenizer(), .tool_format = model_->tool_format()},
        model_->kept_forms(), request_->tenant.id);
    if (!compiled) {
      refusal_ = compiled.error();
      refused_field_ = form->field();
    }
    return;
  }
  const engine::EncodeOptions options{.add_special = request_->add_special,
                                      .continues = !request_->embed,
                                      .parse_special = request_->parse_special,
                                      .interrupt = interrupt};
  if (!request_->embed) {
    if (const auto* const chat = std::get_if<ChatPrompt>(&request_->prompt)) return encode_chat(*chat, options);
    if (const auto* const ids = std::get_if<std::vector<TokenId>>(&request_->prompt)) return ids_.push_back(*ids);
  }
  for (std::uint64_t bytes = 0; !complete() && bytes < kBytesPerPart;) {
    const std::string& text = texts_of(*request_)[ids_.size()];
    bytes += text.size() + 1;
    ids_.push_back(model_->tokenizer()->encode(text, options));
    ids_.back().shrink_to_fit();
  }
}

void Encoding::encode_chat(const ChatPrompt& chat, const engine::EncodeOptions& options) {
  const engine::Tokenizer& tokenizer = *model_->tokenizer();
  const bool continues = request_->turn && !request_->turn->is_new();
  const engine::chat::ChatTemplate& chat_template = *model_->chat_template_for(chat);
  const engine::chat::ToolForm& tools = model_->tool_form();
  const auto prompt = continues ? render_next_turn(chat, chat_template, tokenizer, options.interrupt, tools)
                                : render(chat, chat_template, tokenizer, options.interrupt, nullptr, tools);
  if (!prompt) {
    refusal_ = prompt.error();
    return;
  }
  // Before it is encoded, which takes many times the memory.
  if (const auto too_long = model_->cannot_fit(*prompt)) {
    refusal_ = *too_long;
    return;
  }
  ids_.push_back(tokenizer.encode(prompt->segments, options));
  ids_.back().shrink_to_fit();
}

}  // namespace troupe::actors
