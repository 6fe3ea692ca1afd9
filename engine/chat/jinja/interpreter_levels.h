// What the interpreter enters and leaves: levels of evaluation and scopes.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "engine/chat/jinja/interpreter.h"

namespace troupe::engine::chat {

// Bounds the depth of nested evaluation, and so the stack.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ <= interpreter_.limits_.max_depth) return;
    --interpreter_.depth_;
    throw TemplateError(fmt::format("its calls are nested deeper than {} levels", interpreter_.limits_.max_depth));
  }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

// A scope inside `parent`, current for as long as this lives.
class Interpreter::InnerScope {
 public:
  InnerScope(Interpreter& interpreter, Scope* parent) : interpreter_(interpreter), outer_(interpreter.scope_) {
    if (interpreter.free_scopes_.empty()) {
      scope_ = interpreter.heap().own(std::unique_ptr<Scope>(new Scope));
    } else {
      scope_ = interpreter.free_scopes_.back();
      interpreter.free_scopes_.pop_back();
    }
    scope_->parent = parent;
    interpreter.scope_ = scope_;
  }
  explicit InnerScope(Interpreter& interpreter) : InnerScope(interpreter, interpreter.scope_) {}
  ~InnerScope() {
    interpreter_.scope_ = outer_;
    if (scope_->is_captured) return;
    scope_->clear();
    if (interpreter_.free_scopes_.size() < interpreter_.free_scopes_.capacity())
      interpreter_.free_scopes_.push_back(scope_);  // never takes memory: this must not throw
  }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* outer_;
  Scope* scope_;
};

}  // namespace troupe::engine::chat
