#include "actors/serving/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/serving/encoding.h"
#include "actors/serving/model_cache.h"
#include "config/assert.h"
#include "config/printable.h"
#include "engine/drafting/model_drafter.h"
#include "engine/model/hidden_states.h"
#include "engine/tokenizers/reasoning_markers.h"

namespace troupe::actors {

ServedModel::ServedModel(std::shared_ptr<const engine::LoadedModel> model)
    : model_(std::move(model)), vectors_(std::make_shared<const engine::HiddenStates>(model_)) {
  const Status own = choose_chat_template({});  // its own is never an error
  TROUPE_ASSERT(own);
}

ServedModel::ServedModel(std::shared_ptr<const engine::Encoder> encoder)
    : encoder_(std::move(encoder)), vectors_(encoder_) {}

Result<engine::Drafting> ServedModel::set_draft_model(std::shared_ptr<const engine::LoadedModel> draft) {
  if (!model_) return Error{ErrorCode::bad_model, "an encoder has no use for a draft model"};
  const auto how = engine::compare_vocabularies(*draft, *model_);
  if (how) draft_ = std::move(draft);
  return how;
}

Status ServedModel::choose_chat_template(const ChatTemplateChoice& choice) {
  const Status taken = take_chat_template(choice);
  if (!taken) return taken;
  find_reasoning();
  tool_template_ = nullptr;
  if (!chat_template_ || !choice.name.empty() || !choice.source.empty()) return taken;
  const auto& own = model_->chat_templates();
  const auto found = std::ranges::find(own, "tool_use", [](const auto& each) { return std::string_view(each.first); });
  if (found == own.end()) return taken;
  if (auto parsed = engine::chat::ChatTemplate::parse(found->second, found->first)) tool_template_ = *std::move(parsed);
  if (tool_template_) tool_template_->form();  // now, not with the first conversation
  return taken;
}

const std::shared_ptr<const engine::chat::ChatTemplate>& ServedModel::chat_template_for(const ChatPrompt& chat) const {
  return tool_template_ && uses_tools(chat) ? tool_template_ : chat_template_;
}

void ServedModel::find_reasoning() {
  const engine::Tokenizer* const vocabulary = tokenizer().get();
  reasoning_ = engine::find_reasoning_markers(chat_template_ ? chat_template_->source() : "", vocabulary);
  begins_reasoning_ = false;
  if (!chat_template_ || vocabulary == nullptr) return;
  chat_template_->form();
  const auto prompt = render(ChatPrompt{{{"user", "-"}}}, *chat_template_, *vocabulary, nullptr);
  if (!prompt) return;
  const std::string text = prompt->text();
  begins_reasoning_ = std::string_view(text).substr(0, text.find_last_not_of(" \t\r\n") + 1).ends_with(reasoning_.open);
}

Status ServedModel::take_chat_template(const ChatTemplateChoice& choice) {
  const std::string kRemedy = "; start the server with --chat-template FILE or NAME, or send text";
  if (!model_) return Error{ErrorCode::invalid_argument, "an encoder has no use for a chat template"};
  if (!choice.source.empty()) {
    auto parsed = engine::chat::ChatTemplate::parse(choice.source, choice.name);
    if (!parsed) return parsed.error();
    chat_template_ = *std::move(parsed);
    return Ok{};
  }
  const auto& own = model_->chat_templates();
  // The one without a name is called default, as in tokenizer_config.json.
  const std::string_view name = choice.name == "default" ? std::string_view() : std::string_view(choice.name);
  auto found = std::ranges::find(own, name, [](const auto& each) { return std::string_view(each.first); });
  if (found == own.end() && name.empty())
    found = std::ranges::find(own, "default", [](const auto& each) { return std::string_view(each.first); });
  if (found == own.end()) {
    if (!choice.name.empty()) {
      std::vector<std::string> names;
      for (const auto& each : own) names.push_back(Printable(each.first.empty() ? "default" : each.first).text());
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("--chat-template: '{}' is no file, none of troupe's templates, and the model's file has {}",
                      Printable(choice.name).text(),
                      names.empty() ? "none" : fmt::format("only {}", fmt::join(names, ", ")))};
    }
    chat_problem_ = "this model has no chat template" + kRemedy;
    return Ok{};
  }
  auto parsed = engine::chat::ChatTemplate::parse(found->second, choice.name.empty() ? "default" : choice.name);
  if (parsed)
    chat_template_ = *std::move(parsed);
  else if (!choice.name.empty())
    return parsed.error();
  else
    chat_problem_ = "the model's own chat template cannot be used (" + parsed.error().message + ")" + kRemedy;
  return Ok{};
}

std::uint64_t ServedModel::weight_bytes() const {
  return model_ ? model_->model().weight_bytes() : encoder_->weight_bytes();
}

ModelDescription ServedModel::describe(std::string name) const {
  ModelDescription description{
      .name = std::move(name), .info = info(), .numerics_id = numerics_id(), .max_context = info().context};
  if (const auto& vocabulary = tokenizer()) {
    description.bos = vocabulary->bos();
    description.eos = vocabulary->eos();
  }
  if (model_) {
    description.kv_bytes_per_token = model_->cache_spec().bytes_per_token();
    description.end_ids = model_->end_ids();
    description.chat_template = chat_template_;
    description.reasoning = reasoning_;
    description.begins_reasoning = begins_reasoning_;
  }
  return description;
}

std::uint64_t ServedModel::budget_bytes() const {
  if (!model_) return encoder_->weight_bytes() + encoder_->vocabulary_bytes();
  std::uint64_t bytes = weight_bytes() + model_->vocabulary_bytes() + kv_bytes(*model_);
  if (const auto& snapshots = model_->snapshots())
    bytes += snapshots->num_snapshots() * snapshots->bytes_per_snapshot();
  if (draft_) bytes += draft_->model().weight_bytes() + draft_->vocabulary_bytes() + kv_bytes(*draft_);
  return bytes;
}

void ServedModel::add_to(KnownMemory& known) const {
  known.weights += weight_bytes();
  if (!model_) {
    known.weights_on_heap += encoder_->weight_bytes() - encoder_->matrix_bytes();
    known.vocabulary += encoder_->vocabulary_bytes();
    return;
  }
  known.weights_on_heap += model_->weight_heap_bytes();
  known.vocabulary += model_->vocabulary_bytes();
  known.kv_cache += resident_kv_bytes(*model_);
  if (draft_) {
    known.weights += draft_->model().weight_bytes();
    known.weights_on_heap += draft_->weight_heap_bytes();
    known.vocabulary += draft_->vocabulary_bytes();
    known.kv_cache += resident_kv_bytes(*draft_);
  }
  if (model_->snapshots()) known.snapshots += model_->snapshots()->resident_bytes();
}

}  // namespace troupe::actors
