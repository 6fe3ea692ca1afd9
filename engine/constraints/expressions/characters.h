// Sets of characters, and their bytes in a text.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/constraints/expressions/regex_pool.h"

namespace troupe::engine::constraints {

// Code points: ranges (both ends belong to it), ascending, neither touching nor overlapping; no surrogates, nothing
// above U+10FFFF.
class CodePoints {
 public:
  CodePoints() = default;
  static CodePoints of(char32_t first, char32_t last);
  static CodePoints all();

  void add(char32_t first, char32_t last);
  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints intersection(const CodePoints& other) const;
  bool contains(char32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<std::pair<char32_t, char32_t>>& ranges() const { return ranges_; }

 private:
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

// How characters are written.
enum class Writing {
  plain,  // UTF-8
  json,   // within the quotes of a JSON string: UTF-8, with \" \\ \b \f \n \r \t and \u00xx (lower case) where JSON
          // demands an escape and nowhere else: every text is written in exactly one way
};

// One character of the set. An empty set: kNoText.
[[nodiscard]] RegexId character(RegexPool& pool, const CodePoints& set, Writing writing);

// `text`, which must be UTF-8 (asserted), written so.
[[nodiscard]] std::string written(std::string_view text, Writing writing);

// One character of a JSON string in any way in which JSON lets it be written, \u forms included (surrogates only in
// pairs).
[[nodiscard]] RegexId any_json_character(RegexPool& pool);

}  // namespace troupe::engine::constraints
