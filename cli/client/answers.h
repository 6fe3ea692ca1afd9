// The answers to one request of `troupe run`: kept as their tokens come, shown one after another.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "config/printable.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// {"id", "name", "arguments"}, with "incomplete": true where the answer was cut in it. The arguments are JSON, a text
// where the model wrote none.
[[nodiscard]] nlohmann::ordered_json call_json(const client::ToolCall& call);
// The same on one line, without control characters for a terminal.
[[nodiscard]] std::string call_line(const client::ToolCall& call);

struct Answer {
  std::string text;
  std::vector<TokenId> ids;
  std::vector<client::Logprobs> logprobs;
  std::vector<client::ToolCall> calls;  // of tools; shown as lines of JSON behind the text
  std::optional<client::Ended> end;
};

struct AnswerOptions {
  std::uint32_t count = 1;      // number of answers
  bool as_text = true;          // false: nothing is shown; json() returns everything
  bool shows_controls = false;  // escapes control characters, with TerminalText
};

// The tokens of several answers arrive interleaved. As text, an answer is shown once all before it have ended: what has
// come until then, and the rest as it comes. Several answers have headings.
//
// Thread-compatible: the client's reader thread calls take() and end() until all have ended, main reads afterwards.
class Answers {
 public:
  Answers(const AnswerOptions& options, std::ostream& out);

  void take(const client::Tokens& tokens);
  // Records how one answer ended; a refusal ends all that are open. Returns whether all have ended.
  bool end(const client::Ended& ended);

  const std::vector<Answer>& all() const { return answers_; }
  // "", or "answer 2 of 3: ".
  std::string label(std::size_t index) const;
  // One answer, or a refused request, as an object; several as {"choices": [those objects]}. Call when all have ended.
  nlohmann::ordered_json json() const;

 private:
  void show(std::string_view text);
  void show_heading();
  void end_shown();

  const AnswerOptions options_;
  std::ostream& out_;
  std::vector<Answer> answers_;
  std::size_t shown_ = 0;       // index of the answer that is being shown
  bool has_heading_ = false;    // of that answer
  TerminalText terminal_text_;  // of that answer
};

}  // namespace troupe::cli
