// One request inside a Batch. Included by the source files of Batch only.
#pragma once

#include <memory>
#include <vector>

#include "actors/batching/batch.h"
#include "engine/drafting/drafter.h"

namespace troupe::actors {

// What a request has while it has a sequence: from its first Acquire until its blocks are released.
struct LiveSequence {
  SequenceId sequence = 0;      // 0: there is none
  std::uint32_t number = 0;     // of its last message to the keeper
  std::uint32_t seen = 0;       // of the last answer applied
  std::uint64_t last_step = 0;  // the last step planned with it
  bool was_running = false;     // was in a step
  bool parked = false;
  std::uint64_t asked_at = 0;  // Batch::num_returns_ when its Acquire was sent
  bool at_ceiling = false;     // its Acquire was answered Short because of its tenant's ceiling
  bool displaced = false;      // a Committed replaced a block, and no message has sent our `seen` to the keeper since
  // By group; a fork, until its first row is computed: the blocks that its last blocks are copies of. Else empty.
  std::vector<BlockId> copy_from;
  BlockTables tables;               // kNoBlock before a group's window: the keeper took these blocks back
  BlockTables new_blocks;           // the ends of `tables`, not sent to the worker yet
  std::uint32_t num_committed = 0;  // blocks committed or cached
  // With recurrent state.
  SnapshotId restore = kNoSnapshot;  // the snapshot that it begins from, until its first step has ended
  std::vector<SnapshotId> spares;    // snapshots that its steps may write
  SnapshotId saved = kNoSnapshot;    // the snapshot that its last step writes, until it is committed
  bool opened = false;               // the worker has it, or gets it with the next step
  // Positions before this are copied from the image of its session's contents; 0: none (any more).
  std::uint32_t fill_until = 0;
};

struct Batch::Live : LiveSequence {
  Live(AssignmentPtr assignment, std::shared_ptr<const engine::Tokenizer> tokenizer, std::vector<TokenId> shown)
      : task(std::move(assignment)), answer(std::move(tokenizer), task->body->stop_strings, std::move(shown)) {}

  RequestId request() const { return task->request; }
  std::uint64_t generation() const { return task->generation; }
  std::uint32_t prompt_tokens() const { return static_cast<std::uint32_t>(task->prompt->size()); }
  // What is promised to a request with a deadline: its last token, or without max_tokens its first.
  bool wants_last() const { return task->body->sampling.max_tokens != scheduler::kUnlimitedTokens; }
  std::uint32_t known_tokens() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t num_blocks(const std::vector<cache::Group>& groups) const;  // that it holds
  void reset_sequence() { static_cast<LiveSequence&>(*this) = {}; }

  AssignmentPtr task;
  Phase phase = Phase::no_credit;
  const bool wants_logprobs = task->body->sampling.num_logprobs >= 0;
  bool wants_computing = false;                  // counted in the shares of its tenant
  std::int32_t priority = task->body->priority;  // or a more urgent one that the FairQueue gave it
  cache::Rank rank;
  cache::ScopeList scopes;
  std::uint32_t max_known = 0;  // it ends at this many tokens, prompt included, at the latest
  std::vector<TokenId> tokens;  // all known: prompt and emitted
  AnswerText answer;
  std::uint64_t emitted = 0;            // tokens
  std::uint64_t granted = 0;            // credit
  std::optional<double> due_seconds{};  // Demand::due_seconds
  bool promised = false;                // that it meets its deadline
  bool promise_settled = false;         // kept or missed
  std::uint32_t alone_until = 0;  // computed alone up to this many tokens, because a step with it failed; 0: none did
  std::uint32_t cached_tokens = 0;
  engine::Speculation speculation{};         // its request's choice over the server's
  std::unique_ptr<engine::Drafter> drafter;  // from its first draft on
  std::uint32_t num_told = 0;                // tokens that the draft worker knows
  std::size_t proposed_at = 0;               // tokens.size() for which the draft worker made `proposal`; 0: it did not
  std::vector<TokenId> proposal;             // what may follow `tokens`; while a step runs, what its draft is a part of
  bool keeps_to_proposal = false;            // so far the answer is what its request proposes, of which there is more
  // Set: its stream has ended, and it is there until its blocks are copied for its session's file.
  std::shared_ptr<SessionSaving> saving;
  std::uint32_t num_copied = 0;  // tokens
};

}  // namespace troupe::actors
