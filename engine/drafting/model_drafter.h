// Proposes with a smaller model, which keeps a sequence of its own for each of the target's.
//
// A sequence is opened with its first ask, and gets the new tokens with each. Of the same vocabulary (ModelDrafter) it
// draws with the request's seed and parameters, at the same positions: where both models expect the same, they draw the
// same token. Of another vocabulary it drafts by text (text_drafter.h).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/result.h"
#include "engine/drafting/speculation.h"
#include "engine/engine.h"

namespace troupe::engine {

struct DraftAsk {
  std::uint64_t request = 0;
  std::uint32_t first = 0;      // of tokens[0] among the known tokens; the drafter was told those before it
  std::vector<TokenId> tokens;  // the known ones from there on; at least one
  std::uint32_t num_draft = 0;  // tokens wanted, >= 1
  float p_min = 0;              // proposals end before a token of lower probability
  SamplingParams sampling{};    // with first = 0
};

struct DraftAnswer {
  std::uint64_t request = 0;
  bool is_lost = false;         // the drafter does not have it (any more): ask again with all tokens
  std::vector<TokenId> tokens;  // proposals; none: it is still behind, or they were not likely enough
};

struct DraftReply {
  std::vector<DraftAnswer> answers;  // in the order of the asks
  double seconds = 0;                // of all passes
  std::uint32_t num_passes = 0;
  double draft_seconds = 0;  // of those passes that computed no long rows, as of a prompt
  std::uint32_t num_draft_passes = 0;
};

// How `draft` may draft for `target`: error bad_model with the reason if it cannot. Of the same vocabulary any family
// may. Of another one it needs attention to the whole context and nothing else, and both need a tokenizer.
[[nodiscard]] Result<Drafting> compare_vocabularies(const LoadedModel& draft, const LoadedModel& target);

// Used by one compute thread at a time.
class Proposer {
 public:
  virtual ~Proposer() = default;
  // Each request at most once in `asks`. `reply` is overwritten.
  virtual void propose(const std::vector<DraftAsk>& asks, DraftReply& reply) = 0;
  virtual void close(std::uint64_t request) = 0;  // unknown ones are ignored
};

// For models that compare_vocabularies() takes (asserted). All must outlive it.
[[nodiscard]] std::unique_ptr<Proposer> make_proposer(const LoadedModel& draft, const LoadedModel& target, Team& team);

// At most the blocks of LoadedModel::arenas() are held, and with recurrent layers
// at most half of num_states() sequences, each with a copy of its state from before its draft: the least recently asked
// ones give up theirs.
class ModelDrafter final : public Proposer {
 public:
  static constexpr std::uint32_t kMaxRows = 512;  // of one sequence in one call; a longer prompt takes several
  static constexpr std::uint32_t kLongRow = 9;    // tokens: more than a draft that was accepted leaves to be computed

  // Both must outlive it.
  ModelDrafter(const LoadedModel& model, Team& team);

  void propose(const std::vector<DraftAsk>& asks, DraftReply& reply) override;
  void close(std::uint64_t request) override;

 private:
  struct Sequence {
    BlockTables blocks;  // by group; kNoBlock before a window
    std::uint64_t last_asked = 0;
    std::uint32_t num_told = 0;  // tokens; those after them are its own
    SamplingParams sampling;
    std::vector<float> state;  // after num_told tokens, once they are computed
  };
  [[nodiscard]] bool open(const DraftAsk& ask);
  void go_back(const DraftAsk& ask, std::uint32_t num_right);
  void leave_windows_behind(Sequence& sequence, std::uint32_t position);
  void keep_state(std::uint64_t request);
  [[nodiscard]] bool close_oldest();
  [[nodiscard]] bool update(const DraftAsk& ask);
  [[nodiscard]] bool add_row(const DraftAsk& ask, StepBatch& batch);
  [[nodiscard]] std::uint32_t most_rows() const;

  const LoadedModel& model_;
  Executor executor_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
  std::vector<std::vector<BlockId>> free_;  // by group
  std::uint64_t num_asked_ = 0;
  StepBatch batch_;
  StepResult result_;
};

}  // namespace troupe::engine
