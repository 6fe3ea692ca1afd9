#include "actors/serving/encoding.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <variant>

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
  return !texts_of(request).empty() || (!request.embed && std::holds_alternative<ChatPrompt>(request.prompt));
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

Result<engine::chat::RenderedPrompt> render(const ChatPrompt& chat, const engine::chat::ChatTemplate& chat_template,
                                            const engine::Tokenizer& tokenizer, const std::atomic<bool>* interrupt) {
  engine::chat::ChatInput input;
  engine::chat::Json::List messages;
  messages.reserve(chat.messages.size());
  for (const ChatMessage& each : chat.messages) {
    engine::chat::Json::Object message = {{"role", each.role}, {"content", each.content}};
    if (!each.name.empty()) message.emplace_back("name", each.name);
    if (!each.reasoning.empty()) message.emplace_back("reasoning_content", each.reasoning);
    messages.emplace_back(std::move(message));
  }
  input.messages = std::move(messages);
  input.add_generation_prompt = chat.add_generation_prompt;
  if (!chat.variables.empty()) {
    auto variables = engine::chat::parse_json(chat.variables);
    if (!variables || variables->object() == nullptr)
      return Error{ErrorCode::invalid_argument, "the template's variables must be a JSON object" +
                                                    (variables ? "" : ": " + variables.error().message)};
    input.variables = *variables->object();
  }
  if (const auto bos = tokenizer.bos()) input.bos_token = tokenizer.raw_piece(*bos);
  if (const auto eos = tokenizer.eos()) input.eos_token = tokenizer.raw_piece(*eos);
  input.now = [](std::string_view format) {
    using namespace std::chrono;
    return engine::chat::format_time(format, floor<seconds>(system_clock::now()));
  };
  return chat_template.render(input, interrupt);
}

Encoding::Encoding(std::shared_ptr<const Request> request, std::shared_ptr<const ServedModel> model)
    : request_(std::move(request)), model_(std::move(model)) {}

bool Encoding::complete() const {
  if (refusal_) return true;
  if (!request_->embed) return !ids_.empty();
  const bool too_long = !ids_.empty() && ids_.back().size() > model_->vectors().max_tokens();
  return too_long || ids_.size() == texts_of(*request_).size();
}

std::uint64_t Encoding::next_part() const {
  if (complete()) return 0;
  if (texts_of(*request_).empty()) return input_bytes(*request_) + 1;  // a conversation
  std::uint64_t bytes = 1;
  for (const std::string& text : texts_of(*request_).subspan(ids_.size())) {
    bytes += text.size();
    if (bytes >= kBytesPerPart) break;
  }
  return bytes;
}

void Encoding::encode_some(const std::atomic<bool>* interrupt) {
  const engine::EncodeOptions options{.add_special = request_->add_special,
                                      .continues = !request_->embed,
                                      .parse_special = request_->parse_special,
                                      .interrupt = interrupt};
  if (!request_->embed) {
    if (const auto* const chat = std::get_if<ChatPrompt>(&request_->prompt)) return encode_chat(*chat, options);
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
  const auto prompt = render(chat, *model_->chat_template(), tokenizer, options.interrupt);
  if (!prompt) {
    refusal_ = prompt.error();
    return;
  }
  ids_.push_back(tokenizer.encode(prompt->segments, options));
  ids_.back().shrink_to_fit();
}

}  // namespace troupe::actors
