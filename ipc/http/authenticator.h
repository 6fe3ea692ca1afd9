// Decides for which tenant a request with a key counts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "ipc/http/api/error.h"
#include "ipc/http/request.h"
#include "scheduler/shares/tenant.h"

namespace troupe::ipc::http {

// Thread-safe. A server keeps it as long as it answers to `done`: other owners of it let go of it before the server is
// destroyed. Without one, every client over TCP is a guest of the tenant that the rules give the server's own uid.
class Authenticator {
 public:
  using Decision = std::variant<scheduler::Tenant, api::ApiError>;  // the error: 401, or 429
  virtual ~Authenticator() = default;
  // Calls `done` once, at once or later, on any thread. `head` is valid until decide() returns; `address` is the
  // client's. Called on the io thread: what takes longer than some 100 us is done elsewhere.
  virtual void decide(const RequestHead& head, const std::string& address, std::function<void(Decision)> done) = 0;
  // The key that a page goes on with instead of one for one use; nullopt: it is none, or was used.
  virtual std::optional<std::string> exchange(std::string_view /*once*/) { return std::nullopt; }
  // Whether exchange() gave it.
  virtual bool is_page_key(std::string_view /*key*/) const { return false; }
};

}  // namespace troupe::ipc::http
