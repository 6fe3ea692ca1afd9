// What a unit serves: a language model, which continues texts and makes vectors of them, or an encoder, which only
// makes vectors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/requests/request.h"
#include "actors/requests/status_snapshot.h"
#include "config/result.h"
#include "config/sampling/model_defaults.h"
#include "engine/chat/template.h"
#include "engine/chat/tools/tool_form.h"
#include "engine/constraints/token_trie.h"
#include "engine/drafting/speculation.h"
#include "engine/engine.h"
#include "engine/model/encoder.h"
#include "engine/model/text_vectors.h"
#include "engine/sampling/reasoning_markers.h"

namespace troupe::actors {

struct ModelDescription {
  std::string name;
  std::vector<std::string> aliases{};  // by which clients may call it, too: set by the gateway
  engine::ModelInfo info;
  std::string numerics_id;
  std::uint64_t kv_bytes_per_token = 0;
  std::optional<TokenId> bos{}, eos{};
  std::vector<TokenId> end_ids{};  // tokens that end an answer (EOS, EOT, EOM), ascending
  std::uint32_t max_context = 0;
  std::shared_ptr<const engine::chat::ChatTemplate> chat_template{};  // null: the model has none
  engine::ReasoningMarkers reasoning{};                               // as ServedModel's
  bool begins_reasoning = false;
  std::string_view tool_format{};    // of its calls of tools, by its name
  config::ModelDefaults defaults{};  // of its answers: set by the gateway
};

struct KeptForms;  // requests/form_cache.h

// Which chat template a model is served with, instead of its own. Empty: its own.
struct ChatTemplateChoice {
  std::string name;  // for messages; without a source: of a template in the model's file
  std::string source;
  std::string tool_format{};  // how the model writes calls of tools, by its name; empty: as the template says
};

// Immutable, except for what the models themselves allow.
class ServedModel {
 public:
  // Tries its own chat template. Throws engine::Interrupted once the flag (may be null) is set. limits: of its chat
  // templates.
  explicit ServedModel(std::shared_ptr<const engine::LoadedModel> model, const std::atomic<bool>* interrupt = nullptr,
                       const engine::chat::Limits& limits = {});
  explicit ServedModel(std::shared_ptr<const engine::Encoder> encoder);

  const std::shared_ptr<const engine::LoadedModel>& language_model() const { return model_; }  // null: an encoder
  const std::shared_ptr<const engine::Encoder>& encoder() const { return encoder_; }           // null: a language model
  // Null: none.
  const std::shared_ptr<const engine::LoadedModel>& draft_model() const { return draft_; }
  // Error: bad_model, if it cannot draft for this model; then nothing changes.
  Result<engine::Drafting> set_draft_model(std::shared_ptr<const engine::LoadedModel> draft);
  const engine::TextVectors& vectors() const { return *vectors_; }
  const engine::ModelInfo& info() const { return vectors_->info(); }
  // Null if the file has no vocabulary.
  const std::shared_ptr<const engine::Tokenizer>& tokenizer() const { return vectors_->tokenizer(); }
  // Null if it has none, or none that can be used: then messages are refused, with chat_problem() as the reason.
  const std::shared_ptr<const engine::chat::ChatTemplate>& chat_template() const { return chat_template_; }
  const std::string& chat_problem() const { return chat_problem_; }
  // A hash of the source of its chat templates, that for tools included: equal ones write the same conversation alike.
  // Also of none; 0: an encoder has none.
  std::uint64_t template_digest() const { return template_digest_; }
  // The name of the template that models of its kind were trained with; empty: it is not known.
  std::string_view likely_chat_template() const { return likely_template_; }
  // The template of this conversation: where it has tools, and the file a template `tool_use` for them, that one,
  // unless another template was asked for; else chat_template(). O(bytes of the conversation's JSON).
  const std::shared_ptr<const engine::chat::ChatTemplate>& chat_template_for(const ChatPrompt& chat) const;
  // That template; null if the file has none, or none that can be used.
  const std::shared_ptr<const engine::chat::ChatTemplate>& tool_template() const { return tool_template_; }
  // In which form conversations with tools are written, and their calls; of the template that they get.
  const engine::chat::ToolForm& tool_form() const { return tool_form_; }
  // In which it writes calls; null: it has no chat template, and calls none.
  const engine::chat::ToolFormat* tool_format() const { return chat_template_ ? tool_form_.format : nullptr; }
  // What it writes around its reasoning, by its chat template and its vocabulary.
  const engine::ReasoningMarkers& reasoning() const { return reasoning_; }
  // Whether the chat template ends a prompt within reasoning, if a request says nothing of it.
  bool begins_reasoning() const { return begins_reasoning_; }
  // Why the file's template `tool_use` is not used; empty: it is, or there is none.
  const std::string& tool_problem() const { return tool_problem_; }
  // Takes the template that is asked for, else the model's own, once it has passed its trial. Error: bad_model (the
  // source is no template, or takes too long), invalid_argument (the file has none of that name); then nothing changes.
  // A template of the model's own that cannot be used is no error, as the model serves texts without it. interrupt: as
  // of the constructor.
  Status choose_chat_template(const ChatTemplateChoice& choice, const std::atomic<bool>* interrupt = nullptr);
  // Its vocabulary as masks need it, with the marks of calls; made when it is first asked for, some 100 ms. Any
  // thread. Null: it has none.
  std::shared_ptr<const engine::constraints::TokenTrie> token_trie() const;
  // Forms of answers that were compiled for requests to it.
  KeptForms& kept_forms() const { return *kept_forms_; }
  // Why a prompt has more tokens than the context, if that is clear from its bytes alone. Error: invalid_argument.
  std::optional<Error> cannot_fit(const engine::chat::RenderedPrompt& prompt) const;
  const std::string& numerics_id() const { return model_ ? model_->numerics_id() : encoder_->numerics_id(); }
  const kernels::KernelTable& kernels() const { return model_ ? model_->kernels() : encoder_->kernels(); }
  std::uint64_t weight_bytes() const;

  ModelDescription describe(std::string name) const;
  AnsweringModel answering_as(std::string name) const;
  // Address space of weights, vocabulary, cache and snapshots: its part of the memory budget.
  std::uint64_t budget_bytes() const;
  // Adds the resident memory.
  void add_to(KnownMemory& known) const;

 private:
  Status take_chat_template(const ChatTemplateChoice& choice, engine::chat::TimeBudget& time,
                            const std::atomic<bool>* interrupt);
  void take_tool_template(const ChatTemplateChoice& choice, const std::atomic<bool>* interrupt);
  Status find_tool_form(const std::string& format, engine::chat::TimeBudget& time, const std::atomic<bool>* interrupt);
  void find_reasoning(engine::chat::TimeBudget& time, const std::atomic<bool>* interrupt);

  std::shared_ptr<const engine::LoadedModel> model_;
  std::shared_ptr<const engine::LoadedModel> draft_;
  std::shared_ptr<const engine::Encoder> encoder_;
  std::shared_ptr<const engine::TextVectors> vectors_;
  std::shared_ptr<const engine::chat::ChatTemplate> chat_template_;
  std::shared_ptr<const engine::chat::ChatTemplate> tool_template_;
  engine::chat::ToolForm tool_form_;
  engine::chat::Limits template_limits_;
  std::uint64_t template_digest_ = 0;
  std::string chat_problem_, tool_problem_;
  std::string_view likely_template_;  // of a builtin template
  std::size_t longest_piece_ = 0;     // bytes of a token's text, of a model with a chat template
  engine::ReasoningMarkers reasoning_;
  bool begins_reasoning_ = false;
  struct LazyTrie {
    std::once_flag made;
    std::shared_ptr<const engine::constraints::TokenTrie> trie;
  };
  std::shared_ptr<LazyTrie> trie_ = std::make_shared<LazyTrie>();
  std::shared_ptr<KeptForms> kept_forms_;
};

}  // namespace troupe::actors
