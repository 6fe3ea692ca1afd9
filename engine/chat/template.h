// Chat templates: conversations become prompts, as the model's authors meant it.
//
// A template is a program in Jinja's language that comes with a model (tokenizer.chat_template) or from the operator.
// It is not trusted: it reads and writes nothing, and Limits bound what it takes. The language is Jinja's as
// transformers sets it up (trim_blocks, lstrip_blocks, loop controls, its `tojson`, raise_exception(), strftime_now()),
// without includes, recursive loops and arguments from lists (*, **).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/chat/message_form.h"
#include "engine/chat/values/json.h"
#include "engine/chat/values/limits.h"
#include "engine/chat/values/time_budget.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::chat {

struct ParsedTemplate;

// What a template is rendered with. A message's `content` is a text, null, or a list of parts ({"type": "text", "text":
// ...}). Texts are input of users, but for the two tokens and for well-known roles ("user",
// "assistant", ...), which some templates put between the marks of a control token.
struct ChatInput {
  Json messages;  // a list of objects with `role`, `content` and what else the template knows
  Json tools;     // null: `tools` is not defined
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends with the last message's text, not with the marks after it
  std::string bos_token, eos_token;
  Json::Object variables;                                   // more of them: enable_thinking, documents
  std::function<std::string(std::string_view format)> now;  // strftime_now(); empty: calling it is an error
};

struct RenderedPrompt {
  std::vector<PromptSegment> segments;  // neighbours differ in from_input; none is empty
  // The messages, ascending, of whose content (or of one of its parts) nothing is in the prompt. White space alone is
  // no content.
  std::vector<std::size_t> left_out{};
  // A part was written with its type, as Python writes a dictionary: the template reads texts, not parts.
  bool writes_whole_parts = false;
  std::string text() const;
};

// Immutable; every call may come from any thread.
class ChatTemplate {
 public:
  // name: for messages. Error: bad_model, with line and column of the source.
  [[nodiscard]] static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source, std::string name,
                                                                         const Limits& limits = {});
  ~ChatTemplate();

  // Error: invalid_argument, with the template's own words (raise_exception) or what it cannot do with this input; a
  // limit that was passed is named. Throws Interrupted within some milliseconds once `interrupt` (may be null) is set,
  // wherever the template is. time: what is left of it bounds the rendering; null: Limits::max_time does.
  [[nodiscard]] Result<RenderedPrompt> render(const ChatInput& input, const std::atomic<bool>* interrupt = nullptr,
                                              TimeBudget* time = nullptr) const;

  // Renders short conversations to find out the form of messages: what is done when a model is loaded, within `time`
  // (trial_time()). Error: bad_model, if that was too short. interrupt: as for render().
  [[nodiscard]] Status try_out(TimeBudget& time, const std::atomic<bool>* interrupt = nullptr) const;
  // What was found out; without an earlier try_out() the first call makes it.
  const MessageForm& form() const;
  // Whether the source has the word "developer", so that it may know messages of this role.
  bool knows_developer() const { return knows_developer_; }
  // Whether an expression of the template mentions this name: "tools", "enable_thinking".
  bool mentions(std::string_view variable) const;
  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string name, std::string source, const Limits& limits,
               std::unique_ptr<const ParsedTemplate> parsed);

  std::string name_;
  std::string source_;
  Limits limits_;
  bool knows_developer_;
  std::unique_ptr<const ParsedTemplate> parsed_;
  mutable std::once_flag form_once_;
  mutable MessageForm form_;
};

// The time of a trial: kMaxTrialWork and kMaxTrialTime, from now on.
[[nodiscard]] TimeBudget trial_time();

// strftime with C's locale, for ChatInput::now: %Y %m %d %e %b %B %a %A %H %I %M %S %p %y %j %Z %z %F %T %D %%, with %-
// for numbers without padding. Others stay as they are. `time` is UTC.
[[nodiscard]] std::string format_time(std::string_view format, std::chrono::sys_seconds time);

}  // namespace troupe::engine::chat
