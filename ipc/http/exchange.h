// What the code of an endpoint sees of a request and its connection: how to answer. No sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway.h"
#include "ipc/http/api/answer.h"
#include "ipc/http/api/endpoint.h"
#include "ipc/http/request.h"
#include "ipc/http/response.h"
#include "ipc/server.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc::http {

// Sends the answer; called once, from any thread. Does nothing if the connection has ended.
using Reply = std::function<void(Response)>;

// One request whose answer is still to be given. Used on the io thread, within the function that gets it; exactly one
// of respond(), reply_later() and submit() is called.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const scheduler::Tenant& tenant() const = 0;
  virtual const ServerOptions& options() const = 0;
  virtual actors::Gateway& gateway() const = 0;
  virtual bool is_draining() const = 0;
  // Calls `done` on the io thread with what the tenant may see of the status; not if the connection has ended.
  virtual void ask_status(std::function<void(v1::Status)> done) = 0;

  virtual void respond(Response response) = 0;
  virtual Reply reply_later() = 0;
  // For work after reply_later() that need not be done if the client is gone.
  virtual void cancel_with_client(actors::CancelFlag flag) = 0;
  // Gives the requests, at least one, to the gateway, with credit that follows what was written to the socket. What the
  // gateway sends becomes the answer, in which the choices are counted over all requests; that of a request for
  // vectors, which comes alone, is written on the thread that ends it.
  virtual void submit(std::vector<actors::Request> requests, std::unique_ptr<api::ApiAnswer> answer) = 0;
};

// What is to be done for a request that has been read.
using Act = std::function<void(Exchange&)>;

// What a body that was read asks for; nothing if it is refused.
struct Asked {
  std::string model{};            // the name of the one that is to answer
  bool streams = false;           // the answer comes in pieces
  std::string ignored{};          // fields that are passed over, with ", " between them
  std::uint32_t num_choices = 0;  // of answers by the gateway's stream table
  std::uint32_t num_texts = 0;    // that are encoded for them on text threads
  std::uint32_t num_vectors = 0;
};

// What reading a request needs to know.
struct ReadContext {
  const api::EndpointInfo* endpoint = nullptr;
  scheduler::Tenant tenant{};
  std::uint32_t uid = 0;
  std::uint64_t max_prompt_bytes = 0;
  const actors::Gateway* gateway = nullptr;
  Asked* asked = nullptr;  // filled in; null: it is not
};

// The endpoints of this path, one for each method; empty: there is none.
[[nodiscard]] std::vector<const api::EndpointInfo*> endpoints_at(std::string_view path);

// Checks a request to context.endpoint, on any thread, as a body of megabytes takes long. What it returns runs on the
// io thread.
[[nodiscard]] Act read_request(Request&& request, const ReadContext& context);

}  // namespace troupe::ipc::http
