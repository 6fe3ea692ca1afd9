// The first actor to handle a request: checks it, refuses it if it can never or cannot now be served, has its text
// encoded, and passes it to the batcher or the embed worker. Also ends requests at their deadlines, in whatever state
// they are.
//
// Plain logic: request_check.h, scheduler/shares/admission.h. The records are in the stream table, so a restarted
// intake continues from there.
//
// Receives  msg::Submit    a new request: it is ended, kept until the model is loaded, or encoded
//           msg::Encoded   its text as ids; msg::NotRendered: refused; msg::NotEncoded: dropped; msg::EncodeFailed: it
//                          is tried once more, then ended
//           msg::SessionLoaded  the tokens of its session and its own, or why that cannot be continued
//           msg::Deadline  its own timer: a deadline may have passed
//           msg::Forget    a stream has ended; msg::ForgetAll: all of them
//           msg::Wire      the actors to send to; a new batcher or embed worker gets all requests that the last one had
// Sends     msg::Encode to a tokenizer, msg::Enqueue, msg::Forget and msg::ForgetAll to the batcher and the embed
// worker
#pragma once

#include <set>
#include <unordered_map>

#include "actors/requests/failure.h"
#include "actors/requests/request_check.h"
#include "actors/serving/model_state.h"
#include "actors/threads/text_threads.h"
#include "actors/unit/actor_base.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

class Intake : public ActorBase {
 public:
  Intake(caf::actor_config& cfg, UnitId unit, const ModelState& model, StreamTable& streams, TextThreads& texts,
         FaultPoints faults);

  caf::behavior make_behavior() override;
  void on_exit() override;

 private:
  void end_overdue();
  void arm_timer();
  void try_to_admit(RequestId request);
  void forget(RequestId request);
  void forget_all();
  void admit(RequestId request, const Request& body);
  void encode(RequestId request, std::shared_ptr<const Request> body);
  void encoded(RequestId request, std::shared_ptr<EmbedIds> ids);
  void load_session(RequestId request, const Request& body, std::vector<TokenId> prompt);
  void session_loaded(RequestId request, SessionTurn::Loaded& loaded);
  void assign(RequestId request, const Request& body, std::vector<TokenId> prompt);
  void assign(RequestId request, std::shared_ptr<const EmbedIds> inputs, std::uint32_t num_cut);
  std::optional<End> check_embed_bytes(RequestId request, const Request& body, std::uint64_t id_bytes);
  void not_rendered(RequestId request, const std::string& field, const std::string& why);
  void not_encoded(RequestId request, const Failure& why);
  void wire(const std::shared_ptr<const Wiring>& wiring);
  void end(RequestId request, const End& how);

  const UnitId unit_;
  const ModelState& model_;
  StreamTable& streams_;
  TextThreads& texts_;
  const FaultPoints faults_;
  std::shared_ptr<const Wiring> wiring_;                   // null until the first msg::Wire
  std::shared_ptr<const AnsweringModel> answering_model_;  // of `wiring_`
  ServingLimits limits_;
  std::set<RequestId> waiting_;                         // requests that wait for the model to load, oldest first
  std::unordered_map<RequestId, CancelFlag> encoding_;  // requests with a text on the text threads
  std::optional<TimePoint> timer_;                      // when the next msg::Deadline comes
  std::size_t next_tokenizer_ = 0;
};

// Encodes short texts; conversations are rendered on the text threads. The vocabulary is immutable and shared.
//
// Receives  msg::Encode -> sends msg::Encoded, msg::NotRendered or msg::EncodeFailed to the sender
class TextEncoder : public ActorBase {
 public:
  TextEncoder(caf::actor_config& cfg, std::shared_ptr<const ServedModel> model, FaultPoints faults);

  caf::behavior make_behavior() override;

 private:
  std::shared_ptr<const ServedModel> model_;
  FaultPoints faults_;
};

}  // namespace troupe::actors
