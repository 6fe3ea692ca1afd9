// Kinds of text within JSON strings: what expressions mostly allow or forbid as a whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/constraints/expressions/regex_pool.h"

namespace troupe::engine::constraints {

// Each kind holds the one before it.
enum class TextKind : std::uint8_t {
  lower,      // a to z
  word,       // letters, digits and _ of ASCII
  name,       // also -
  visible,    // ASCII from ! to ~ without " and backslash
  printable,  // also the space
  any,        // whole UTF-8 characters without ", backslash and control characters below U+0020
};

inline constexpr std::size_t kNumTextKinds = 6;

// The lowest kind of a text, and its characters. Nothing for other texts and for the empty one.
struct KindOfText {
  TextKind kind;
  std::size_t num_characters;
};
[[nodiscard]] std::optional<KindOfText> kind_of_text(std::string_view text);

// Depths up to this are told apart.
inline constexpr std::uint8_t kMaxTextDepth = 16;
inline constexpr std::uint8_t kEveryDepth = 255;

struct TextDepth {
  std::uint8_t depth = 0;      // every text of the kind with at most so many characters can go on; or kEveryDepth
  bool is_exact = false;       // no text of the kind with more characters can go on, and none within the depth can end
  std::uint32_t shortest = 0;  // the largest RegexPool::shortest() that a text within the depth leaves
  bool is_loop = false;        // every text of the kind leads back to the expression itself
};

// How much text of a kind an expression takes from where it stands, whatever the text is. Remembers what it found, for
// one pool. Not thread-safe.
class TextDepths {
 public:
  explicit TextDepths(RegexPool& pool) : pool_(&pool) {}
  [[nodiscard]] TextDepth of(RegexId id, TextKind kind);
  // What an expression leaves behind one character of a kind, whichever it is; kNoText if none can follow. Nothing:
  // that differs, or a text may end there.
  [[nodiscard]] std::optional<RegexId> after_any(RegexId id, TextKind kind);

 private:
  struct Step {
    std::vector<RegexId> targets;  // after one character of the kind; those that go on
    bool some_stop = false;        // some character cannot follow
    bool some_end = false;         // a target accepts the empty text, or a byte within a character did
  };
  const Step& step(RegexId id, TextKind kind);
  TextDepth searched(RegexId id, TextKind kind);
  void collect(RegexId id, std::uint8_t first, std::uint8_t last, std::size_t more_bytes, Step& into);

  RegexPool* pool_;
  std::unordered_map<std::uint64_t, Step> steps_;
  std::unordered_map<std::uint64_t, TextDepth> known_;
};

}  // namespace troupe::engine::constraints
