// Who wants to know where the time of a step goes: the hook behind `--profile` of bench and serve, open to anybody's
// own.
//
//   class Trace final : public engine::Profiler { void on_operation(const engine::OperationSpan& span) override; };
//   Trace trace;
//   team.set_profiler(&trace);  // every step that this team computes from now on
//
// engine/compute/step_profile.h sums up; docs/examples/step_trace.cpp writes a timeline.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::engine {

// What a step consists of, in its order. A family uses those that it has.
enum class Operation : std::uint8_t {
  prepare,      // places the rows: positions, addresses of blocks, work items
  embed,        // looks up the tokens' embeddings
  attn_norm,    // adds the projection before, norms, rounds for the next product
  attn_qkv,     // three products
  rope_store,   // rotates q and k, writes k and v into the blocks
  attention,    // softmax(q k) v over the blocks
  attn_round,   // rounds its result for the next product
  attn_output,  // product
  ffn_norm,     // as attn_norm
  ffn_gate_up,  // two products, and their activation
  ffn_round,    // as attn_round; not where one kernel does it with the two products before
  ffn_down,     // product
  mixer_in,     // products in front of a recurrence, with their norms and roundings
  scan,         // the recurrence, token by token
  mixer_out,    // product
  channel_mix,  // RWKV's feed-forward part, with its norm
  output_norm,
  head,    // rounding, and the product with the vocabulary
  sample,  // draws, and what they mean
};
inline constexpr std::array<std::string_view, 19> kOperationNames{
    "prepare",     "embed",       "attn_norm",   "attn_qkv",  "rope_store", "attention", "attn_round",
    "attn_output", "ffn_norm",    "ffn_gate_up", "ffn_round", "ffn_down",   "mixer_in",  "scan",
    "mixer_out",   "channel_mix", "output_norm", "head",      "sample"};
inline constexpr std::size_t kNumOperations = kOperationNames.size();

using ProfileClock = std::chrono::steady_clock;

struct StepSpan {
  std::uint64_t step = 0;
  std::uint32_t num_rows = 0;       // tokens computed
  std::uint32_t num_sequences = 0;  // equal: every sequence decodes
  ProfileClock::time_point begin, end;
};

inline constexpr std::uint32_t kNoLayer = 0xffffffffu;

struct OperationSpan {
  Operation operation = Operation::prepare;
  std::uint32_t layer = kNoLayer;
  ProfileClock::time_point begin, end;
};

// What one thread did in a join. A thread that came when no chunk was left has none, and no times.
struct ThreadSpan {
  ProfileClock::time_point begin, end;  // of its first chunk, of its last
  std::uint32_t num_chunks = 0;
};

// A parallel region of more than one chunk and thread, from before it was published until all its chunks were done.
struct JoinSpan {
  const OperationSpan* operation = nullptr;  // whose part it is; its end is not known yet
  ProfileClock::time_point begin, end;
  std::span<const ThreadSpan> threads;  // by number; the caller is the first
};

// One row per operation, of all steps of one kind.
struct OperationTime {
  std::string name;
  std::uint64_t calls = 0;
  double seconds = 0;  // of the thread that leads the step
  // Of the joins in it. Each thread's time between a join's begin and end is one of four, so that together they are
  // join_seconds times the number of threads.
  std::uint64_t joins = 0;
  double join_seconds = 0;
  double busy_seconds = 0;            // from a thread's first chunk to its last
  double wake_up_seconds = 0;         // before it, of threads that got one
  double wait_seconds = 0;            // after it, until the last thread was done: imbalance
  double absent_seconds = 0;          // of threads that got none: late, or there were too few chunks
  std::vector<double> layer_seconds;  // empty where the operation belongs to no layer
};

struct PhaseTime {
  std::string name;  // "decode": steps of one token for each sequence; "prefill": all others
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;  // tokens computed
  double seconds = 0;
  // Of some of the steps, where they are short beside the looking at clocks.
  std::uint64_t measured_steps = 0;
  double measured_seconds = 0;
  std::vector<OperationTime> operations;  // of the measured steps, those that occurred
};

struct ProfileSnapshot {
  std::uint32_t num_threads = 0;
  std::vector<PhaseTime> phases;  // those that occurred
};

// Called by the thread that leads the step, within it: must not block, throw or allocate. Spans are the engine's and
// end with the call. The bits of a step do not depend on whether anybody listens.
class Profiler {
 public:
  virtual ~Profiler() = default;
  // Whether the operations and joins of this step, whose end is not known yet, are to be reported.
  virtual bool on_step_begin(const StepSpan& /*step*/) { return true; }
  virtual void on_operation(const OperationSpan& /*operation*/) {}
  virtual void on_join(const JoinSpan& /*join*/) {}
  virtual void on_step_end(const StepSpan& /*step*/) {}  // of every step that did not throw
  // What `troupe status --profile` shows; nothing if this profiler does not sum up. Any thread, at any time.
  virtual std::optional<ProfileSnapshot> snapshot() const { return std::nullopt; }
};

}  // namespace troupe::engine
