#include "ipc/keys/tab_key.h"

#include "ipc/keys/key_text.h"

namespace troupe::ipc {

TabKey::TabKey() : once_(std::string(kOncePrefix) + random_base62(kKeySecretChars)) { fill_random(process_key_); }

std::string TabKey::once() const {
  const std::lock_guard lock(mutex_);
  return once_;
}

std::optional<std::string> TabKey::exchange(std::string_view text) {
  const Hash asked = keyed_hash(process_key_, text);
  const std::lock_guard lock(mutex_);
  if (once_.empty() || !equal_in_constant_time(asked, keyed_hash(process_key_, once_))) return std::nullopt;
  wipe(once_);
  std::string key = std::string(kTabPrefix) + random_base62(kKeySecretChars);
  given_ = keyed_hash(process_key_, key);
  return key;
}

bool TabKey::matches(std::string_view text) const {
  if (!text.starts_with(kTabPrefix)) return false;
  const Hash asked = keyed_hash(process_key_, text);
  const std::lock_guard lock(mutex_);
  return given_ && equal_in_constant_time(asked, *given_);
}

}  // namespace troupe::ipc
