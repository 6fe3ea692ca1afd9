// Every message that our actors exchange, and the actors' addresses. All messages stay inside the process.
//
// Plain structs; large contents are behind a shared pointer. Files that include this one do not repeat the standard
// headers below. The comment above an actor's class lists the messages it receives.
#pragma once

#include <array>
#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/batching/step_work.h"
#include "actors/requests/failure.h"
#include "actors/requests/status_snapshot.h"
#include "actors/serving/cache_question.h"
#include "actors/serving/open_questions.h"
#include "actors/serving/served_model.h"
#include "actors/serving/stream_table.h"

namespace troupe::actors {

class StatusQuery;

// The actors that a supervisor starts, in this order, and restarts. One actor each; of the last one, several.
enum class Role : std::uint8_t { telemetry, intake, loader, keeper, worker, drafter, batcher, embedder, tokenizer };

struct RoleInfo {
  Role role;
  std::string_view name;   // in TROUPE_TEST_KILL
  std::string_view title;  // in the log
};
// By role.
inline constexpr std::array kRoles{
    RoleInfo{Role::telemetry, "telemetry", "telemetry"}, RoleInfo{Role::intake, "intake", "intake"},
    RoleInfo{Role::loader, "loader", "loader"},          RoleInfo{Role::keeper, "keeper", "cache keeper"},
    RoleInfo{Role::worker, "worker", "target worker"},   RoleInfo{Role::drafter, "drafter", "draft worker"},
    RoleInfo{Role::batcher, "batcher", "batcher"},       RoleInfo{Role::embedder, "embedder", "embed worker"},
    RoleInfo{Role::tokenizer, "tokenizer", "tokenizer"}};
static_assert([] {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    if (kRoles[i].role != static_cast<Role>(i)) return false;
  return kRoles.back().role == Role::tokenizer;
}());
inline constexpr std::size_t kNumRoles = kRoles.size() - 1;  // those of one actor
[[nodiscard]] constexpr const RoleInfo& info(Role role) { return kRoles[static_cast<std::size_t>(role)]; }

// The actor that does such work.
[[nodiscard]] constexpr Role worker_role(WorkKind kind) {
  return kind == WorkKind::embed ? Role::embedder : Role::batcher;
}

// The actors that the intake sends to, and the model. Sent again whenever one of them changes.
struct Wiring {
  std::shared_ptr<const ServedModel> model;  // null while loading
  std::vector<caf::actor> tokenizers;
  caf::actor batcher, embedder;  // null while there is none

  const caf::actor& worker_for(WorkKind kind) const { return kind == WorkKind::embed ? embedder : batcher; }
};

namespace msg {

// Requests.
struct Submit {
  RequestId request;
};
struct Credit {
  RequestId request;
  std::uint64_t granted;  // since the beginning
};
struct Deadline {};  // a timer: the earliest deadline may have passed
struct Forget {      // the stream has ended: drop the request
  RequestId request;
  std::optional<TimePoint> cancelled{};  // when the cancel arrived, if it was cancelled
};
struct ForgetAll {};
struct Encode {
  RequestId request;
  std::shared_ptr<const Request> body;
};
struct Encoded {
  RequestId request;
  std::shared_ptr<EmbedIds> ids;  // of each of its texts: a prompt is one
};
struct NotRendered {  // the chat template refused its conversation, or the form of its answer cannot be had
  RequestId request;
  std::string field;
  std::string why;
};
struct NotEncoded {  // its text or conversation was dropped
  RequestId request;
  End how;
};
struct EncodeFailed {
  RequestId request;
  Failure why;
};
struct Enqueue {
  AssignmentPtr task;
};
struct SessionLoaded {
  RequestId request;
  std::shared_ptr<SessionTurn::Loaded> tokens;
};
struct SessionRead {  // or it could not be
  RequestId request;
};
struct FindCached {
  std::uint64_t number;  // in UnitQuestions::cache
};

// Steps and leases.
struct Lease {
  std::shared_ptr<const std::vector<scheduler::LeaseMessage>> messages;
  std::vector<TimePoint> cancelled{};  // of the requests whose blocks these messages free
};
struct Leased {
  std::shared_ptr<const LeaseReply> reply;
};
struct RunStep {
  std::uint64_t epoch;
  std::shared_ptr<StepWork> work;
};
struct StepResult {
  std::shared_ptr<const engine::StepResult> result;
};
struct StepFailed {
  StepFailure failure;
};
struct Propose {
  std::shared_ptr<const DraftWork> work;
};
struct Proposed {
  std::uint64_t number;  // of the work
  std::shared_ptr<const engine::DraftReply> reply;
};
struct DrafterDied {};  // what it was asked may never be answered
struct PassEnded {      // a pass over texts of an Embed
  bool complete;        // they are read
};
struct PassFailed {
  Failure why;
};
struct TurnCame {};  // the pass that waited may go
struct BeginEpoch {
  std::uint64_t epoch;
};
struct Quiesce {  // run no more steps of this epoch or an older one
  std::uint64_t epoch;
};
struct Quiesced {
  std::uint64_t epoch;
};

// The server.
struct LoadEnded {};
struct BeginLoad {};    // of a model whose load was to wait
struct ModelLoaded {};  // loading has ended; ModelState has the model or the error
struct Wire {
  std::shared_ptr<const Wiring> wiring;
};
struct WakeAt {  // a timer: tell me then
  TimePoint when{};
};
struct Restart {};
struct Drain {
  std::chrono::milliseconds timeout;
};
struct DrainTimeout {};
struct Unload {  // as Drain, of one model
  std::chrono::milliseconds timeout;
};
struct UnloadTimeout {};
struct TakeOut {                   // what the model computes is not to be trusted; ModelState has the error
  std::shared_ptr<const End> how;  // of its streams
};
struct Snapshot {
  std::uint64_t number;  // in UnitQuestions::status
  caf::actor batcher;    // null: there is none
};
// Goes from telemetry through the batcher and the keeper back to telemetry. When it is back, both have handled all
// messages sent before it, so the counters include every event that the client already knows of.
struct Fence {
  caf::actor telemetry;
  std::uint64_t number;
};
struct Fenced {
  std::uint64_t number;
};
struct Crash {  // for tests: the actor in this role throws
  Role role;
};

inline constexpr auto throw_for_test = [](const Crash&) { throw std::runtime_error("a test asked for it"); };

template <class T, class... Types>
concept OneOf = (std::is_same_v<T, Types> || ...);
template <class T>
concept Message = OneOf<T, Submit, Credit, Deadline, Forget, ForgetAll, Encode, Encoded, NotRendered, NotEncoded,
                        EncodeFailed, Enqueue, SessionLoaded, SessionRead, FindCached, Lease, Leased, RunStep,
                        StepResult, StepFailed, Propose, Proposed, DrafterDied, PassEnded, PassFailed, TurnCame,
                        BeginEpoch, Quiesce, Quiesced, BeginLoad, LoadEnded, ModelLoaded, Wire, WakeAt, Restart, Drain,
                        DrainTimeout, Unload, UnloadTimeout, TakeOut, Snapshot, Fence, Fenced, Crash>;

}  // namespace msg

// The open questions to the actors of a unit. Thread-safe.
//
// Asked: the question is added, then its number sent to the actor's address; without an address the asker answers it.
// The supervisor takes the address of a dead actor away before it answers all of the actor's questions: so none is lost
// that was sent to it.
struct UnitQuestions {
  OpenQuestions<std::shared_ptr<StatusQuery>> status;   // to telemetry
  OpenQuestions<std::shared_ptr<CacheQuestion>> cache;  // to the cache keeper

  // Those to an actor that has died, or that does not know.
  void answer_status(std::uint64_t number);
  void answer_all_status();
  void answer_all_cache() {
    for (const auto& question : cache.take_all()) question->answer_unknown();
  }
};

// The addresses of a unit's actors, for senders outside of the unit. Thread-safe.
//
// The supervisor sets an address before it tells the intake of a new actor, and the intake then reads the stream table:
// so a message that still goes to a dead actor, or to none, need not arrive. What it reports is in the table already.
class Mailboxes {
 public:
  void set(Role role, caf::actor actor) {
    const std::lock_guard lock(mutex_);
    actors_[static_cast<std::size_t>(role)] = std::move(actor);
  }
  caf::actor get(Role role) const {  // null: there is none now
    const std::lock_guard lock(mutex_);
    return actors_[static_cast<std::size_t>(role)];
  }
  template <class Message>
  void send(Role role, Message message) const {
    if (const caf::actor to = get(role)) caf::anon_send(to, std::move(message));
  }

 private:
  mutable std::mutex mutex_;
  std::array<caf::actor, kNumRoles> actors_;
};

}  // namespace troupe::actors

// Allows messages that CAF cannot serialize.
template <troupe::actors::msg::Message T>
struct caf::allowed_unsafe_message_type<T> : std::true_type {};
