// The markers that a model writes around its reasoning.
#pragma once

#include <string>
#include <vector>

#include "cache/ids.h"

namespace troupe::engine {

// Reasoning stands between `open` and `close` at the beginning of an answer, or before `close` where the prompt ends
// with `open`. tokenizers/reasoning_markers.h finds those of a model.
struct ReasoningMarkers {
  std::string open = "<think>";
  std::string close = "</think>";
  std::string lead{};  // what the model writes before its answer proper; it belongs to neither part. Empty: nothing
  // The control tokens that the three consist of, ascending. Control tokens have no text in an answer; these do, so
  // that the markers can be found in it.
  std::vector<TokenId> control_ids{};

  bool operator==(const ReasoningMarkers&) const = default;
};

}  // namespace troupe::engine
