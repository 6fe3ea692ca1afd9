// Interface of profilers, which measure where the time of a step goes: used by `--profile` of bench and serve, and open
// to other implementations.
//
//   class Trace final : public engine::Profiler { void on_operation(const engine::OperationSpan& span) override; };
//   Trace trace;
//   team.set_profiler(&trace);  // every step that this team computes from now on
//
// engine/compute/step_profile.h adds up times; docs/examples/step_trace.cpp writes a timeline.
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

// The operations of a step, in order. A family uses some of them.
enum class Operation : std::uint8_t {
  prepare,      // lists the rows' positions, the addresses of blocks, and work items
  embed,        // looks up the tokens' embeddings
  attn_norm,    // adds the pending projection, norms, rounds for the next product
  attn_qkv,     // three products
  rope_store,   // rotates q and k, writes k and v into the blocks
  attention,    // softmax(q k) v over the blocks
  attn_round,   // rounds attention's result for the next product
  attn_output,  // product
  ffn_norm,     // as attn_norm
  ffn_gate_up,  // two products, and their activation; of an encoder the products
  ffn_round,    // as attn_round; absent if the kernel of ffn_gate_up also rounds; of an encoder with the activation
  ffn_down,     // product
  mixer_in,     // products before a recurrence, with their norms and roundings
  scan,         // the recurrence, token by token
  mixer_out,    // product
  channel_mix,  // RWKV's feed-forward part, with its norm
  output_norm,
  head,    // rounding, and the product with the vocabulary
  sample,  // draws tokens and applies them
};
inline constexpr std::array<std::string_view, 19> kOperationNames{
    "prepare",     "embed",       "attn_norm",   "attn_qkv",  "rope_store", "attention", "attn_round",
    "attn_output", "ffn_norm",    "ffn_gate_up", "ffn_round", "ffn_down",   "mixer_in",  "scan",
    "mixer_out",   "channel_mix", "output_norm", "head",      "sample"};
inline constexpr std::size_t kNumOperations = kOperationNames.size();

using ProfileClock = std::chrono::steady_clock;

struct StepSpan {  // of the executor; or an encoder's pass over some texts, its sequences
  std::uint64_t step = 0;
  std::uint32_t num_rows = 0;       // tokens computed
  std::uint32_t num_sequences = 0;  // equal to num_rows: every sequence decodes
  ProfileClock::time_point begin, end;
};

inline constexpr std::uint32_t kNoLayer = 0xffffffffu;

struct OperationSpan {
  Operation operation = Operation::prepare;
  std::uint32_t layer = kNoLayer;
  ProfileClock::time_point begin, end;
};

// The work of one thread in a join. A thread that arrived when no chunk was left has num_chunks 0 and no times.
struct ThreadSpan {
  ProfileClock::time_point begin, end;  // begin of its first chunk, end of its last
  std::uint32_t num_chunks = 0;
};

// A parallel region of more than one chunk and thread, from before it was published until all its chunks were done.
struct JoinSpan {
  const OperationSpan* operation = nullptr;  // the operation it belongs to; its `end` is not set yet
  ProfileClock::time_point begin, end;
  std::span<const ThreadSpan> threads;  // by thread number; [0] is the caller
};

// One operation's times, over all steps of one phase.
struct OperationTime {
  std::string name;
  std::uint64_t calls = 0;
  double seconds = 0;  // of the thread that leads the step
  // The joins in it. Each thread's time between a join's begin and end is split into busy, wake_up, wait and absent;
  // the sum of the four is join_seconds times the number of threads.
  std::uint64_t joins = 0;
  double join_seconds = 0;
  double busy_seconds = 0;            // from a thread's first chunk to its last
  double wake_up_seconds = 0;         // before that, of threads that got a chunk
  double wait_seconds = 0;            // after that, until the last thread was done: imbalance
  double absent_seconds = 0;          // of threads that got no chunk: late, or there were too few chunks
  std::vector<double> layer_seconds;  // empty if the operation belongs to no layer
};

struct PhaseTime {
  std::string name;  // "decode": steps of one token for each sequence; "prefill": all others
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;  // tokens computed
  double seconds = 0;
  // Only some of the steps are measured if reading clocks would take too much of their time.
  std::uint64_t measured_steps = 0;
  double measured_seconds = 0;
  std::vector<OperationTime> operations;  // of the measured steps, those that occurred
};

struct ProfileSnapshot {
  std::uint32_t num_threads = 0;
  std::vector<PhaseTime> phases;  // those that occurred
};

// Called by the thread that leads the step, during the step: must not block, throw or allocate. Spans are owned by the
// engine and valid during the call only. The bits of a step do not depend on the profiler.
class Profiler {
 public:
  virtual ~Profiler() = default;
  // Returns whether to report the operations and joins of this step. `step.end` is not set yet.
  virtual bool on_step_begin(const StepSpan& /*step*/) { return true; }
  virtual void on_operation(const OperationSpan& /*operation*/) {}
  virtual void on_join(const JoinSpan& /*join*/) {}
  virtual void on_step_end(const StepSpan& /*step*/) {}  // of every step that did not throw
  // What `troupe status --profile` shows; nothing if this profiler keeps no sums. Any thread, at any time.
  virtual std::optional<ProfileSnapshot> snapshot() const { return std::nullopt; }
};

}  // namespace troupe::engine
