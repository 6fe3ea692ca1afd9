// The answers to one request of `troupe run`: kept as they come, shown one behind the other.
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

struct Answer {
  std::string text;
  std::vector<TokenId> ids;
  std::vector<client::Logprobs> logprobs;
  std::optional<client::Ended> end;
};

struct AnswerOptions {
  std::uint32_t count = 1;      // of the answers
  bool as_text = true;          // false: nothing is shown, json() has everything
  bool shows_controls = false;  // as TerminalText does
};

// Of several answers the tokens come mixed. As text, the first one is shown while it comes, and each other one when
// those before it have ended, from then on while it comes, all under headings. One answer has no heading.
//
// Thread-compatible: the client's reader thread feeds it until all have ended, main reads it afterwards.
class Answers {
 public:
  Answers(const AnswerOptions& options, std::ostream& out);

  void take(const client::Tokens& tokens);
  // How one answer ended; a refusal is of all that are open. True: it was the last.
  bool end(const client::Ended& ended);

  const std::vector<Answer>& all() const { return answers_; }
  // "", or "answer 2 of 3: ".
  std::string label(std::size_t index) const;
  // Of one answer, or of a request that was refused, the answer's object; of several {"choices": [those objects]}.
  // After the end of all.
  nlohmann::ordered_json json() const;

 private:
  void show(std::string_view text);
  void show_heading();
  void end_shown();

  const AnswerOptions options_;
  std::ostream& out_;
  std::vector<Answer> answers_;
  std::size_t shown_ = 0;  // which one is being shown
  bool has_heading_ = false;
  TerminalText terminal_text_;  // of the one that is being shown
};

}  // namespace troupe::cli
