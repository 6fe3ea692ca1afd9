#!/usr/bin/env python3
"""Writes engine/tokenizers/unicode_classes.cpp from Python's own Unicode tables: classes of characters, small letters, and what
stays of a letter without its accents.

    tools/make_unicode_classes.py > engine/tokenizers/unicode_classes.cpp
"""
import unicodedata

LAST = 0x10FFFF


def char_class(c):
    category = unicodedata.category(chr(c))
    if chr(c) in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return "space"
    if category[0] == "C":
        return "control"
    if category == "Mn":
        return "mark"
    return "punctuation" if category[0] == "P" else "other"


def class_ranges():
    ranges = []
    for c in range(LAST + 1):
        kind = char_class(c)
        if ranges and ranges[-1][2] == kind:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, kind])
    return [each for each in ranges if each[2] != "other"]


def small_letters():
    """[first, last, step, distance]: runs of letters, every one or every second, that change by one distance."""
    runs = []
    for c in range(LAST + 1):
        small = chr(c).lower()
        if len(small) != 1 or ord(small) == c:
            continue
        distance = ord(small) - c
        if runs and runs[-1][3] == distance and c - runs[-1][1] in (1, 2):
            step = c - runs[-1][1]
            if runs[-1][0] == runs[-1][1] or runs[-1][2] == step:
                runs[-1][1], runs[-1][2] = c, step
                continue
        runs.append([c, c, 1, distance])
    return runs


def bases():
    pairs = []
    for c in range(LAST + 1):
        if 0xAC00 <= c <= 0xD7A3 or 0xD800 <= c <= 0xDFFF:  # Hangul by arithmetic; no characters
            continue
        decomposed = unicodedata.normalize("NFD", chr(c))
        if decomposed == chr(c):
            continue
        pairs += [(c, ord(each)) for each in decomposed if unicodedata.category(each) != "Mn"]
    return pairs


def print_lines(items):
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)


print("""// Unicode %s, written by tools/make_unicode_classes.py.
#include "engine/tokenizers/unicode_classes.h"

#include <algorithm>
#include <iterator>

namespace troupe::engine {
namespace {

struct ClassRange {
  char32_t first, last;
  CharClass kind;
};
struct SmallLetters {
  char32_t first, last;
  std::uint32_t step;
  std::int32_t distance;  // from a letter to its small one
};
constexpr auto kSpace = CharClass::space, kCtrl = CharClass::control, kMark = CharClass::mark,
               kPunct = CharClass::punctuation;

// clang-format off
constexpr ClassRange kClasses[] = {""" % unicodedata.unidata_version)
names = {"space": "kSpace", "control": "kCtrl", "mark": "kMark", "punctuation": "kPunct"}
print_lines("{0x%x, 0x%x, %s}" % (first, last, names[kind]) for first, last, kind in class_ranges())
print("};\nconstexpr SmallLetters kSmall[] = {")
print_lines("{0x%x, 0x%x, %d, %d}" % tuple(run) for run in small_letters())
print("};\n// kComposed[i] has kBase[i] in it; one of several base characters has several entries, in order.")
print("constexpr char32_t kComposed[] = {")
print_lines("0x%x" % composed for composed, _ in bases())
print("};\nconstexpr char32_t kBase[] = {")
print_lines("0x%x" % base for _, base in bases())
print("""};
// clang-format on
static_assert(std::size(kComposed) == std::size(kBase));

}  // namespace

CharClass char_class(char32_t c) {
  const auto* const found = std::upper_bound(std::begin(kClasses), std::end(kClasses), c,
                                             [](char32_t value, const ClassRange& range) { return value <= range.last; });
  return found != std::end(kClasses) && found->first <= c ? found->kind : CharClass::other;
}

char32_t to_lower(char32_t c) {
  const auto* const found = std::upper_bound(std::begin(kSmall), std::end(kSmall), c,
                                             [](char32_t value, const SmallLetters& run) { return value <= run.last; });
  if (found == std::end(kSmall) || found->first > c || (c - found->first) % found->step != 0) return c;
  return static_cast<char32_t>(static_cast<std::int32_t>(c) + found->distance);
}

std::span<const char32_t> decomposed_base(char32_t c) {
  const auto [begin, end] = std::equal_range(std::begin(kComposed), std::end(kComposed), c);
  return {kBase + (begin - std::begin(kComposed)), static_cast<std::size_t>(end - begin)};
}

}  // namespace troupe::engine""")
