// The file of keys: the keys, their tenants, until when they are valid, and their hashes. One line a key:
//
//   troupe-keys 1
//   key name=ci id=4fJ0xQm2Za tenant=web created=1764043200 expires=1766635200 salt=HEX hash=HEX max-running=4
//
// `tenant` and `expires` may be missing, and so may the limits, which are keys of [[tenant]] tables. A line that begins
// with # is a comment; `troupe key` does not keep it. Everything else is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/options/tenant_rules.h"
#include "config/result.h"
#include "ipc/keys/secrets.h"

namespace troupe::ipc {

inline constexpr std::size_t kMaxKeys = 1024;
inline constexpr std::size_t kMaxKeyLineBytes = 1024;
inline constexpr std::size_t kMaxKeyFileBytes = 1u << 20;

// A limit of a key that is a tenant of its own: {"max-running", "4"}.
using KeyLimits = std::vector<std::pair<std::string, std::string>>;

struct KeyRow {
  std::string name{};        // as a tenant's: a letter, then letters, digits, '.', '_', '-'; at most 64
  std::string id{};          // of its text (key_text.h)
  std::string tenant{};      // the label of a tenant; empty: a tenant of its own, "key:NAME"
  std::int64_t created = 0;  // seconds since 1970
  std::optional<std::int64_t> expires{};
  Salt salt{};
  Hash hash{};         // scrypt of the secret
  KeyLimits limits{};  // of a key without `tenant`

  [[nodiscard]] bool has_expired(std::int64_t now) const { return expires && *expires <= now; }
  // "web", or "key:NAME": the label of the tenant that its requests count for.
  [[nodiscard]] std::string label() const { return tenant.empty() ? "key:" + name : tenant; }
};

// The limits as a rule says them; only weight and max-... may be given. Error: invalid_argument, naming the limit.
[[nodiscard]] Result<config::TenantRule> rule_of(const KeyLimits& limits);
// Whether it can be a key's name.
[[nodiscard]] bool is_key_name(std::string_view name);

// Error: bad_config, "PATH:LINE: WHY": what is no such file, too many keys or bytes, a line that is no key, a name or
// id twice. Never repeats what stands in the line but a name. wrong: takes what is wrong with single lines, and the
// keys of the others are returned.
[[nodiscard]] Result<std::vector<KeyRow>> parse_keys(std::string_view text, const std::string& path,
                                                     std::vector<std::string>* wrong = nullptr);
[[nodiscard]] std::string format_keys(const std::vector<KeyRow>& rows);

}  // namespace troupe::ipc
