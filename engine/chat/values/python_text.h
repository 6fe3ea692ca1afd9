// Operations of Python's str on texts that keep where their bytes came from. A character is a code point; a byte that
// is no UTF-8 counts as one. White space is Python's. All O(size of the texts), unless noted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/chat/values/text.h"

namespace troupe::engine::chat {

// Where the characters of `text` begin, and its size at the end: characters + 1 numbers.
std::vector<std::size_t> character_offsets(std::string_view text);
std::size_t count_characters(std::string_view text);

bool is_space(char32_t code_point);
// The bytes of white space that `text` ends or begins with.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

// Where `wanted` begins in `text`, from `begin` on; npos if nowhere. Linear, unlike std::string::find().
std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t begin = 0);
// The last place.
std::size_t find_last_bytes(std::string_view text, std::string_view wanted);

enum class Side : std::uint8_t { left, right, both };
// Without `characters` (null) white space is removed, else every character in it.
Text strip(const Text& text, Side side, const std::string_view* characters = nullptr);
// At white space, or at every `separator` (not empty); max_splits < 0: no bound.
std::vector<Text> split(const Text& text, const std::string_view* separator, std::int64_t max_splits);
std::vector<Text> split_from_right(const Text& text, const std::string_view* separator, std::int64_t max_splits);
// At "\n", "\r\n" and Python's other ends of lines.
std::vector<Text> split_lines(const Text& text, bool keep_ends);
// The first `max_count` places (all, if negative). An empty `from` is found between all characters.
Text replace(const Text& text, std::string_view from, const Text& to, std::int64_t max_count);
// The size of replace()'s result, before it takes memory.
std::size_t replaced_size(const Text& text, std::string_view from, const Text& to, std::int64_t max_count);
std::size_t count_occurrences(std::string_view text, std::string_view wanted);

enum class Case : std::uint8_t { lower, upper, capitalize, title, swap };
Text change_case(const Text& text, Case to);
// jinja's `title`: words begin after white space and - ( { [ <.
Text title_words(const Text& text);
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);
// The four tests of characters that Python has; false for an empty text.
bool all_characters(std::string_view text, bool (*is)(char32_t));
bool is_alphabetic(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_printable(char32_t code_point);
// How often the regular expression \w+ is found: letters, numbers and "_".
std::size_t count_words(std::string_view text);

}  // namespace troupe::engine::chat
