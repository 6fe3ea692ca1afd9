// Every message that our actors exchange. All of them stay inside the process.
//
// Plain structs; large contents are behind a shared pointer. The comment above an actor's class lists the messages it
// receives.
#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway.h"
#include "actors/serving/step_work.h"
#include "actors/serving/stream_table.h"
#include "actors/status/status_query.h"

namespace troupe::actors {

// The actors that a supervisor restarts.
enum class Role : std::uint8_t { telemetry, intake, loader, keeper, worker, batcher, embedder, tokenizer };
inline constexpr std::size_t kNumRoles = 7;  // with one actor each; the tokenizers are several

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
struct EncodeFailed {
  RequestId request;
  Failure why;
};
struct Enqueue {
  std::shared_ptr<const Assignment> task;
};

// Steps and leases.
struct Lease {
  std::shared_ptr<const std::vector<LeaseMessage>> messages;
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
struct PassEnded {  // a pass over texts of an Embed
  bool complete;    // they are read
};
struct PassFailed {
  Failure why;
};
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
struct ModelLoaded {};  // loading has ended; ModelState has the model or the error
struct Wire {
  std::shared_ptr<const Wiring> wiring;
};
struct Restart {};
struct Drain {
  std::chrono::milliseconds timeout;
};
struct DrainTimeout {};
struct Snapshot {
  std::shared_ptr<StatusQuery> query;
  caf::actor batcher;  // null: there is none
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

}  // namespace msg
}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Submit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Credit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Deadline)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Forget)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::ForgetAll)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Encode)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Encoded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::EncodeFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Enqueue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Lease)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Leased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::RunStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::StepResult)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::StepFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::PassEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::PassFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::BeginEpoch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Quiesce)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Quiesced)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::LoadEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::ModelLoaded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Wire)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Restart)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Drain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::DrainTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Fence)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Fenced)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::msg::Crash)
