// Finds the calls of tools in an answer while it is being written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/tools/arguments_reader.h"
#include "engine/chat/tools/call_head.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"

namespace troupe::engine::chat {

// A part of an answer. A call is one `call`, any number of `arguments`, and one `call_end`; calls come one after the
// other.
struct AnswerPart {
  enum class Kind : std::uint8_t { text, call, arguments, call_end };
  Kind kind = Kind::text;
  std::string text{};  // of the answer; the tool's name; a part of the arguments' JSON
  bool operator==(const AnswerPart&) const = default;
};

// What may still begin a mark is held back, and no more. Once a name is whole the call is one, and its arguments are
// what came of them; until then all that is held may become text. Nothing is taken back. What is not a call is text,
// byte for byte, but for white space beside the marks of calls, which is left out with them. Texts inside JSON are no
// marks. The parts are the same, but for where texts and arguments are cut, in whatever pieces an answer comes. Behind
// kMaxCallsPerAnswer calls all is text.
//
// The answer is what stands behind the reasoning. Not thread-safe.
class ToolCallParser {
 public:
  // format: outlives the parser. tools: those of the request; of an empty set each name that is well-formed is one.
  ToolCallParser(const ToolFormat& format, std::shared_ptr<const ToolSet> tools);

  // One that has read the same; not within a call (asserted).
  [[nodiscard]] ToolCallParser copy() const;

  [[nodiscard]] std::vector<AnswerPart> push(std::string_view text);
  // At the end of the answer: what was held back. An open call ends.
  [[nodiscard]] std::vector<AnswerPart> finish();

  std::size_t num_calls() const { return num_calls_; }
  // Of the last call that began: its name, whether that stands within {"function": {...}}, and how many bytes of the
  // text so far stood behind the name, or behind the mark that follows it, when the call was found.
  struct Beginning {
    std::string name{};
    bool is_nested = false;
    std::size_t num_behind = 0;
  };
  const Beginning& last_beginning() const { return last_beginning_; }
  bool is_within_call() const { return state_ == State::arguments; }
  // Calls that are complete.
  std::size_t num_ended() const { return num_calls_ - (is_within_call() ? 1 : 0); }

 private:
  using Kind = AnswerPart::Kind;
  // closing: behind arguments, before call_close; between: behind a call, where another may follow.
  enum class State : std::uint8_t { text, arguments, closing, between };

  std::vector<AnswerPart> run(bool at_end);
  bool step(bool at_end);
  bool step_text(bool at_end);
  bool step_arguments(bool at_end);
  bool step_closing(bool at_end);
  bool step_between(bool at_end);

  // What became of a place where a call may begin.
  enum class Tried : std::uint8_t { taken, waits, none };
  Tried try_call(std::size_t from, CallPlace place, bool at_end);
  Tried try_bare(bool at_end);
  void add(AnswerPart::Kind kind, std::string_view text);
  void add_text(std::size_t length);

  const ToolFormat& format_;
  std::shared_ptr<const ToolSet> tools_;
  std::vector<std::string_view> openings_;
  State state_ = State::text;
  std::string held_;
  std::vector<AnswerPart> parts_;
  std::unique_ptr<ArgumentsReader> arguments_;
  std::size_t num_calls_ = 0;
  Beginning last_beginning_;
  bool may_be_bare_;
  bool is_behind_mark_ = false;  // white space is left out
  bool is_in_section_ = false;
  bool is_in_list_ = false;
};

}  // namespace troupe::engine::chat
