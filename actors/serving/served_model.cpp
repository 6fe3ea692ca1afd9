#include "actors/serving/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/requests/form_cache.h"
#include "actors/serving/encoding.h"
#include "actors/serving/model_cache.h"
#include "config/assert.h"
#include "config/printable.h"
#include "engine/chat/builtin_templates.h"
#include "engine/constraints/tools/call_grammar.h"
#include "engine/drafting/model_drafter.h"
#include "engine/model/hidden_states.h"
#include "engine/tokenizers/reasoning_markers.h"

namespace troupe::actors {

namespace {

using engine::chat::ChatTemplate;
using engine::chat::TimeBudget;

// A template that can be used: it is one, and passes its trial within `time`.
Result<std::shared_ptr<const ChatTemplate>> tried_template(const std::string& source, const std::string& name,
                                                           const engine::chat::Limits& limits, TimeBudget& time,
                                                           const std::atomic<bool>* interrupt) {
  auto parsed = ChatTemplate::parse(source, name, limits);
  if (!parsed) return parsed;
  if (const Status tried = (*parsed)->try_out(time, interrupt); !tried) return tried.error();
  return parsed;
}

}  // namespace

ServedModel::ServedModel(std::shared_ptr<const engine::LoadedModel> model, const std::atomic<bool>* interrupt,
                         const engine::chat::Limits& limits)
    : model_(std::move(model)),
      vectors_(std::make_shared<const engine::HiddenStates>(model_)),
      template_limits_(limits),
      kept_forms_(std::make_shared<KeptForms>()) {
  const Status own = choose_chat_template({}, interrupt);  // its own is never an error
  TROUPE_ASSERT(own);
}

ServedModel::ServedModel(std::shared_ptr<const engine::Encoder> encoder)
    : encoder_(std::move(encoder)), vectors_(encoder_), kept_forms_(std::make_shared<KeptForms>()) {}

Result<engine::Drafting> ServedModel::set_draft_model(std::shared_ptr<const engine::LoadedModel> draft) {
  if (!model_) return Error{ErrorCode::bad_model, "an encoder has no use for a draft model"};
  const auto how = engine::compare_vocabularies(*draft, *model_);
  if (how) draft_ = std::move(draft);
  return how;
}

Status ServedModel::choose_chat_template(const ChatTemplateChoice& choice, const std::atomic<bool>* interrupt) {
  TimeBudget time = engine::chat::trial_time();
  const Status taken = take_chat_template(choice, time, interrupt);
  if (!taken) return taken;
  find_reasoning(time, interrupt);
  take_tool_template(choice, interrupt);
  const auto source = [](const auto& each) { return each ? std::string_view(each->source()) : std::string_view(); };
  template_digest_ = engine::digest_of({source(chat_template_), source(tool_template_)});
  TimeBudget form_time = engine::chat::trial_time();
  return find_tool_form(choice.tool_format, form_time, interrupt);
}

// The file's own for conversations with tools, unless another was asked for.
void ServedModel::take_tool_template(const ChatTemplateChoice& choice, const std::atomic<bool>* interrupt) {
  tool_template_ = nullptr;
  tool_problem_.clear();
  if (!chat_template_ || !choice.name.empty() || !choice.source.empty()) return;
  const auto& own = model_->chat_templates();
  const auto found = std::ranges::find(own, "tool_use", [](const auto& each) { return std::string_view(each.first); });
  if (found == own.end()) return;
  TimeBudget time = engine::chat::trial_time();
  if (auto tried = tried_template(found->second, found->first, template_limits_, time, interrupt))
    tool_template_ = *std::move(tried);
  else
    tool_problem_ = tried.error().message;
}

Status ServedModel::find_tool_form(const std::string& format, TimeBudget& time, const std::atomic<bool>* interrupt) {
  const engine::chat::ToolFormat* const given = engine::chat::find_tool_format(format);
  if (given == nullptr && !format.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--tool-format: there is no format '{}'; `troupe tools formats` lists them",
                             Printable(format).text())};
  tool_form_ = {};
  if (const auto& asked = tool_template_ ? tool_template_ : chat_template_)
    tool_form_ = engine::chat::find_tool_form(*asked, tokenizer().get(), given, time, interrupt);
  return Ok{};
}

const std::shared_ptr<const engine::chat::ChatTemplate>& ServedModel::chat_template_for(const ChatPrompt& chat) const {
  return tool_template_ && uses_tools(chat) ? tool_template_ : chat_template_;
}

std::optional<Error> ServedModel::cannot_fit(const engine::chat::RenderedPrompt& prompt) const {
  // What the vocabulary normalizes before it reads may become shorter.
  constexpr std::size_t kMostShrinking = 4;
  std::size_t bytes = 0;
  for (const auto& segment : prompt.segments) bytes += segment.text.size();
  if (longest_piece_ == 0 || bytes / longest_piece_ / kMostShrinking <= info().context) return std::nullopt;
  return Error{ErrorCode::invalid_argument,
               fmt::format("chat template '{}' makes a prompt of {} bytes, which no {} tokens have; send less",
                           chat_template_->name(), bytes, info().context)};
}

void ServedModel::find_reasoning(TimeBudget& time, const std::atomic<bool>* interrupt) {
  const engine::Tokenizer* const vocabulary = tokenizer().get();
  reasoning_ = engine::find_reasoning_markers(chat_template_ ? chat_template_->source() : "", vocabulary);
  begins_reasoning_ = false;
  if (!chat_template_ || vocabulary == nullptr) return;
  longest_piece_ = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(vocabulary->size()); ++id)
    longest_piece_ = std::max(longest_piece_, vocabulary->raw_piece(id).size());
  const auto prompt = render(ChatPrompt{{{"user", "-"}}}, *chat_template_, *vocabulary, interrupt, &time);
  if (!prompt) return;
  const std::string text = prompt->text();
  begins_reasoning_ = std::string_view(text).substr(0, text.find_last_not_of(" \t\r\n") + 1).ends_with(reasoning_.open);
}

Status ServedModel::take_chat_template(const ChatTemplateChoice& choice, TimeBudget& time,
                                       const std::atomic<bool>* interrupt) {
  if (!model_) return Error{ErrorCode::invalid_argument, "an encoder has no use for a chat template"};
  likely_template_ = engine::chat::likely_template(info().family, tokenizer().get());
  const std::string remedy =
      likely_template_.empty() ? "; start the server with --chat-template FILE or NAME, or send text (/v1/completions)"
                               : fmt::format(
                                     "; models of its kind were trained with the template {0}: start the server with "
                                     "--chat-template {0}, or send text (/v1/completions)",
                                     likely_template_);
  if (!choice.source.empty()) {
    auto tried = tried_template(choice.source, choice.name, template_limits_, time, interrupt);
    if (!tried) return tried.error();
    chat_template_ = *std::move(tried);
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
    chat_problem_ = "this model has no chat template" + remedy;
    return Ok{};
  }
  auto tried =
      tried_template(found->second, choice.name.empty() ? "default" : choice.name, template_limits_, time, interrupt);
  if (tried)
    chat_template_ = *std::move(tried);
  else if (!choice.name.empty())
    return tried.error();
  else
    chat_problem_ = "the model's own chat template cannot be used (" + tried.error().message + ")" + remedy;
  return Ok{};
}

std::uint64_t ServedModel::weight_bytes() const {
  return model_ ? model_->model().weight_bytes() : encoder_->weight_bytes();
}

std::shared_ptr<const engine::constraints::TokenTrie> ServedModel::token_trie() const {
  std::call_once(trie_->made, [this] {
    if (tokenizer() != nullptr)
      trie_->trie = std::make_shared<const engine::constraints::TokenTrie>(
          engine::constraints::TokenTrie::of(*tokenizer(), engine::constraints::call_marks(*tokenizer())));
  });
  return trie_->trie;
}

AnsweringModel ServedModel::answering_as(std::string name) const {
  return {.name = std::move(name),
          .numerics_id = numerics_id(),
          .reasoning = reasoning_,
          .tool_format = tool_format(),
          .tokenizer = tokenizer()};
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
    if (chat_template_) description.tool_format = tool_form_.format->name;
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
  {
    const std::scoped_lock lock(kept_forms_->mutex);
    known.forms += kept_forms_->cache.bytes();
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
