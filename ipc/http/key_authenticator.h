// Keys as they come with requests: "Authorization: Bearer KEY", or "x-api-key: KEY" as Anthropic's clients send it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/http/authenticator.h"
#include "ipc/keys/key_checker.h"
#include "ipc/keys/tab_key.h"
#include "ipc/rate_limits.h"

namespace troupe::ipc::http {

// The key that a request comes with, a part of the head; empty: none. Of two that differ the one in Authorization.
[[nodiscard]] std::string_view presented_key(const RequestHead& head);

// Answers by a KeyChecker with the system's clocks. Thread-safe.
class KeyAuthenticator final : public Authenticator {
 public:
  // With `tab_key` (not null), requests with what it gave are those of `tab_tenant`.
  explicit KeyAuthenticator(std::vector<ServedKey> keys, std::unique_ptr<TabKey> tab_key = nullptr,
                            scheduler::Tenant tab_tenant = {});
  void decide(const RequestHead& head, const std::string& address, std::function<void(Decision)> done) override;
  std::optional<std::string> exchange(std::string_view once) override;
  bool is_page_key(std::string_view key) const override { return tab_key_ && tab_key_->matches(key); }
  // New keys and rules, from the next request on.
  void replace(std::vector<ServedKey> keys, scheduler::Tenant tab_tenant = {});

 private:
  void log_refused(const std::string& address, const KeyVerdict& verdict);

  const std::unique_ptr<TabKey> tab_key_;
  std::mutex mutex_;  // of the next two
  LogQuota lines_;
  scheduler::Tenant tab_tenant_;
  KeyChecker checker_;  // declared last: its thread calls log_refused()
};

}  // namespace troupe::ipc::http
