// What an answer may be, where a request asks for a form: a rule, and its readers, one for each sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "engine/sampling/reasoning_markers.h"

namespace troupe::engine {

// What may come next.
struct NextTokens {
  enum class Kind : std::uint8_t {
    any,       // whatever is likely
    some,      // `allowed`, and with may_end the tokens that end an answer
    forced,    // this token, whatever is likely
    complete,  // the answer ends here
    failed,    // no token can follow, or telling which takes too much work
  };
  Kind kind = Kind::any;
  TokenId forced = 0;
  std::span<const std::uint64_t> allowed{};  // a bit for each token; until the next call
  bool may_end = false;
};

// Of one sequence. For one thread at a time.
class AnswerReader {
 public:
  virtual ~AnswerReader() = default;

  // What may follow this answer, of which the tokens of the call before are the beginning, or which is a beginning of
  // those. tokens_left: that the answer may have besides; the rule keeps room in them for its end. What it says depends
  // on nothing else, so that a sequence gets the same tokens alone, beside others and after a resume.
  [[nodiscard]] virtual NextTokens next(std::span<const TokenId> answer, std::size_t tokens_left) = 0;
  // The answer is cut to so many tokens, and goes on otherwise.
  virtual void truncate(std::size_t num_tokens) = 0;
};

// Shared by the choices of a request. Its readers may be used by several threads at once.
class AnswerRule {
 public:
  virtual ~AnswerRule() = default;

  // prompt: where it ends with the marker that opens reasoning, the rule holds behind the marker that closes it.
  [[nodiscard]] virtual std::unique_ptr<AnswerReader> read(std::span<const TokenId> prompt,
                                                           const ReasoningMarkers& markers) const = 0;
};

// A rule in the parameters of a request.
struct RuledAnswer {
  std::shared_ptr<const AnswerRule> rule;
  ReasoningMarkers markers{};
};

}  // namespace troupe::engine
