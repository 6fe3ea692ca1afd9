#include "config/printable.h"

#include <algorithm>
#include <cstdio>

#include "config/utf8.h"

namespace troupe {
namespace {

constexpr std::string_view kCut = "\u2026";

bool is_within(char32_t code, char32_t first, char32_t last) { return code >= first && code <= last; }

bool is_control(char32_t code) { return code < 0x20 || is_within(code, 0x7f, 0x9f); }

// Line and paragraph separators, and characters that change the direction in which text is displayed.
bool reorders(char32_t code) {
  return code == 0x61c || is_within(code, 0x2028, 0x202e) || is_within(code, 0x2066, 0x2069);
}

// Characters without width: text with them looks like text without them.
bool is_invisible(char32_t code) { return is_within(code, 0x200b, 0x200f) || code == 0x2060 || code == 0xfeff; }

std::string hex(const char* pattern, unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string escape(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  return hex(code < 0x80 ? "\\x%02x" : "\\u%04x", code);
}

// Calls `out` with each character of `text`, or with its escape if `is_shown` is true for it or it is not UTF-8, until
// `out` returns false.
template <class IsShown, class Out>
void escape_all(std::string_view text, IsShown is_shown, Out out) {
  while (!text.empty()) {
    const Utf8Char next = next_utf8(text);
    const bool is_valid = next.status == Utf8Status::valid;
    const std::size_t size = is_valid ? next.length : 1;
    const bool more = !is_valid                   ? out(hex("\\x%02x", static_cast<unsigned char>(text[0])))
                      : is_shown(next.code_point) ? out(escape(next.code_point))
                                                  : out(text.substr(0, size));
    if (!more) return;
    text.remove_prefix(size);
  }
}

bool is_shown_in_name(char32_t code) { return is_control(code) || reorders(code) || is_invisible(code); }

bool is_shown_on_terminal(char32_t code) {
  return (is_control(code) && code != '\n' && code != '\t') || reorders(code);
}

}  // namespace

Printable::Printable(std::string_view text, std::size_t max_bytes) {
  const std::string_view cut = max_bytes < kCut.size() ? "" : kCut;
  std::size_t whole = 0;  // bytes of the most characters that leave room for `cut`
  escape_all(text, is_shown_in_name, [&](std::string_view part) {
    if (text_.size() + cut.size() <= max_bytes) whole = text_.size();
    text_ += part;
    return text_.size() <= max_bytes;
  });
  if (text_.size() > max_bytes) text_.replace(whole, std::string::npos, cut);
}

std::string printable_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  // Line ends and other control characters outside strings are white space; within strings JSON requires escapes.
  const auto is_shown = [](char32_t code) { return code >= 0x20 && is_shown_in_name(code); };
  while (!json.empty()) {
    const Utf8Char next = next_utf8(json);
    const bool is_valid = next.status == Utf8Status::valid;
    const std::size_t size = is_valid ? next.length : 1;
    if (is_valid && is_shown(next.code_point))
      out += hex("\\u%04x", next.code_point);
    else
      out += json.substr(0, size);
    json.remove_prefix(size);
  }
  return out;
}

std::string problem_of_model_name(std::string_view name) {
  if (Printable(name, kMaxModelNameBytes) == name) return {};
  return "'" + Printable(name) + "' is not a name of at most " + std::to_string(kMaxModelNameBytes) +
         " bytes of UTF-8 without control characters";
}

std::string TerminalText::of(std::string_view text) {
  std::string shown;
  escape_all(text, is_shown_on_terminal, [&](std::string_view part) {
    shown += part;
    return true;
  });
  return shown;
}

std::string TerminalText::show(std::string_view piece) {
  kept_ += piece;
  const std::size_t complete = kept_.size() - incomplete_end(kept_);
  std::string shown = of(std::string_view(kept_).substr(0, complete));
  kept_.erase(0, complete);
  return shown;
}

std::string TerminalText::end() { return of(std::exchange(kept_, {})); }

}  // namespace troupe
