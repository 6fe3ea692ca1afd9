// Splits a model's text into its reasoning and its answer, while it is being written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/sampling/reasoning_markers.h"

namespace troupe::engine {

// Reasoning is what stands between the markers at the beginning of the text, before which there is only white space;
// later markers are text like any other. ReasoningMarkers::lead is left out where the content begins with it. White
// space next to the markers belongs to neither part. What may become a marker or such white space is held back until it
// is decided. Not thread-safe.
class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning;
    std::string content;  // follows the reasoning
  };

  // begins_open: the text begins within reasoning; an opening marker that it repeats is dropped. Empty markers: nothing
  // is split.
  ReasoningSplitter(ReasoningMarkers markers, bool begins_open);

  [[nodiscard]] Parts push(std::string_view text);
  // What was held back at the end of the text.
  [[nodiscard]] Parts finish();
  bool is_reasoning() const { return state_ == State::opened || state_ == State::reasoning; }
  // Whether the content has begun: all that comes is content.
  bool is_content() const { return state_ == State::content; }

 private:
  // start: before an opening marker or the lead; opened: before the first character of the reasoning; closed: before
  // the first one of the content, or the lead.
  enum class State : std::uint8_t { start, opened, reasoning, closed, content };

  bool step(Parts& parts);
  bool step_start(Parts& parts);
  bool step_opened();
  bool step_reasoning(Parts& parts);
  bool step_closed();

  ReasoningMarkers markers_;
  State state_;
  std::string held_;
};

// Finds where the content of a text begins that is passed on whole: reasoning and markers stay in it. Not thread-safe.
class ContentFinder {
 public:
  struct Parts {
    std::string before;   // the content: reasoning and what stands around it
    std::string content;  // follows that
  };

  ContentFinder(ReasoningMarkers markers, bool begins_open) : splitter_(std::move(markers), begins_open) {}

  // What may be either is held back until it is decided.
  [[nodiscard]] Parts push(std::string_view text);
  // What was held back at the end of the text.
  [[nodiscard]] Parts finish();
  // Whether the content has begun: all that comes is content.
  bool is_content() const { return splitter_.is_content(); }

 private:
  ReasoningSplitter splitter_;
  std::string undecided_;
};

}  // namespace troupe::engine
