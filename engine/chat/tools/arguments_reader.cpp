#include "engine/chat/tools/arguments_reader.h"

#include <algorithm>
#include <utility>

#include "engine/chat/tools/json_text.h"
#include "engine/tokenizers/marker_search.h"

namespace troupe::engine::chat {
namespace {

using Found = JsonCursor::Found;

// The members of an object behind that with the name of the tool. Members that are not known are left out.
class ObjectReader final : public ArgumentsReader {
 public:
  ObjectReader(std::size_t depth, bool at_value, std::string arguments)
      : depth_(depth), arguments_(std::move(arguments)), state_(at_value ? State::value : State::member) {}

  bool read(std::string& held, bool at_end, std::string& out) override {
    if (!arguments_.empty()) {
      out += std::exchange(arguments_, {});
      has_arguments_ = true;
    }
    while (step(held, at_end, out)) {
    }
    is_over_ = is_over_ || at_end;
    if (is_over_ && !has_arguments_) out += "{}";
    return is_over_;
  }

 private:
  enum class State : std::uint8_t { member, value, arguments, text, other };

  bool step(std::string& held, bool at_end, std::string& out) {
    if (is_over_ || held.empty()) return false;
    switch (state_) {
      case State::member:
        return read_member(held);
      case State::value:
        return begin_arguments(held);
      case State::arguments:
      case State::other: {
        const std::size_t length = scanner_.scan(held);
        if (state_ == State::arguments) out += std::string_view(held).substr(0, length);
        held.erase(0, length);
        if (scanner_.is_done()) state_ = State::member;
        return scanner_.is_done();
      }
      case State::text:
        return read_text(held, at_end, out);
    }
    return false;
  }

  bool give_up() {
    is_over_ = true;
    return false;
  }

  bool read_member(std::string& held) {
    held.erase(0, leading_space(held));
    if (held.empty()) return false;
    if (held.front() == '}') {
      held.erase(0, 1);
      is_over_ = --depth_ == 0;
      return !is_over_;
    }
    if (held.front() == ',') {
      held.erase(0, 1);
      return true;
    }
    JsonCursor cursor{held};
    std::string key;
    const Found has_key = cursor.quoted(key);
    const Found has_colon = has_key == Found::yes ? cursor.mark(":") : has_key;
    cursor.skip_space();
    const bool is_cut = has_colon == Found::cut || (has_colon == Found::yes && cursor.is_cut());
    if (has_colon == Found::no || (is_cut && held.size() > kMaxHeldCallBytes)) return give_up();
    if (is_cut) return false;
    const bool is_arguments = (key == "arguments" || key == "parameters") && !has_arguments_;
    held.erase(0, cursor.at);
    if (key == "function" && held.front() == '{' && depth_ == 1) {
      held.erase(0, 1);
      ++depth_;
      return true;
    }
    scanner_ = {};
    state_ = is_arguments ? State::value : State::other;
    return true;
  }

  // Some models write the object as a text that holds its JSON.
  bool begin_arguments(std::string& held) {
    held.erase(0, leading_space(held));
    if (held.empty()) return false;
    has_arguments_ = true;
    scanner_ = {};
    state_ = held.front() == '"' ? State::text : State::arguments;
    if (state_ == State::text) held.erase(0, 1);
    return true;
  }

  bool read_text(std::string& held, bool at_end, std::string& out) {
    Unescaped part = unescape_json(held);
    out += part.text;
    if (!part.at_quote && at_end) out += std::string_view(held).substr(part.length);
    held.erase(0, part.at_quote ? part.length + 1 : at_end ? held.size() : part.length);
    if (part.at_quote) state_ = State::member;
    return part.at_quote;
  }

  std::size_t depth_;
  std::string arguments_;
  State state_;
  JsonScanner scanner_;
  bool has_arguments_ = false;
  bool is_over_ = false;
};

class NamedReader final : public ArgumentsReader {
 public:
  explicit NamedReader(std::vector<std::string_view> ends) : ends_(std::move(ends)) {}

  bool read(std::string& held, bool at_end, std::string& out) override {
    if (state_ == State::start) {
      held.erase(0, leading_space(held));
      if (held.empty()) return at_end;
      state_ = held.front() == '{' || held.front() == '[' ? State::json : State::text;
    }
    if (state_ == State::json) {
      const std::size_t length = scanner_.scan(held);
      out += std::string_view(held).substr(0, length);
      held.erase(0, length);
      return scanner_.is_done() || at_end;
    }
    return read_text(held, at_end, out);
  }

 private:
  enum class State : std::uint8_t { start, json, text };

  bool read_text(std::string& held, bool at_end, std::string& out) {
    std::size_t end = held.size(), open = held.size();
    for (const std::string_view mark : ends_) {
      end = std::min(end, held.find(mark));
      if (!at_end) open = std::min(open, held.size() - partial_marker(held, mark));
    }
    const bool is_over = end < held.size();
    // White space before the mark does not belong to the text.
    const std::size_t length = without_trailing_space(std::string_view(held).substr(0, is_over ? end : open));
    out += std::string_view(held).substr(0, length);
    held.erase(0, is_over ? end : length);
    return is_over || at_end;
  }

  std::vector<std::string_view> ends_;
  State state_ = State::start;
  JsonScanner scanner_;
};

// The JSON of a value without quotes.
std::string json_of_tagged(std::string_view text, ValueTypes types) {
  if (types.other) {
    std::string_view trimmed = text.substr(0, without_trailing_space(text));
    trimmed.remove_prefix(leading_space(trimmed));
    const auto json = parse_json(trimmed);
    if (json && (!types.text || json->text() == nullptr)) return std::string(trimmed);
    const bool may_be_literal = trimmed.starts_with('[') || trimmed.starts_with('{') || trimmed.starts_with('(') ||
                                trimmed == "True" || trimmed == "False" || trimmed == "None";
    if (may_be_literal)
      if (auto literal = json_of_literal(trimmed)) return *std::move(literal);
  }
  return quoted_json(text);
}

class TaggedReader final : public ArgumentsReader {
 public:
  TaggedReader(const ToolFormat& format, const ToolSet& tools, std::string name)
      : tags_(format.tags), tools_(tools), name_(std::move(name)) {}

  bool read(std::string& held, bool at_end, std::string& out) override {
    while (step(held, at_end, out)) {
    }
    if ((is_over_ || at_end) && !is_ended_) {
      is_ended_ = true;
      // An answer that was cut has what came.
      if (is_over_) out += num_values_ == 0 ? "{}" : "}";
      if (!is_over_ && num_values_ == 0) out += "{}";
    }
    return is_over_ || at_end;
  }

 private:
  enum class State : std::uint8_t { key, value_start, value };

  bool step(std::string& held, bool at_end, std::string& out) {
    if (is_over_) return false;
    switch (state_) {
      case State::key:
        return read_key(held);
      case State::value_start:
        return begin_value(held, at_end, out);
      case State::value:
        return read_value(held, at_end, out);
    }
    return false;
  }

  bool end(std::string& held, std::size_t length) {
    held.erase(0, length);
    is_over_ = true;
    return false;
  }

  bool read_key(std::string& held) {
    held.erase(0, leading_space(held));
    if (held.starts_with(tags_.key_open)) return read_whole_key(held);
    if (may_become(held, tags_.key_open)) return false;
    if (!tags_.arguments_close.empty()) {
      if (held.starts_with(tags_.arguments_close)) return end(held, tags_.arguments_close.size());
      if (may_become(held, tags_.arguments_close)) return false;
    }
    return end(held, 0);  // also where a mark is missing
  }

  bool read_whole_key(std::string& held) {
    const std::string_view rest = std::string_view(held).substr(tags_.key_open.size());
    const std::size_t key_end = rest.find(tags_.key_close);
    const std::size_t from = key_end == std::string_view::npos ? key_end : key_end + tags_.key_close.size();
    const std::size_t open = from == std::string_view::npos ? from : rest.find(tags_.value_open, from);
    if (open == std::string_view::npos) return held.size() > kMaxHeldCallBytes ? end(held, 0) : false;
    key_ = rest.substr(0, key_end);
    types_ = tools_.types_of(name_, key_);
    const std::string_view attributes = rest.substr(from, open - from);
    if (tags_.says_text && attributes.find("string=\"true\"") != std::string_view::npos) types_ = {true, false};
    if (tags_.says_text && attributes.find("string=\"false\"") != std::string_view::npos) types_ = {false, true};
    held.erase(0, tags_.key_open.size() + open + tags_.value_open.size());
    state_ = State::value_start;
    return true;
  }

  bool begin_value(std::string& held, bool at_end, std::string& out) {
    constexpr std::string_view kData = "<![CDATA[";
    value_end_ = tags_.value_close;
    if (!at_end && held.empty()) return false;
    if (tags_.has_line_breaks && held.starts_with('\n')) held.erase(0, 1);
    if (tags_.may_be_cdata) {
      if (may_become(held, kData) && !at_end) return false;
      if (held.starts_with(kData)) {
        held.erase(0, kData.size());
        value_end_ = "]]>" + value_end_;
        types_ = {true, false};
      }
    }
    out += num_values_++ == 0 ? "{" : ", ";
    out += quoted_json(key_) + ": ";
    if (!types_.other) out += '"';
    state_ = State::value;
    return true;
  }

  bool read_value(std::string& held, bool at_end, std::string& out) {
    const std::size_t found = held.find(value_end_, searched_ - std::min(searched_, value_end_.size()));
    searched_ = held.size();
    const bool is_whole = found != std::string::npos;
    std::size_t length = is_whole ? found : at_end ? held.size() : held.size() - partial_marker(held, value_end_);
    std::string_view value = std::string_view(held).substr(0, length);
    if (tags_.has_line_breaks && value.ends_with('\n')) {  // it may be the last one
      value.remove_suffix(1);
      if (!is_whole && !at_end) --length;
    }
    if (types_.other) {  // known when it is whole
      if (!is_whole && !at_end) return false;
      if (is_whole)
        out += json_of_tagged(value, types_);
      else
        out += types_.text ? '"' + escaped_json(value) : std::string(value);
    } else {
      out += escaped_json(value);
      if (is_whole) out += '"';
    }
    held.erase(0, is_whole ? found + value_end_.size() : length);
    searched_ = is_whole ? 0 : held.size();
    if (is_whole) state_ = State::key;
    return is_whole;
  }

  const ToolFormat::Tags& tags_;
  const ToolSet& tools_;
  std::string name_, key_, value_end_;
  ValueTypes types_;
  State state_ = State::key;
  std::size_t num_values_ = 0;
  std::size_t searched_ = 0;  // bytes of the value, without its end among them
  bool is_over_ = false, is_ended_ = false;
};

}  // namespace

std::unique_ptr<ArgumentsReader> read_object(std::size_t depth, bool at_value, std::string arguments) {
  return std::make_unique<ObjectReader>(depth, at_value, std::move(arguments));
}

std::unique_ptr<ArgumentsReader> read_named(std::vector<std::string_view> ends) {
  return std::make_unique<NamedReader>(std::move(ends));
}

std::unique_ptr<ArgumentsReader> read_tagged(const ToolFormat& format, const ToolSet& tools, std::string name) {
  return std::make_unique<TaggedReader>(format, tools, std::move(name));
}

}  // namespace troupe::engine::chat
