// One request in a ServingLoop.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cache/lease_book.h"
#include "scheduler/shares/admission.h"

namespace troupe::scheduler {

enum class ServingPhase : std::uint8_t {
  undecided,         // the driver has not decided whether to take it
  queued,            // in the FairQueue
  asking,            // has a sequence id, and its Acquire is unanswered; at most one request at a time
  following,         // waits for a leader that computes the same prefix
  short_of_blocks,   // its Acquire was answered Short and will be sent again. If its tenant's ceiling was the reason,
                     // other tenants' requests do not wait for it
  running,           // in the planner, and open (or about to be opened) in the worker; maybe parked, with its blocks
  no_credit,         // its driver holds it back (no credit); it has no sequence and no blocks
  waiting_for_fork,  // waits until the choice that it is a fork of has computed their prompt
  reading            // waits until what was saved of it is in memory, without sequence and blocks
};
inline constexpr std::size_t kNumServingPhases = 9;

// What a request has while it has a sequence: from its first Acquire until its blocks are released.
struct ServingSequence {
  SequenceId sequence = 0;      // 0: there is none
  std::uint32_t number = 0;     // of its last message to the keeper
  std::uint32_t seen = 0;       // of the last answer applied
  std::uint64_t last_step = 0;  // the last step planned with it
  bool was_running = false;     // was in a step
  bool parked = false;
  std::uint64_t asked_at = 0;  // ServingLoop::num_returns_ when its Acquire was sent
  bool at_ceiling = false;     // its Acquire was answered Short because of its tenant's ceiling
  bool displaced = false;      // a Committed replaced a block, and no message has sent our `seen` to the keeper since
  // By group; a fork, until its first row is computed: the blocks that its last blocks are copies of. Else empty.
  std::vector<BlockId> copy_from;
  BlockTables tables;               // kNoBlock before a group's window: the keeper took these blocks back
  BlockTables new_blocks;           // the ends of `tables`, not sent to the worker yet
  std::uint32_t num_committed = 0;  // blocks committed or cached
  // With recurrent state.
  std::vector<SnapshotId> spares;  // snapshots that its steps may write
  SnapshotId saved = kNoSnapshot;  // the snapshot that its last step writes, until it is committed
  bool opened = false;             // the worker has it, or gets it with the next step
  std::uint32_t fill_until = 0;    // positions before this are copied, not computed; 0: none (any more)
  // After save(): tokens whose K and V are copied, and how many of these were planned; 0: none.
  std::uint32_t save_until = 0;
  std::uint32_t num_saved = 0;
};

// Filled by the driver before ServingLoop::add(), up to `tokens`. Of these the driver may change `asked.due_seconds`
// before the request is queued, alone_until, answer_tokens, wants_prompt_logits and contents between steps, and appends
// tokens before row_ended(). The rest is the loop's, to be read only.
struct ServingRequest : ServingSequence {
  ServingRequest() = default;
  virtual ~ServingRequest() = default;
  ServingRequest(const ServingRequest&) = delete;
  ServingRequest& operator=(const ServingRequest&) = delete;

  RequestNumber request() const { return asked.arrival; }
  TenantId tenant() const { return asked.tenant; }
  std::uint32_t prompt_tokens() const { return asked.prompt_tokens; }
  std::uint32_t known_tokens() const { return static_cast<std::uint32_t>(tokens.size()); }
  // What it asks for, with its answer so far as generated.
  Demand demand() const {
    Demand now = asked;
    now.generated = known_tokens() - asked.prompt_tokens;
    return now;
  }
  std::uint32_t num_blocks(const std::vector<cache::Group>& groups) const;  // that it holds
  bool is_saving() const { return save_until > 0; }

  Demand asked;  // `arrival` is the request's number; the queue may make `priority` more urgent
  double weight = 1;
  cache::ScopeList scopes;
  cache::Tokens prompt;
  RequestNumber fork_of = 0;        // the first choice to the same prompt, of the same scopes; 0: it is none
  std::uint32_t max_known = 0;      // it ends at this many tokens, prompt included, at the latest (check_fit())
  std::uint32_t alone_until = 0;    // computed alone up to this many tokens, because a step with it failed; 0: none did
  std::uint32_t answer_tokens = 0;  // SequenceStart::answer_tokens
  bool wants_prompt_logits = false;  // of every token of the prompt, so that all are computed, cached or not
  std::uint32_t contents = 0;        // K and V of so many tokens are in memory, to be copied rather than computed
  std::vector<TokenId> tokens;       // all known: the prompt, then the answer, to which the driver appends

  ServingPhase phase = ServingPhase::no_credit;
  bool wants_computing = false;  // counted in the shares of its tenant
  cache::Rank rank;
  std::uint32_t cached_tokens = 0;  // of the prompt, not computed when it was last admitted
};

}  // namespace troupe::scheduler
