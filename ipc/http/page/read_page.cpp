// The page at "/".
#include "ipc/http/endpoints.h"
#include "ipc/http/json/json_writer.h"
#include "ipc/http/key_authenticator.h"
#include "ipc/http/page/page.h"

namespace troupe::ipc::http {

Act read_page(Request&& request, const ReadContext&) {
  return [head = std::move(request.head)](Exchange& exchange) { exchange.respond(page_response(head)); };
}

Act read_open(Request&& request, const ReadContext&) {
  return [head = std::move(request.head)](Exchange& exchange) {
    Authenticator* const authenticator = exchange.options().http.authenticator.get();
    const auto key = authenticator ? authenticator->exchange(presented_key(head)) : std::nullopt;
    if (!key)
      return exchange.respond(error_response(
          api::ApiError{.status = 401,
                        .message = "this address was for one use, and was used; restart `troupe serve --open` for "
                                   "another, or use a key of `troupe key add NAME`",
                        .code = "invalid_api_key"},
          api::Dialect::openai, scheduler::Outcome::permission));
    std::string body;
    api::JsonWriter(body).begin_object().field("key", *key).end_object();
    exchange.respond({.body = std::move(body), .fields = {{"Cache-Control", "no-store"}}});
  };
}

}  // namespace troupe::ipc::http
