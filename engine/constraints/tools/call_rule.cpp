#include "engine/constraints/tools/call_rule.h"

#include <algorithm>
#include <list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/constraints/tools/call_grammar.h"
#include "engine/tokenizers/marker_search.h"
#include "engine/tokenizers/reasoning_limit.h"
#include "engine/tokenizers/reasoning_splitter.h"

namespace troupe::engine::constraints {
namespace {

using chat::CallSyntax;
using chat::ToolFormat;

// Where calls begin in a free text: at the openings of the format, from where the grammar can write a call, and at the
// latest where the parser knows one by its name, however it is written up to there. Reads the text token by token.
class CallSearch {
 public:
  CallSearch(const ToolFormat& format, std::shared_ptr<const chat::ToolSet> tools)
      : format_(format), openings_(chat::openings_of(format)), parser_(format, std::move(tools)) {}

  CallSearch(const CallSearch& other)
      : format_(other.format_),
        openings_(other.openings_),
        parser_(other.parser_.copy()),
        text_(other.text_),
        searched_(other.searched_) {}
  // Whether there is a copy: not within a call that is not held.
  bool may_copy() const { return !parser_.is_within_call(); }

  // What the format's grammar has to read of a call that has begun: the opening as the grammar writes it, and what
  // stands behind it already.
  struct Begun {
    std::string opening, rest;
  };

  // Adds a part of the text.
  void push(std::string_view text) {
    const std::size_t num_read = std::min(searched_, text_.size() - std::min(text_.size(), kMaxKept));
    text_.erase(0, num_read);
    searched_ -= num_read;
    text_ += text;
    const std::size_t num_before = parser_.num_calls();
    (void)parser_.push(text);
    has_call_ = parser_.num_calls() > num_before;
  }
  // The next place where a call may have begun.
  std::optional<Begun> next() {
    if (auto begun = format_.syntax == CallSyntax::recipients ? next_recipient() : next_opening()) return begun;
    if (!std::exchange(has_call_, false)) return std::nullopt;
    const chat::ToolCallParser::Beginning& beginning = parser_.last_beginning();
    return Begun{opening_of(beginning), text_.substr(text_.size() - std::min(text_.size(), beginning.num_behind))};
  }
  // Behind a call: what comes next is the beginning of the text.
  void restart() {
    text_.clear();
    searched_ = 0;
    has_call_ = false;
  }
  // A part of a call: the parser has to know where it ends.
  void push_call(std::string_view text) {
    (void)parser_.push(text);
    has_call_ = false;
  }

 private:
  static constexpr std::size_t kMaxKept = 1024;  // of a text that was searched: a header of harmony has less

  // As the grammar writes a call up to there.
  std::string opening_of(const chat::ToolCallParser::Beginning& beginning) const {
    if (format_.syntax != CallSyntax::object) return call_opening(format_, beginning.name);
    const std::string named = chat::call_beginning(format_) + beginning.name + '"';
    return beginning.is_nested ? std::string(kNestedOpening) + named : named;
  }

  std::optional<Begun> next_opening() {
    std::size_t found = std::string::npos, unsure = 0;
    std::string_view opening;
    for (const std::string_view each : openings_) {
      if (const std::size_t at = text_.find(each, searched_); at < found) {
        found = at;
        opening = each;
      }
      unsure = std::max(unsure, each.size());
    }
    if (found == std::string::npos) {
      searched_ = std::max(searched_, text_.size() - std::min(text_.size(), unsure));
      return std::nullopt;
    }
    std::string_view rest = std::string_view(text_).substr(found + opening.size());
    if (chat::opens_with_word(format_)) {
      rest.remove_prefix(leading_space(rest));
      searched_ = rest.empty() ? found : found + 1;
      if (rest.empty()) return std::nullopt;
      if (!rest.starts_with('[')) return next_opening();
    }
    searched_ = found + 1;
    return Begun{std::string(opening), std::string(rest)};
  }
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
  const std::vector<std::string_view> openings_;
  chat::ToolCallParser parser_;
  std::string text_;  // since the beginning, or the last call; the end of it
  std::size_t searched_ = 0;
  bool has_call_ = false;  // the parser has found one in what was pushed last
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
    if (num_tokens < num_read_) cut(num_tokens);
  }

 private:
  NextTokens behind(std::span<const TokenId> answer, std::size_t tokens_left) {
    if (answer.size() < num_read_) cut(answer.size());
    while (num_read_ < answer.size()) {
      tokens_->limit_work();  // of each token, so that a long answer can be read from its begin
      const TokenId token = answer[num_read_++];
      try {
        take(token, tokens_left + answer.size() - num_read_);
        keep_place();
      } catch (const ConstraintLimit&) {
        restart();
        throw;
      }
    }
    tokens_->limit_work();
    return states_.empty() ? NextTokens() : tokens_->next(states_.back(), mask_, tokens_left);
  }

  void restart() {
    num_read_ = 0;
    kept_.clear();
    leave_call();
    content_.emplace(markers_, begins_open_);
    search_.emplace(format_, tools_);
  }
  void leave_call() {
    states_.clear();
    call_.clear();
  }

  // Within a call tokens are taken back; a free text is read again from a place that was kept.
  void cut(std::size_t num_tokens) {
    const std::size_t dropped = num_read_ - num_tokens;
    if (dropped > call_.size()) {
      std::erase_if(kept_, [&](const Kept& each) { return each.num_read > num_tokens; });
      if (kept_.empty()) return restart();
      leave_call();
      num_read_ = kept_.back().num_read;
      content_.emplace(kept_.back().content);
      search_.emplace(kept_.back().search);
      return;
    }
    call_.resize(call_.size() - dropped);
    states_.resize(states_.size() - dropped);
    num_read_ = num_tokens;
  }

  // So that drafts that are not accepted cost little behind a long text.
  void keep_place() {
    if (!states_.empty() || !search_->may_copy()) return;
    if (!kept_.empty() && num_read_ < kept_.back().num_read + kTokensBetween) return;
    if (kept_.size() == kMostKept) kept_.erase(kept_.begin());
    kept_.push_back({num_read_, *content_, *search_});
  }

  // tokens_left: behind it.
  void take(TokenId token, std::size_t tokens_left) {
    if (!states_.empty()) {
      call_.push_back(token);
      states_.push_back(tokens_->after(states_.back(), token));
      const bool is_stuck = states_.back() == kStuck;
      if (!is_stuck && !tokens_->may_end(states_.back())) return;
      for (const TokenId each : call_) search_->push_call(text_of(each));
      if (!is_stuck) search_->restart();
      return leave_call();
    }
    search_->push(content_->push(text_of(token)).content);
    while (const auto begun = search_->next()) {
      StateId state = tokens_->after(tokens_->begin(), tokens_->marks().written(begun->opening));
      state = tokens_->after(state, tokens_->marks().written(begun->rest));
      if (state == kStuck || tokens_->tokens_to_end(state) > tokens_left) continue;
      if (tokens_->may_end(state)) return search_->restart();
      states_.push_back(state);
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
  std::vector<StateId> states_;  // within a call: where it began to be held, and after each token since; else none
  std::vector<TokenId> call_;    // those tokens
  std::optional<ContentFinder> content_;
  std::optional<CallSearch> search_;
  // Places in free text to which the reading may return, the last of them.
  struct Kept {
    std::size_t num_read;
    ContentFinder content;
    CallSearch search;
  };
  static constexpr std::size_t kTokensBetween = 32, kMostKept = 4;
  std::list<Kept> kept_;
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
