#include "cli/serve/tcp_access.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "cli/serve/tenant_rules.h"
#include "ipc/keys/key_file.h"
#include "ipc/sockets/listen_address.h"
#include "ipc/sockets/listening_socket.h"

namespace troupe::cli {
namespace {

Error bad_key(const std::string& path, const ipc::KeyRow& row, const std::string& why) {
  return {ErrorCode::bad_config, fmt::format("{}: key {}: {}", path, row.name, why)};
}

Result<scheduler::Tenant> tenant_of(const ipc::KeyRow& row, const ipc::TenantRules& rules, const std::string& path,
                                    const config::Given& given) {
  if (row.tenant.empty()) {
    auto rule = ipc::rule_of(row.limits);
    if (!rule) return bad_key(path, row, rule.error().message);
    rule->name = row.label();
    return rules.apart(policy_of(*rule));
  }
  if (const auto uid = ipc::uid_of_label(row.tenant); uid && ipc::is_owner(*uid))
    return bad_key(path, row,
                   fmt::format("its tenant is uid {}, the server's own user or root, and no key is theirs; revoke it "
                               "(troupe key revoke {})",
                               *uid, row.name));
  if (auto tenant = rules.find(row.tenant)) return *std::move(tenant);
  return bad_key(path, row,
                 fmt::format("no [[tenant]] rule{} is named {}; add one, or revoke the key (troupe key revoke {})",
                             given.file.empty() ? "" : " of " + given.file, row.tenant, row.name));
}

// Whether clients over TCP need a key: where one was made, a file was named, or strangers may come. Else the kernel
// says which user of this machine is calling, also where the page has a key.
Result<bool> needs_keys(const config::ServeOptions& options, const std::vector<ipc::TcpAddress>& addresses) {
  if (options.no_auth) return false;
  if (options.keys_file != "auto") return true;
  for (const ipc::TcpAddress& address : addresses)
    if (!address.is_loopback()) return true;
  const auto path = ipc::keys_path(options.keys_file);
  if (!path || (::access(path->c_str(), F_OK) != 0 && errno == ENOENT)) return false;
  const auto rows = ipc::read_keys(*path);
  if (!rows) return rows.error();
  return !rows->empty();
}

Result<std::vector<ipc::ServedKey>> read_served_keys(const config::ServeOptions& options, const config::Given& given,
                                                     const ipc::TenantRules& rules,
                                                     std::vector<std::string>* wrong = nullptr) {
  const auto path = ipc::keys_path(options.keys_file);
  if (!path && options.open && options.keys_file == "auto") return std::vector<ipc::ServedKey>();
  if (!path) return path.error();
  if (options.open && ::access(path->c_str(), F_OK) != 0 && errno == ENOENT)
    return std::vector<ipc::ServedKey>();  // the page alone has a key
  const auto rows = ipc::read_keys(*path, wrong);
  if (!rows) return rows.error();
  return served_keys(*rows, rules, *path, given, wrong);
}

// What is asked for and cannot be, before anything is read.
Status check_access(const config::ServeOptions& options, const std::vector<ipc::TcpAddress>& addresses) {
  const auto refuse = [](const std::string& why) { return Error{ErrorCode::bad_config, why}; };
  if (options.tls_cert.empty() != options.tls_key.empty())
    return refuse("--tls-cert and --tls-key belong together: the certificate and its private key, both PEM files");
  for (const ipc::TcpAddress& address : addresses) {
    if (address.is_loopback()) continue;
    if (options.no_auth)
      return refuse(
          fmt::format("{}: --no-auth is for addresses of this machine only (tcp://127.0.0.1:{}); leave it out "
                      "and make keys with `troupe key add NAME`",
                      address.text(), address.port));
    if (options.tls_cert.empty())
      return refuse(
          fmt::format("{}: keys and texts would cross the network unencrypted; give --tls-cert and --tls-key, "
                      "or listen to tcp://127.0.0.1:{}",
                      address.text(), address.port));
  }
  return Ok{};
}

// The tenant of requests of the page that --open printed: a guest of the tenant that the server's own user has.
scheduler::Tenant guest_of_server(const ipc::TenantRules& rules) { return rules.resolve({.uid = ::geteuid()}).tenant; }

}  // namespace

Result<std::vector<ipc::ServedKey>> served_keys(const std::vector<ipc::KeyRow>& rows, const ipc::TenantRules& rules,
                                                const std::string& path, const config::Given& given,
                                                std::vector<std::string>* wrong) {
  std::unordered_map<TenantId, std::string> labels;
  for (const ipc::TenantRule& rule : rules.rules())
    if (const std::string& name = rule.policy->name; !name.empty()) labels.emplace(scheduler::named_tenant(name), name);
  std::vector<ipc::ServedKey> keys;
  for (const ipc::KeyRow& row : rows) {
    auto tenant = tenant_of(row, rules, path, given);
    if (tenant) {
      const auto [other, is_new] = labels.emplace(tenant->id, row.label());
      if (!is_new && other->second != row.label())
        tenant = bad_key(path, row,
                         fmt::format("its tenant {} has by chance the id of {}; give the key another name", row.label(),
                                     other->second));
    }
    if (!tenant && wrong == nullptr) return tenant.error();
    if (!tenant) {
      wrong->push_back(tenant.error().message);
      continue;
    }
    keys.push_back({.name = row.name,
                    .id = row.id,
                    .salt = row.salt,
                    .hash = row.hash,
                    .expires = row.expires,
                    .tenant = std::move(*tenant)});
  }
  return keys;
}

Status TcpAccess::open(const config::ServeOptions& options, const config::Given& given, ipc::ServerOptions& server) {
  if (Status allowed = check_access(options, server.http.listen); !allowed) return allowed;
  if (server.http.listen.empty()) {
    if (!options.open) return Ok{};
    return Error{ErrorCode::bad_config,
                 "--open prints the address of the page, and there is none without --listen: add "
                 "--listen tcp://127.0.0.1:8080"};
  }
  no_auth_ = options.no_auth;
  const auto with_keys = needs_keys(options, server.http.listen);
  if (!with_keys) return with_keys.error();
  if (*with_keys || (options.open && !no_auth_)) {
    auto keys = read_served_keys(options, given, server.tenants);
    if (!keys)
      return Error{keys.error().code,
                   keys.error().message + "; without keys (and --keys-file) a server listens to its own machine only"};
    if (keys->empty() && !options.open)
      return Error{
          ErrorCode::bad_config,
          "there are no keys for clients over TCP: make one with `troupe key add NAME`; without --keys-file, on an "
          "address of this machine, the kernel says which user is calling"};
    kernel_names_ = !*with_keys;
    if (*with_keys) spdlog::info("{} keys for clients over TCP", keys->size());
    auto tab_key = options.open ? std::make_unique<ipc::TabKey>() : nullptr;
    if (tab_key) once_ = tab_key->once();
    keys_ = std::make_shared<ipc::http::KeyAuthenticator>(std::move(*keys), std::move(tab_key),
                                                          guest_of_server(server.tenants));
  }
  if (!options.tls_cert.empty()) {
    // Connections that are ending keep their place for a while.
    const std::size_t most = 2 * static_cast<std::size_t>(options.max_connections);
    auto tls = ipc::http::TlsFront::start({.certificate = options.tls_cert,
                                           .key = options.tls_key,
                                           .handshake_timeout = options.hello_timeout,
                                           .max_connections = most});
    if (!tls) return tls.error();
    tls_ = std::move(*tls);
  }
  server.http.authenticator = keys_;
  server.http.kernel_names = kernel_names_;
  server.http.tls = tls_;
  return Ok{};
}

std::string TcpAccess::page_address(const ipc::TcpAddress& address) const {
  ipc::TcpAddress shown = address;
  const auto ends = shown.bytes.begin() + (shown.is_v6 ? 16 : 4);
  const bool is_any = std::all_of(shown.bytes.begin(), ends, [](std::uint8_t byte) { return byte == 0; });
  const std::string host =
      is_any ? fmt::format("localhost:{}", shown.port) : shown.text().substr(std::string_view("tcp://").size());
  return fmt::format("{}://{}/{}{}", tls_ ? "https" : "http", host, once_.empty() ? "" : "#once=", once_);
}

const char* TcpAccess::clients_text() const {
  if (kernel_names_) return "for those users of this machine who may use the socket, and for the page";
  if (keys_) return "for holders of keys";
  return no_auth_ ? "for every program of this machine (no-auth)"
                  : "for those users of this machine who may use the socket";
}

Status TcpAccess::reload(const config::ServeOptions& options, const config::Given& given,
                         const ipc::TenantRules& rules) {
  std::vector<ipc::ServedKey> keys;
  std::vector<std::string> wrong;
  if (keys_) {
    auto read = read_served_keys(options, given, rules, &wrong);
    if (!read) return read.error();
    keys = std::move(*read);
  }
  if (tls_)
    if (Status read = tls_->reload(options.tls_cert, options.tls_key); !read) return read;
  if (!keys_) return Ok{};
  const std::size_t num_keys = keys.size();
  keys_->replace(std::move(keys), guest_of_server(rules));
  // One that is wrong holds up no revocation of another.
  for (const std::string& why : wrong) spdlog::error("reload: {}; this key is refused until that is mended", why);
  spdlog::info("reload: {} keys for clients over TCP", num_keys);  // after it: from now on they count
  return Ok{};
}

}  // namespace troupe::cli
