// Finds stop strings in streamed text, and holds back text that may be the beginning of one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe::actors {

// One per stream; not thread-safe.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stop_strings);  // none of them empty (asserted)

  struct Found {
    std::string text;                 // may be sent: it cannot become part of a match any more
    std::optional<std::size_t> stop;  // index of the stop string that matched; `text` ends before it
  };
  // Adds the next piece of the text. A match may span pieces; the earliest one wins, among those that begin at the same
  // byte the stop string listed first. Not to be called after a match. may_match: false: none may end in this piece.
  // O((held + text) x stop strings x their length) at worst; held is shorter than the longest of them.
  [[nodiscard]] Found push(const std::string& text, bool may_match = true);
  // Returns the text still held back, when the stream ends without a match.
  [[nodiscard]] std::string flush();

 private:
  std::size_t might_begin_a_stop() const;  // length of the longest suffix of held_ that is a prefix of a stop string

  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace troupe::actors
