#include "engine/constraints/tools/call_rule.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/tokenizers/marker_search.h"
#include "engine/tokenizers/reasoning_limit.h"
#include "engine/tokenizers/reasoning_splitter.h"

namespace troupe::engine::constraints {
namespace {

using chat::CallSyntax;
using chat::ToolFormat;

// Where calls begin in a free text. Reads the text token by token.
class CallSearch {
 public:
  CallSearch(const ToolFormat& format, std::shared_ptr<const chat::ToolSet> tools) : format_(format) {
    for (const std::string_view each : chat::openings_of(format)) openings_.emplace_back(each);
    // A word alone (functools) is a word in a text.
    const bool is_word = format.is_list && !format.section_open.empty() &&
                         std::isalpha(static_cast<unsigned char>(format.section_open.back())) != 0;
    if (is_word) openings_.front() += '[';
    for (const std::string& each : openings_) longest_ = std::max(longest_, each.size());
    if (format.may_be_bare) parser_.emplace(format, std::move(tools));
  }

  // What the format's grammar has to read of a call that has begun: the opening, whose marks are tokens, and what
  // stands behind it already.
  struct Begun {
    std::string opening, rest;
  };

  // Adds a part of the text.
  void push(std::string_view text) {
    text_ += text;
    if (!parser_) return;
    const std::size_t num_before = parser_->num_calls();
    (void)parser_->push(text);
    found_bare_ = parser_->num_calls() > num_before;
  }
  // The next place where a call may have begun.
  std::optional<Begun> next() {
    if (format_.syntax == CallSyntax::recipients) return next_recipient();
    std::size_t found = std::string::npos;
    std::string_view opening;
    for (const std::string& each : openings_)
      if (const std::size_t at = text_.find(each, searched_); at < found) {
        found = at;
        opening = each;
      }
    if (found != std::string::npos) {
      searched_ = found + 1;
      return Begun{std::string(opening), text_.substr(found + opening.size())};
    }
    searched_ = std::max(searched_, text_.size() - std::min(text_.size(), longest_));
    if (!std::exchange(found_bare_, false)) return std::nullopt;
    std::string_view call = text_;
    call.remove_prefix(leading_space(call));
    if (call.starts_with(';')) call.remove_prefix(1 + leading_space(call.substr(1)));
    return Begun{{}, std::string(call)};
  }
  // Behind a call: what comes next is the beginning of the text.
  void restart() {
    text_.clear();
    searched_ = 0;
  }
  // A part of a call: the parser has to know where it ends.
  void push_call(std::string_view text) {
    if (parser_) (void)parser_->push(text);
    found_bare_ = false;
  }

 private:
  // Messages of harmony are calls if their header says so, which goes up to <|message|>.
  std::optional<Begun> next_recipient() {
    constexpr std::string_view kRecipient = "to=functions.", kMessage = "<|message|>";
    for (std::size_t found; (found = text_.find(kRecipient, searched_)) != std::string::npos;) {
      searched_ = found + 1;
      const std::string_view before = std::string_view(text_).substr(0, found);
      const std::size_t header = std::max(before.rfind("<|start|>") + 1, before.rfind("<|channel|>") + 1);
      const bool is_header = header != 0 && before.find(kMessage, header) == std::string_view::npos;
      if (is_header || leading_space(before) == before.size())
        return Begun{std::string(format_.call_open) + std::string(format_.before_name),
                     text_.substr(found + kRecipient.size())};
    }
    searched_ = std::max(searched_, text_.size() - std::min(text_.size(), kRecipient.size()));
    return std::nullopt;
  }

  const ToolFormat& format_;
  std::vector<std::string> openings_;
  std::optional<chat::ToolCallParser> parser_;  // of formats whose calls may have no marks
  std::string text_;                            // since the beginning, or the last call
  std::size_t searched_ = 0, longest_ = 0;
  bool found_bare_ = false;
};

class CallReader final : public AnswerReader {
 public:
  CallReader(std::shared_ptr<GrammarTokens> tokens, const ToolFormat& format,
             std::shared_ptr<const chat::ToolSet> tools, std::span<const TokenId> prompt, ReasoningMarkers markers)
      : tokens_(std::move(tokens)),
        format_(format),
        tools_(std::move(tools)),
        markers_(std::move(markers)),
        begins_open_(ends_with_opening(tokens_->tokenizer(), markers_, prompt)),
        mask_(tokens_->num_tokens()) {
    restart();
  }

  NextTokens next(std::span<const TokenId> answer, std::size_t tokens_left) override {
    return tokens_->tell(told_, answer.size(), tokens_left, [&] { return behind(answer, tokens_left); });
  }

  void truncate(std::size_t num_tokens) override {
    told_ = {};
    if (num_tokens < num_read_) restart();
  }

 private:
  NextTokens behind(std::span<const TokenId> answer, std::size_t tokens_left) {
    if (answer.size() < num_read_) restart();
    while (num_read_ < answer.size()) {
      tokens_->limit_work();  // of each token, so that a long answer can be read from its begin
      const TokenId token = answer[num_read_++];
      try {
        take(token, tokens_left + answer.size() - num_read_);
      } catch (const ConstraintLimit&) {
        restart();
        throw;
      }
    }
    tokens_->limit_work();
    return state_ == kStuck ? NextTokens() : tokens_->next(state_, mask_, tokens_left);
  }

  void restart() {
    num_read_ = 0;
    state_ = kStuck;
    content_.emplace(markers_, begins_open_);
    search_.emplace(format_, tools_);
  }

  // tokens_left: behind it.
  void take(TokenId token, std::size_t tokens_left) {
    if (state_ != kStuck) {
      search_->push_call(text_of(token));
      state_ = tokens_->after(state_, token);
      if (state_ == kStuck || !tokens_->may_end(state_)) return;
      state_ = kStuck;
      search_->restart();
      return;
    }
    search_->push(content_->push(text_of(token)).content);
    while (const auto begun = search_->next()) {
      StateId state = tokens_->after(tokens_->begin(), tokens_->marks().written(begun->opening));
      state = tokens_->after(state, begun->rest);
      if (state == kStuck || tokens_->tokens_to_end(state) > tokens_left) continue;
      if (tokens_->may_end(state)) {
        search_->restart();
        return;
      }
      state_ = state;
      return;
    }
  }

  // As it stands in the answer's text, in which the marks of calls and reasoning have theirs.
  std::string text_of(TokenId token) const {
    const Tokenizer& tokenizer = tokens_->tokenizer();
    const auto& marks = tokens_->marks().marks();
    const bool is_shown = std::ranges::find(marks, token, &MarkTokens::Mark::id) != marks.end() ||
                          std::ranges::binary_search(markers_.control_ids, token);
    return is_shown ? tokenizer.raw_piece(token) : tokenizer.piece(token);
  }

  const std::shared_ptr<GrammarTokens> tokens_;
  const ToolFormat& format_;
  const std::shared_ptr<const chat::ToolSet> tools_;
  const ReasoningMarkers markers_;
  const bool begins_open_;
  TokenMask mask_;
  ToldTokens told_;
  // Of the answer so far.
  std::size_t num_read_ = 0;
  StateId state_ = kStuck;  // within a call; kStuck: in free text
  std::optional<ContentFinder> content_;
  std::optional<CallSearch> search_;
};

class CallsInText final : public AnswerRule {
 public:
  CallsInText(std::shared_ptr<GrammarTokens> tokens, const ToolFormat& format,
              std::shared_ptr<const chat::ToolSet> tools)
      : tokens_(std::move(tokens)), format_(format), tools_(std::move(tools)) {}

  std::unique_ptr<AnswerReader> read(std::span<const TokenId> prompt, const ReasoningMarkers& markers) const override {
    return std::make_unique<CallReader>(tokens_, format_, tools_, prompt, markers);
  }

 private:
  const std::shared_ptr<GrammarTokens> tokens_;
  const ToolFormat& format_;
  const std::shared_ptr<const chat::ToolSet> tools_;
};

}  // namespace

std::shared_ptr<const AnswerRule> calls_in_text(std::shared_ptr<GrammarTokens> tokens, const ToolFormat& format,
                                                std::shared_ptr<const chat::ToolSet> tools) {
  return std::make_shared<const CallsInText>(std::move(tokens), format, std::move(tools));
}

}  // namespace troupe::engine::constraints
