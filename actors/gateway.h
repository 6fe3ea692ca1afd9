// The border between the wire and the actors: free of CAF, Asio and protobuf.
//
// Every call may come from any thread and returns at once. Answers arrive through sinks and callbacks, which must not
// block: on threads of the server, and where an answer is known at once (a model that is not there, nothing to
// drain) on the caller's own before the call returns. No lock is held then, so they may call back into the gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/embedding.h"
#include "actors/latency.h"
#include "actors/request.h"
#include "config/result.h"
#include "engine/encoder.h"
#include "engine/engine.h"
#include "engine/profiler.h"
#include "engine/text_vectors.h"

namespace troupe::actors {

// Where a request's tokens go. Implemented by ipc; callable from any thread, never blocks. The calls for one choice
// come one at a time, those for several may come at once.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void tokens(TokenRun run) = 0;
  virtual void end(End end) = 0;  // exactly once per choice, and nothing of that choice after it
};

// Where a request is on its way.
enum class RequestState : std::uint8_t {
  received,  // not yet looked at, or waiting for the model to load
  encoding,  // its text is being turned into ids
  queued,    // waits for a place among the running (also after a preemption)
  running,   // takes part in steps
  parked,    // out of client credit
  ended,
};
inline constexpr std::size_t kNumRequestStates = 6;

// One live request, without anything of what it says.
struct RequestView {
  RequestId request = 0;
  std::uint32_t uid = 0;
  RequestState state = RequestState::received;
  std::int32_t priority = 0;
  std::uint32_t prompt_tokens = 0;     // 0: not known yet
  std::uint32_t cached_tokens = 0;     // of the prompt
  std::uint32_t generated_tokens = 0;  // 0 while running: its prompt is being computed
  std::uint32_t preemptions = 0;
  double age_seconds = 0;  // since its arrival
};

enum class Readiness { loading, ready, draining, failed };

// Resident memory of one kind (actors/memory_ledger.h lists them).
struct MemoryUse {
  std::string kind;
  std::uint64_t bytes = 0;
  // Exact for what is never given back before the end (weights, KV blocks, step buffers); for the others the most
  // that any question for the status has seen.
  std::uint64_t peak_bytes = 0;
};

// How the server does: everything `troupe status` prints. Counters count from the start of the server.
struct StatusSnapshot {
  Readiness readiness = Readiness::loading;
  double load_fraction = 0;
  std::string model;
  std::string numerics_id;
  std::string kernels;
  double uptime_seconds = 0;
  std::uint64_t requests_received = 0;
  std::vector<std::pair<std::string, std::uint64_t>> requests_ended;  // by outcome name, all names
  std::uint64_t requests_waiting = 0;                                 // received, encoding or queued
  std::uint64_t requests_running = 0;
  std::uint64_t requests_parked = 0;  // out of credit
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of those, served from the prefix cache
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t steps = 0;
  double step_seconds = 0;  // sum over all steps
  // Health is progress: while work waits, the time since a step ended, or of requests for vectors a pass.
  double last_step_age_seconds = 0;
  bool stalled = false;  // that is longer than GatewayOptions::progress_timeout
  std::uint32_t blocks_total = 0;
  std::uint32_t blocks_free = 0;
  std::uint32_t blocks_cached = 0;           // in the prefix tree
  std::uint32_t blocks_referenced = 0;       // held by running sequences
  std::uint64_t prefix_blocks_computed = 0;  // blocks published to the tree
  std::uint64_t evictions = 0;
  // Of models whose layers see a window only: the blocks of those layers.
  std::uint32_t window_blocks_total = 0;
  std::uint32_t window_blocks_free = 0;
  std::uint32_t window_blocks_cached = 0;
  std::uint32_t window_blocks_referenced = 0;
  std::uint64_t window_block_evictions = 0;
  // Of models with recurrent state.
  std::uint32_t snapshots_total = 0;
  std::uint32_t snapshots_cached = 0;  // attached to a prefix
  std::uint64_t snapshot_hits = 0;     // sequences that went on from one
  std::uint64_t snapshot_evictions = 0;
  std::uint64_t worker_restarts = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint32_t num_threads = 0;
  Latencies latencies;
  std::vector<MemoryUse> memory;  // what the resident memory is for
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::vector<RequestView> requests;               // all live ones, oldest first
  std::optional<engine::ProfileSnapshot> profile;  // where the time of the steps went, if the profiler sums up
};

// The answer to a text, or why there is none: an End of kind refused or failed, or cancelled.
using Tokenized = std::variant<std::vector<TokenId>, End>;
using OnTokenized = std::function<void(Tokenized)>;
using Detokenized = std::variant<std::string, End>;
using OnDetokenized = std::function<void(Detokenized)>;

struct ModelDescription {
  std::string name;
  engine::ModelInfo info;
  std::string numerics_id;
  std::uint64_t kv_bytes_per_token = 0;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_ids;  // tokens that end an answer (EOS, EOT, EOM), ascending
  std::uint32_t max_context = 0;
};

struct GatewayOptions {
  std::string model_path;
  std::string model_alias;              // what clients call it; empty: general.name or the file's stem
  engine::LoadOptions load;             // `team` and `progress` are filled in here
  std::uint32_t num_threads = 0;        // of the compute team; 0: engine::default_num_threads()
  std::uint32_t max_step_tokens = 512;  // tokens of one step, all sequences together
  std::uint32_t max_sequences = 64;     // running at once
  std::uint32_t max_queued_requests = 1024;
  std::uint32_t max_parked_requests = 1024;  // out of credit; at that many no new ones are taken
  std::uint64_t max_queued_tokens = 1u << 22;
  std::uint32_t max_queued_texts = 64;              // texts that wait for a text thread or are with one
  std::uint64_t max_queued_text_bytes = 64u << 20;  // that these take together
  // That texts, ids and vectors of all requests for vectors take together; one alone is always taken.
  std::uint64_t max_embed_bytes = 64u << 20;
  std::uint32_t max_requests_per_uid = 512;
  std::uint32_t tokenizer_threads = 2;  // for large texts; one more is there for small ones (text_threads.h)
  std::chrono::milliseconds drain_timeout{30000};
  // Work that waits while no step ends for longer than this: the server stands still.
  std::chrono::milliseconds progress_timeout{60000};
  // For measuring: called with the result of every step before its tokens go on. On a thread of the server; must not
  // block. May be empty.
  std::function<void(const engine::StepResult&)> on_step;
  // Hears of the operations of every step (engine/profiler.h). May be null.
  std::shared_ptr<engine::Profiler> profiler;
};

// The actor system and everything in it. Destroying it stops everything and joins all threads; every
// stream gets its end first.
class Gateway {
 public:
  // Starts the actors and begins to load the model in the background; what can be checked at once (the
  // model file opens, the variant exists) is checked here.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options);
  virtual ~Gateway() = default;

  // Takes a request; its sink hears everything else. The id is for cancel and credit. A request for n answers has n ids
  // from this one on, one for each choice, in order.
  virtual RequestId submit(Request request, std::shared_ptr<StreamSink> sink) = 0;
  // Ends the choice with Outcome::cancelled unless it has ended already; until the prompt is known as ids, the first
  // one takes the others with it. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // Lets `tokens` more tokens of the choice be sent. Unknown ids are ignored.
  virtual void credit(RequestId id, std::uint64_t tokens) = 0;

  virtual Readiness readiness() const = 0;
  virtual double load_fraction() const = 0;
  // False: the server is of no use any more. Work has waited for longer than progress_timeout while no step ended (for
  // vectors: no pass), or the model failed. Idle or loading, it is true. For watchdogs: asks no actor, so none of them
  // can keep it waiting.
  virtual bool is_making_progress() const = 0;
  // Fresh counters; asked of the actors, answered within milliseconds even during a step.
  virtual void status(std::function<void(StatusSnapshot)> done) = 0;
  // Null while loading, and of a server with an encoder.
  virtual std::shared_ptr<const engine::LoadedModel> model() const = 0;
  // Null while loading, and of a server whose model continues texts.
  virtual std::shared_ptr<const engine::Encoder> encoder() const { return nullptr; }
  // What Embed asks: the encoder, or the model's hidden states. Null while loading.
  virtual std::shared_ptr<const engine::TextVectors> vectors() const { return nullptr; }
  virtual std::vector<ModelDescription> models() const = 0;

  // Makes vectors of texts, in turns with all others who want some. `done` is called exactly once.
  virtual CancelFlag embed(EmbedRequest request, OnEmbedded done) = 0;

  // Encodes or decodes on the text threads, in turns with everybody else's texts. `done` is called exactly once.
  virtual CancelFlag tokenize(scheduler::Tenant tenant, std::string text, engine::EncodeOptions options,
                              OnTokenized done) = 0;
  virtual CancelFlag detokenize(scheduler::Tenant tenant, std::vector<TokenId> ids, OnDetokenized done) = 0;

  // Refuses new requests (Outcome::draining); `done` is called when the last stream has ended, or at
  // drain_timeout after ending the rest as cancelled.
  virtual void drain(std::function<void()> done) = 0;
  // Called once loading ended: an Ok, or why the model cannot be served.
  virtual void on_loaded(std::function<void(Status)> done) = 0;
};

}  // namespace troupe::actors
