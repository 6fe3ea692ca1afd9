#include "ipc/http/key_authenticator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "config/printable.h"

namespace troupe::ipc::http {
namespace {

using Kind = KeyVerdict::Kind;

KeyClock clock_now() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  return {.unix_seconds = std::chrono::duration_cast<std::chrono::seconds>(wall).count(),
          .seconds = std::chrono::duration<double>(steady).count()};
}

api::ApiError no_access(std::string message) {
  return {.status = 401, .message = std::move(message), .code = "invalid_api_key"};
}

api::ApiError later(int status, std::string code, std::string message, double seconds) {
  return {.status = status,
          .message = std::move(message),
          .type = status == 429 ? "rate_limit_error" : "server_error",
          .code = std::move(code),
          .retry_after = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000))),
          .retryable = true};
}

Authenticator::Decision decision_of(const KeyVerdict& verdict) {
  switch (verdict.kind) {
    case Kind::accepted:
      return verdict.tenant;
    case Kind::expired:
      return no_access(
          fmt::format("the key {} has expired; ask the operator of this server for another", verdict.name));
    case Kind::too_many:
      return later(429, "quota", "too many wrong keys came from this address; try again later",
                   verdict.retry_after_seconds);
    case Kind::busy:
      return later(503, "queue_full", "too many keys wait to be checked; try again", verdict.retry_after_seconds);
    case Kind::wrong:
      break;
  }
  return no_access("this server has no such key; `troupe key add NAME` on its machine makes one");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

}  // namespace

std::string_view presented_key(const RequestHead& head) {
  constexpr std::string_view kScheme = "Bearer ";
  if (const std::string* field = head.find("authorization"))
    if (field->size() > kScheme.size() && ::strncasecmp(field->data(), kScheme.data(), kScheme.size()) == 0)
      return trimmed(std::string_view(*field).substr(kScheme.size()));
  const std::string* field = head.find("x-api-key");
  return field ? trimmed(*field) : std::string_view();
}

KeyAuthenticator::KeyAuthenticator(std::vector<ServedKey> keys, std::unique_ptr<TabKey> tab_key,
                                   scheduler::Tenant tab_tenant)
    : tab_key_(std::move(tab_key)), tab_tenant_(std::move(tab_tenant)), checker_(std::move(keys), clock_now) {}

void KeyAuthenticator::replace(std::vector<ServedKey> keys, scheduler::Tenant tab_tenant) {
  checker_.replace(std::move(keys));
  const std::lock_guard lock(mutex_);
  tab_tenant_ = std::move(tab_tenant);
}

std::optional<std::string> KeyAuthenticator::exchange(std::string_view once) {
  return tab_key_ ? tab_key_->exchange(once) : std::nullopt;
}

void KeyAuthenticator::decide(const RequestHead& head, const std::string& address, std::function<void(Decision)> done) {
  const std::string_view key = presented_key(head);
  if (key.empty())
    return done(
        no_access("this server asks for a key: send Authorization: Bearer KEY (or x-api-key: KEY); `troupe key "
                  "add NAME` on its machine makes one"));
  if (is_page_key(key)) {
    std::unique_lock lock(mutex_);
    scheduler::Tenant tenant = tab_tenant_;
    lock.unlock();
    return done(std::move(tenant));
  }
  checker_.check(address, key, [this, address, done = std::move(done)](const KeyVerdict& verdict) {
    if (verdict.kind != Kind::accepted) log_refused(address, verdict);
    done(decision_of(verdict));
  });
}

void KeyAuthenticator::log_refused(const std::string& address, const KeyVerdict& verdict) {
  {
    const std::lock_guard lock(mutex_);
    if (!lines_.take(std::chrono::steady_clock::now())) return;
  }
  const std::string peer = Printable(address).text();
  if (verdict.kind == Kind::expired)
    spdlog::warn("refused a key from {}: {} has expired", peer, verdict.name);
  else
    spdlog::warn("refused a key from {}: {}", peer,
                 verdict.kind == Kind::wrong ? "there is no such key" : "too many wait or were wrong");
}

}  // namespace troupe::ipc::http
