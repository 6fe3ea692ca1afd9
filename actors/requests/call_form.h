// What the calls in a request's answer have to be, and the rule that it becomes for the model that serves it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "config/result.h"
#include "engine/constraints/tools/call_rule.h"

namespace troupe::actors {

// Part of a request (ToolUse::form), which its choices share. Any thread.
class CallForm {
 public:
  explicit CallForm(engine::constraints::CallWish wish) : wish_(std::move(wish)) {}

  const engine::constraints::CallWish& wish() const { return wish_; }

  // Makes the rule, which takes up to 100 ms; once made, it stays. tools: the JSON list of which `set` was made.
  // Without a strict tool a format or vocabulary that cannot be held is no error, and there is no rule. Errors: those
  // of make_call_rule() for strict tools.
  [[nodiscard]] Status compile(const std::string& tools, std::shared_ptr<const engine::chat::ToolSet> set,
                               const engine::chat::ToolFormat& format,
                               std::shared_ptr<const engine::constraints::TokenTrie> trie,
                               std::shared_ptr<const engine::Tokenizer> tokenizer);
  // Null: not made yet, or there is none.
  [[nodiscard]] std::shared_ptr<const engine::AnswerRule> rule() const;
  // Of the shortest answer that is a demanded call; 0: there is no rule, or none is demanded.
  [[nodiscard]] std::size_t least_tokens() const;

 private:
  const engine::constraints::CallWish wish_;
  mutable std::mutex mutex_;
  bool is_compiled_ = false;
  std::shared_ptr<const engine::AnswerRule> rule_;
  std::size_t least_tokens_ = 0;
};

}  // namespace troupe::actors
