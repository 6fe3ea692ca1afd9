// What `troupe serve` needs for clients over TCP, keys and a certificate, and how a reload replaces them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/options/options.h"
#include "config/result.h"
#include "ipc/http/key_authenticator.h"
#include "ipc/http/tls_front.h"
#include "ipc/keys/key_rows.h"
#include "ipc/server.h"
#include "ipc/sockets/listen_address.h"
#include "ipc/tenant_rules.h"

namespace troupe::cli {

// The keys with the tenants that these rules make of them; `path` is of the keys, for messages. Error: bad_config if a
// key's tenant is none of the rules', or the server's own user or root, or two names have one id. wrong: takes these
// errors, and the other keys are returned.
[[nodiscard]] Result<std::vector<ipc::ServedKey>> served_keys(const std::vector<ipc::KeyRow>& rows,
                                                              const ipc::TenantRules& rules, const std::string& path,
                                                              const config::Given& given,
                                                              std::vector<std::string>* wrong = nullptr);

// Used by one thread.
class TcpAccess {
 public:
  // Fills in what `options` say of keys and certificate. `server` is from server_options(). Without --listen it reads
  // nothing. Errors: invalid_argument or bad_config for what cannot be served as it is asked for, with the
  // remedy; as read_keys() and TlsFront::start().
  [[nodiscard]] Status open(const config::ServeOptions& options, const config::Given& given,
                            ipc::ServerOptions& server);
  // Of --open, after open(): the page of the server that listens on `address`, which the first to open it may use.
  [[nodiscard]] std::string page_address(const ipc::TcpAddress& address) const;
  // After open(): the clients that are let in, for the log.
  [[nodiscard]] const char* clients_text() const;
  // Reads keys and certificate again. On an error those that are in use stay.
  [[nodiscard]] Status reload(const config::ServeOptions& options, const config::Given& given,
                              const ipc::TenantRules& rules);

 private:
  bool no_auth_ = false;
  bool kernel_names_ = false;                          // the keys are for the page alone
  std::shared_ptr<ipc::http::KeyAuthenticator> keys_;  // null: none are asked for
  std::string once_;                                   // of --open with keys: what goes into the address
  std::shared_ptr<ipc::http::TlsFront> tls_;           // null: no TLS
};

}  // namespace troupe::cli
