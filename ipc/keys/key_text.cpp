#include "ipc/keys/key_text.h"

#include "ipc/keys/secrets.h"

namespace troupe::ipc {

std::optional<KeyText> split_key(std::string_view text) {
  if (text.size() != kKeyChars || !text.starts_with(kKeyPrefix)) return std::nullopt;
  text.remove_prefix(kKeyPrefix.size());
  if (text[kKeyIdChars] != '_') return std::nullopt;
  const KeyText key{text.substr(0, kKeyIdChars), text.substr(kKeyIdChars + 1)};
  if (!is_base62(key.id) || !is_base62(key.secret)) return std::nullopt;
  return key;
}

std::string draw_key() {
  return std::string(kKeyPrefix) + random_base62(kKeyIdChars) + "_" + random_base62(kKeySecretChars);
}

}  // namespace troupe::ipc
