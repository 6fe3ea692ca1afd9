// Arguments and values as Python writes them, and as Gemma 4 does.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/chat/tools/arguments_reader.h"
#include "engine/chat/tools/json_text.h"
#include "engine/chat/values/json.h"
#include "engine/chat/values/limits.h"
#include "engine/tokenizers/marker_search.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine::chat {
namespace {

constexpr std::string_view kGemmaQuote = "<|\"|>";

bool is_in(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

std::string json_of_word(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  return parse_json(word) ? std::string(word) : quoted_json(word);
}

// Writes JSON as it reads. The texts of Python: '...', "...", '''...''', with escapes; those of Gemma: <|"|>...<|"|>,
// without. Names of members and arguments need no quotes, and stand before ':' or '='.
class LiteralReader final : public ArgumentsReader {
 public:
  // within_call: behind the bracket that opens the arguments of a call; else before a value.
  explicit LiteralReader(bool within_call) {
    if (!within_call) return;
    open_.push_back({.is_object = true});
    expected_ = Expected::item;
  }

  bool read(std::string& held, bool at_end, std::string& out) override {
    if (!has_begun_ && !open_.empty()) out += '{';
    has_begun_ = true;
    while (step(held, at_end, out)) {
    }
    return is_over_ || at_end;
  }
  // The whole of a value or call was read.
  bool is_whole() const { return is_over_ && open_.empty(); }

 private:
  enum class Expected : std::uint8_t { item, separator, value, behind_value };
  struct Open {
    bool is_object = false;
    bool has_items = false;
  };

  // Returns whether there is more to do with what is held.
  bool step(std::string& held, bool at_end, std::string& out) {
    if (is_over_) return false;
    if (!quote_.empty()) return read_text(held, at_end, out);
    held.erase(0, leading_space(held));
    if (held.empty()) return false;
    switch (expected_) {
      case Expected::item:
        return read_item(held, at_end, out);
      case Expected::separator:
        if (!is_in(held.front(), ":=")) return give_up();
        held.erase(0, 1);
        expected_ = Expected::value;
        return true;
      case Expected::value:
        return read_value(held, at_end, out);
      case Expected::behind_value:
        if (is_in(held.front(), ")]}")) return close(held, out);
        if (held.front() != ',') return give_up();
        held.erase(0, 1);
        expected_ = Expected::item;
        return true;
    }
    return false;
  }

  bool give_up() {
    is_over_ = true;
    return false;
  }

  bool close(std::string& held, std::string& out) {
    held.erase(0, 1);
    out += open_.back().is_object ? '}' : ']';
    open_.pop_back();
    return end_value();
  }
  bool end_value() {
    is_over_ = open_.empty();
    expected_ = Expected::behind_value;
    return !is_over_;
  }

  bool read_item(std::string& held, bool at_end, std::string& out) {
    if (is_in(held.front(), ")]}")) return close(held, out);
    if (!open_.back().is_object) {
      begin_item(out);
      expected_ = Expected::value;
      return true;
    }
    if (may_begin_text(held, at_end)) {
      is_name_ = true;
      return begins_text(held, at_end, out);
    }
    const std::size_t end = std::min(held.find_first_of(":=,)]}([{\"' \t\r\n"), held.size());
    const std::size_t next = std::min(held.find_first_not_of(kSpace, end), held.size());
    if (next == held.size() && next < kMaxHeldCallBytes) return false;  // it may go on, or is cut
    if (end == 0 || next == held.size() || !is_in(held[next], ":=")) return give_up();
    begin_item(out);
    out += quoted_json(std::string_view(held).substr(0, end)) + ": ";
    held.erase(0, next);
    expected_ = Expected::separator;
    return true;
  }
  void begin_item(std::string& out) {
    if (open_.back().has_items) out += ", ";
    open_.back().has_items = true;
  }

  bool read_value(std::string& held, bool at_end, std::string& out) {
    is_name_ = false;
    const char first = held.front();
    if (is_in(first, "{[(")) {
      if (open_.size() == kMaxJsonDepth) return give_up();
      held.erase(0, 1);
      open_.push_back({.is_object = first == '{'});
      out += first == '{' ? '{' : '[';
      expected_ = Expected::item;
      return true;
    }
    if (may_begin_text(held, at_end)) return begins_text(held, at_end, out);
    const std::size_t end = std::min(held.find_first_of(",)]} \t\r\n"), held.size());
    if (end == held.size() && !at_end && end < kMaxHeldCallBytes) return false;
    if (end == 0) return give_up();
    out += json_of_word(std::string_view(held).substr(0, end));
    held.erase(0, end);
    return end_value();
  }

  static bool may_begin_text(std::string_view held, bool at_end) {
    return is_in(held.front(), "'\"") || held.starts_with(kGemmaQuote) || (!at_end && may_become(held, kGemmaQuote));
  }
  // Takes the opening quote, if it is there and whole.
  bool begins_text(std::string& held, bool at_end, std::string& out) {
    if (held.starts_with(kGemmaQuote)) {
      quote_ = kGemmaQuote;
    } else {
      const std::string three(3, held.front());
      if (!is_in(held.front(), "'\"") || (may_become(held, three) && !at_end)) return false;
      quote_ = held.starts_with(three) ? three : held.substr(0, 1);
    }
    held.erase(0, quote_.size());
    if (is_name_) begin_item(out);
    out += '"';
    return true;
  }

  bool read_text(std::string& held, bool at_end, std::string& out) {
    const bool has_escapes = quote_ != kGemmaQuote;
    std::string text;
    std::size_t at = 0;
    const std::string_view all = held;
    while (at < all.size()) {
      const std::string_view rest = all.substr(at);
      if (rest.starts_with(quote_)) break;
      if (may_become(rest, quote_) && !at_end) break;
      if (rest.front() != '\\' || !has_escapes) {
        text += rest.front();
        ++at;
        continue;
      }
      const std::size_t length = escape(rest, text);
      if (length == 0 && !at_end) break;
      if (length == 0) text += rest;
      at += length == 0 ? rest.size() : length;
    }
    const bool is_closed = all.substr(at).starts_with(quote_);
    out += escaped_json(text);
    held.erase(0, at + (is_closed ? quote_.size() : 0));
    if (!is_closed) return false;
    out += '"';
    quote_.clear();
    if (!is_name_) return end_value() || is_over_;
    is_name_ = false;
    out += ": ";
    expected_ = Expected::separator;
    return true;
  }

  // The length of the escape at the front of `rest`; 0: it may go on.
  static std::size_t escape(std::string_view rest, std::string& text) {
    if (rest.size() < 2) return 0;
    const char kind = rest[1];
    constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t place = kLetters.find(kind); place != std::string_view::npos) {
      text += kMeanings[place];
      return 2;
    }
    if (kind == '\n') return 2;  // a line that goes on
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits != 0) {
      if (rest.size() < 2 + digits) return 0;
      char32_t code = 0;
      bool is_hex = true;
      for (const char c : rest.substr(2, digits)) {
        constexpr std::string_view kHex = "0123456789abcdef";
        const std::size_t value = kHex.find(static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c));
        is_hex = is_hex && value != std::string_view::npos;
        code = code * 16 + static_cast<char32_t>(value % 16);
      }
      if (is_hex) {
        append_utf8(text, code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0xFFFD : code);
        return 2 + digits;
      }
    }
    text += rest.substr(0, 1);  // as Python leaves what is no escape
    return 1;
  }

  std::vector<Open> open_;
  Expected expected_ = Expected::value;
  std::string quote_;     // that ends the text that is being read
  bool is_name_ = false;  // the text is a member's name
  bool has_begun_ = false;
  bool is_over_ = false;
};

}  // namespace

std::unique_ptr<ArgumentsReader> read_literals() { return std::make_unique<LiteralReader>(true); }

std::optional<std::string> json_of_literal(std::string_view text) {
  LiteralReader reader(false);
  std::string held(text), json;
  if (!reader.read(held, true, json) || !reader.is_whole() || leading_space(held) != held.size()) return std::nullopt;
  return json;
}

}  // namespace troupe::engine::chat
