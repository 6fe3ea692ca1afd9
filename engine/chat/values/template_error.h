// What is wrong with a template, or with what it does.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {

// Where something stands in a template's source: line and character, both from 1; 0: not known.
struct Place {
  int line = 0;
  int column = 0;
};

// Thrown while a template is read or rendered; the doors (template.h) make it an Error.
class TemplateError : public std::exception {
 public:
  explicit TemplateError(std::string message, Place place = {}) : message_(std::move(message)), place_(place) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Place place() const { return place_; }
  void set_place(Place place) { place_ = place; }

 private:
  std::string message_;
  Place place_;
};

// As much of a text as a message shows: its size may be any.
inline std::string_view shown(std::string_view text) { return text.substr(0, kMaxErrorText); }

}  // namespace troupe::engine::chat
