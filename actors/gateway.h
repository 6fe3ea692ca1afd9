// The border between the wire and the actors: free of CAF, Asio and protobuf.
//
// Every call may come from any thread and returns at once. Answers arrive through sinks and callbacks, which must not
// block: on threads of the server, or, where the answer is known at once (no model, nothing to drain), on the caller's
// own thread before the call returns. No lock is held then, so they may call back into the gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/gateway_options.h"
#include "actors/requests/load_wait.h"
#include "actors/requests/request.h"
#include "actors/requests/session_info.h"
#include "actors/requests/status_snapshot.h"
#include "actors/serving/served_model.h"
#include "config/result.h"
#include "engine/engine.h"
#include "scheduler/shares/request_line.h"

namespace troupe::actors {

// The user of a text to encode or decode, and the model with its vocabulary (as Request::model).
struct TextRequest {
  scheduler::Tenant tenant;
  std::string model;
};
// The result, or an End of kind refused or failed, or cancelled.
using Tokenized = std::variant<std::vector<TokenId>, End>;
using OnTokenized = std::function<void(Tokenized)>;
using Detokenized = std::variant<std::string, End>;
using OnDetokenized = std::function<void(Detokenized)>;
using Rendered = std::variant<std::string, End>;
using OnRendered = std::function<void(Rendered)>;

// The actor system and everything in it. Destroying it stops everything and joins all threads; every
// stream gets its end first.
class Gateway {
 public:
  // Starts the actors and begins to load the models in the background, one after the other. Returns an error for what
  // can be checked at once: the limits are above 0, no two models have one name, and the files of one of them open and
  // name a family and a kernel variant. A model of which that is not so has failed, and the others are served.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options);
  // As start(), and waits until on_loaded(). Error: also that of loading.
  static Result<std::unique_ptr<Gateway>> start_loaded(GatewayOptions options);
  virtual ~Gateway() = default;

  // Takes a request to generate or to embed; tokens and the end go to its sink. The id is for cancel and credit. A
  // request for n answers has n consecutive ids beginning with this one, one for each choice.
  virtual RequestId submit(Request request, std::shared_ptr<StreamSink> sink) = 0;
  // Ends the choice with Outcome::cancelled unless it has ended already. Until the prompt is encoded, cancelling the
  // first choice ends all of them. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // Lets `tokens` more tokens of the choice be sent. Unknown ids are ignored.
  virtual void credit(RequestId id, std::uint64_t tokens) = 0;

  // What a tenant's requests may take together so that no limit refuses one of them for the others (a rule's apart).
  virtual scheduler::RequestLoad room_of(const scheduler::Tenant& tenant) = 0;
  // Of the server: ready while any of its models is, failed once all are.
  virtual Readiness readiness() const = 0;
  virtual double load_fraction() const = 0;  // of the default model
  // False: work of a model has waited for longer than progress_timeout while no step or pass of it ended, its workers
  // died too often, or no model could be loaded. True while idle or loading. For watchdogs: sends no message, so a
  // blocked actor cannot delay it.
  virtual bool is_making_progress() const = 0;
  // How each model is, the default one first, then also those that replace one, or were replaced (ModelHealth). Sends
  // no message either.
  virtual std::vector<ModelHealth> health() const = 0;
  // Current counters, collected from the actors within milliseconds, also during a step.
  virtual void status(std::function<void(StatusSnapshot)> done) = 0;
  // The model that serves requests with this name now, for who may use it (visible_models.h); empty: the default one,
  // which is the first of a start until it is unloaded. Null while it is loading, if it has failed, and if there is
  // none.
  virtual std::shared_ptr<const ServedModel> model(const std::string& name = {}) const = 0;
  virtual std::vector<ModelDescription> models() const = 0;  // those that are loaded
  // Of all models, also those that have failed, in the order in which they came.
  virtual std::vector<std::string> model_names() const = 0;

  // Encodes or decodes on the text threads, scheduled fairly among users. `done` is called exactly once.
  virtual CancelFlag tokenize(TextRequest request, std::string text, engine::EncodeOptions options,
                              OnTokenized done) = 0;
  virtual CancelFlag detokenize(TextRequest request, std::vector<TokenId> ids, OnDetokenized done) = 0;

  // The prompt that a request with this conversation would have, as text. The chat template runs on a text thread.
  virtual CancelFlag apply_template(TextRequest request, ChatPrompt chat, OnRendered done) = 0;
  // The ids of that prompt.
  virtual CancelFlag tokenize_chat(TextRequest request, ChatPrompt chat, OnTokenized done) = 0;

  // Loads more models, which divide the memory as those of a start do, or replaces those of their names
  // (ModelKeys::replace); unloads one, whose requests have drain_timeout to end. As ModelManager has it. Each `done` is
  // called exactly once. For the owner: callers check.
  //
  // A model that is loaded on request is known at once, and loaded when it is asked for. Another one takes its name, or
  // it takes that of another one, at once too, whichever way is said; requests that wait for it then wait for what
  // has its name. unload_model() puts it out of memory, if it is there; its name stays. remove_model() takes its name
  // away, too; of other models it does what unload_model() does.
  virtual void load_models(std::vector<std::pair<ModelRequest, OnModelChange>> requests) = 0;
  virtual void unload_model(const std::string& name, OnModelChange done) = 0;
  virtual void remove_model(const std::string& name, OnModelChange done) = 0;
  // Why a request that was submitted waits for its model, which is loaded on request; nullopt: it waits for no load.
  virtual std::optional<LoadWait> wait_of(RequestId id) const = 0;

  // Checks the canaries and the checksums of these models, of all if there are no names; takes a damaged one out.
  // `done` is called once, with a refusal for a name that no model has; never, if the server ends meanwhile. For the
  // owner: callers check.
  virtual void check_models(const std::vector<std::string>& names, OnModelsChecked done) = 0;

  // Asks about the sessions of a tenant. `done` is called exactly once.
  virtual void session(SessionQuestion question, std::function<void(SessionAnswer)> done) = 0;

  // Refuses new requests and questions about sessions (Outcome::draining), also those that wait unanswered. `done` is
  // called when the last request has ended, and its session is saved; those that are live at drain_timeout are ended as
  // cancelled.
  virtual void drain(std::function<void()> done) = 0;
  // Calls `done` once each of the models is loaded or has failed: Ok if one is loaded, else the first one's error.
  virtual void on_loaded(std::function<void(Status)> done) = 0;
};

}  // namespace troupe::actors
