// Operations of Python's str on texts that keep where their bytes came from. A character is a code point; a byte that
// is no UTF-8 counts as one. White space is Python's. All O(size of the texts), charged to a meter, unless noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/chat/values/characters.h"
#include "engine/chat/values/charged.h"
#include "engine/chat/values/meter.h"
#include "engine/chat/values/text.h"

namespace troupe::engine::chat {

std::size_t count_characters(std::string_view text, Meter& meter);
// Where the character with this number begins; the size if there are not so many.
std::size_t character_place(std::string_view text, std::size_t index, Meter& meter);
// Every `step`th character from number `start` on, before number `stop`; of a negative step down, behind `stop`. Both
// are as slice.indices() has them for `num_characters`.
Text every_character(const Text& text, std::int64_t num_characters, std::int64_t start, std::int64_t stop,
                     std::int64_t step, Meter& meter);

bool is_space(char32_t code_point);
// The bytes of white space that `text` begins or ends with. Not charged: for the source of a template.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

bool same_bytes(std::string_view a, std::string_view b, Meter& meter);
// By bytes, as by code points.
bool comes_before(std::string_view a, std::string_view b, Meter& meter);
bool begins_with(std::string_view text, std::string_view wanted, Meter& meter);
bool ends_with(std::string_view text, std::string_view wanted, Meter& meter);
// Where `wanted` begins in `text`, from `begin` on; npos if nowhere.
std::size_t find_bytes(std::string_view text, std::string_view wanted, Meter& meter, std::size_t begin = 0);
// The last place.
std::size_t find_last_bytes(std::string_view text, std::string_view wanted, Meter& meter);

// A part of a text, in bytes.
struct Span {
  std::size_t begin, end;
};
using Spans = ChargedVector<Span>;

enum class Side : std::uint8_t { left, right, both };
// Without `characters` (null) white space is removed, else every character in it.
Span strip(std::string_view text, Side side, Meter& meter, const std::string_view* characters = nullptr);
// At white space, or at every `separator` (not empty); max_splits < 0: no bound.
Spans split(std::string_view text, const std::string_view* separator, std::int64_t max_splits, Meter& meter);
Spans split_from_right(std::string_view text, const std::string_view* separator, std::int64_t max_splits, Meter& meter);
// At "\n", "\r\n" and Python's other ends of lines.
Spans split_lines(std::string_view text, bool keep_ends, Meter& meter);
// The first `max_count` places (all, if negative). An empty `from` is found between all characters.
Text replace(const Text& text, std::string_view from, const Text& to, std::int64_t max_count, Meter& meter);
std::size_t count_occurrences(std::string_view text, std::string_view wanted, Meter& meter);

enum class Case : std::uint8_t { lower, upper, capitalize, title, swap };
Text change_case(const Text& text, Case to, Meter& meter);
// jinja's `title`: words begin after white space and - ( { [ <.
Text title_words(const Text& text, Meter& meter);
bool is_lower(std::string_view text, Meter& meter);
bool is_upper(std::string_view text, Meter& meter);
// The four tests of characters that Python has; false for an empty text.
bool all_characters(std::string_view text, bool (*is)(char32_t), Meter& meter);
bool is_alphabetic(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_printable(char32_t code_point);
bool is_line_end(char32_t code_point);
// How often the regular expression \w+ is found: letters, numbers and "_".
std::size_t count_words(std::string_view text, Meter& meter);

// Appends the text to `out`. escape(character) is what stands for a character; empty: itself.
template <class Escape>
void append_escaped(Text& out, const Text& text, Meter& meter, Escape escape) {
  std::size_t plain = 0;  // where the bytes that need no escape begin
  visit_characters(text.bytes(), meter, 0, [&](const Character& each, std::size_t at) {
    const std::string escaped = escape(each);
    if (escaped.empty()) return true;
    out.append(text, plain, at, meter);
    out.append(escaped, text.origin(at), meter);
    plain = at + each.length;
    return true;
  });
  out.append(text, plain, text.size(), meter);
}

}  // namespace troupe::engine::chat
