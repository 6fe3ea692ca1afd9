// Looks at every request first: checks it, refuses what can never or not now be served, has its text encoded,
// and passes it to the batcher. Also keeps the clock: a request's deadline ends it wherever it is.
//
// Plain logic: request_check.h, scheduler/admission.h. The records are in the stream table, so an intake that died
// is replaced by one that finds everything there.
//
// Receives  msg::Submit    a new request: ends, waits for the model, or goes on to be encoded
//           msg::Encoded   its text as ids; msg::EncodeFailed: it is tried once more, then given up
//           msg::Deadline  of some request, or a while later than the last one
//           msg::Forget    a stream that was ended by somebody else; msg::ForgetAll: all of them
//           msg::Wire      whom to talk to; a new batcher gets all that the last one had
// Sends     msg::Encode to a tokenizer, msg::Enqueue and msg::Forget to the batcher
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "actors/actor_base.h"
#include "actors/messages.h"
#include "actors/request_check.h"
#include "actors/server_context.h"

namespace troupe::actors {

class Intake : public ActorBase {
 public:
  Intake(caf::actor_config& cfg, const ServerContext& context);

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  TimePoint now();
  void end_overdue();
  void arm_timer();
  void look_at(RequestId request);
  void wait_for_model(RequestId request);
  void forget(RequestId request);
  void forget_all();
  void admit(RequestId request, const Request& body);
  void encode(RequestId request, std::shared_ptr<const Request> body);
  void encoded(RequestId request, std::vector<TokenId> ids);
  void not_encoded(RequestId request, const Failure& why);
  void wire(const std::shared_ptr<const Wiring>& wiring);
  void end(RequestId request, const End& how);

  const ServerContext context_;
  std::shared_ptr<const Wiring> wiring_;
  ServingLimits limits_;
  std::set<RequestId> waiting_;                         // for the model to load, oldest first
  std::unordered_map<RequestId, CancelFlag> encoding_;  // texts with the text threads
  std::optional<TimePoint> timer_;                      // when the next msg::Deadline comes
  std::size_t next_tokenizer_ = 0;
};

// Encodes short texts. The vocabulary is immutable and shared.
//
// Receives  msg::Encode -> sends msg::Encoded or msg::EncodeFailed to the sender
class TextEncoder : public ActorBase {
 public:
  TextEncoder(caf::actor_config& cfg, std::shared_ptr<const engine::Tokenizer> tokenizer, FaultPoints faults);

  caf::behavior make_behavior() override;

 private:
  std::shared_ptr<const engine::Tokenizer> tokenizer_;
  FaultPoints faults_;
};

}  // namespace troupe::actors
