// How many proposed tokens of a sequence are worth verifying: its acceptance, and the sum over a step.
//
// Each proposal more costs a row of a step, and gives a token if it and all before it are accepted. In a step that is
// predicted to take T seconds and to give B tokens, the k-th proposal of a sequence whose proposals are accepted with
// probability a gives a^k tokens for the seconds of its row: it raises the tokens per second of the whole step if
// a^k / row > B / T. So longer drafts are verified while few sequences run, and none where the machine has no room.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace troupe::scheduler {

// The share of proposals that were right, of the last ones above all. Plain values, O(1).
class DraftAcceptance {
 public:
  // kept: the weight of what was seen before each draft. doubt: as many seen proposals weigh as much as the expected
  // rate.
  explicit DraftAcceptance(double kept = 0.9, double doubt = 2) : kept_(kept), doubt_(doubt) {}

  // A draft's tokens were compared with what the sequence got, up to the first that differed: `num_right` were equal,
  // and one was not if was_wrong.
  void observe(std::uint32_t num_right, bool was_wrong) {
    right_ = kept_ * right_ + num_right;
    seen_ = kept_ * seen_ + num_right + (was_wrong ? 1 : 0);
  }
  // 0 to 1; while little was seen close to `expected`.
  [[nodiscard]] double rate(double expected) const { return (right_ + doubt_ * expected) / (seen_ + doubt_); }
  [[nodiscard]] double seen() const { return seen_; }

 private:
  double kept_, doubt_;
  double right_ = 0, seen_ = 0;
};

// What rows of drafts take, learned from steps without chunks. Kernels multiply rows in groups: one row more may take a
// third of a step, or nothing, which the straight line of a CostModel does not say. Plain values, O(1).
class DraftCosts {
 public:
  // A step of rows that decode and rows of drafts took `seconds`. What is seen anew soon counts more than what was, so
  // that longer contexts and slower machines change both sides of a comparison.
  void observe(std::uint32_t num_decodes, std::uint32_t num_drafts, double seconds) {
    if (num_decodes > kMaxDecodes || num_drafts > kMaxDrafts) return;
    Seen& seen = seen_[num_decodes][num_drafts];
    seen.seconds += std::max(kNew, 1.0 / ++seen.count) * (seconds - seen.seconds);
  }
  // How much of the step with these drafts one more takes; nothing: it was not seen.
  [[nodiscard]] std::optional<double> one_more(std::uint32_t num_decodes, std::uint32_t num_drafts) const {
    if (num_decodes > kMaxDecodes || num_drafts >= kMaxDrafts) return std::nullopt;
    const Seen& before = seen_[num_decodes][num_drafts];
    const Seen& with = seen_[num_decodes][num_drafts + 1];
    if (before.count == 0 || with.count == 0) return std::nullopt;
    return std::max(0.0, with.seconds - before.seconds) / before.seconds;
  }

 private:
  static constexpr std::uint32_t kMaxDecodes = 24, kMaxDrafts = 16;
  static constexpr double kNew = 0.1;  // the part of the last step in the mean
  struct Seen {
    double seconds = 0, count = 0;
  };
  std::array<std::array<Seen, kMaxDrafts + 1>, kMaxDecodes + 1> seen_{};
};

// Decides row by row what is added to a step.
class DraftRoom {
 public:
  // Of the step without drafts. limit: what it may take with them.
  DraftRoom(double seconds, double num_tokens, double limit) : seconds_(seconds), tokens_(num_tokens), limit_(limit) {}

  // Whether a row that is expected to give `tokens` (0 to 1) for `seconds` more is worth it; then it is counted.
  bool add(double tokens, double seconds) {
    if (seconds_ + seconds > limit_ || tokens < kLeastTokens ||
        tokens * seconds_ < kMargin * std::max(seconds, 0.0) * tokens_)
      return false;
    seconds_ += seconds;
    tokens_ += tokens;
    return true;
  }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] double tokens() const { return tokens_; }

 private:
  static constexpr double kLeastTokens = 0.1;  // below, a row costs more beside the step than it gains
  static constexpr double kMargin = 1.15;      // predictions are some percent wrong

  double seconds_, tokens_;
  const double limit_;
};

}  // namespace troupe::scheduler
