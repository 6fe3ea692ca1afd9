// The input of a custom tool's call, which is one text: a function with the one parameter `input` for the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::ipc::api {

// Takes the text out of a call's arguments while they are written: {"input": TEXT}, or TEXT as JSON writes it alone.
// Arguments that are otherwise are the input as they came: nothing of them is lost. What comes out depends on the
// arguments alone, not on the pieces in which they come. Not thread-safe.
class CustomInput {
 public:
  // What of the input is decided by now.
  [[nodiscard]] std::string push(std::string_view arguments);
  // At the call's end: what was held back.
  [[nodiscard]] std::string finish();

 private:
  // head: before the text; rest: behind it.
  enum class State : std::uint8_t { head, text, rest, as_it_came };

  void read_head();

  State state_ = State::head;
  std::string held_;
};

// The arguments that stand for an input: the other way round.
[[nodiscard]] std::string custom_arguments(std::string_view input);

}  // namespace troupe::ipc::api
