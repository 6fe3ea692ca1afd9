// What a client sends as its key: "trp_ID_SECRET". The id says which row of the key file it is; the secret is kept by
// the client only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe::ipc {

inline constexpr std::string_view kKeyPrefix = "trp_";
inline constexpr std::size_t kKeyIdChars = 10;
inline constexpr std::size_t kKeySecretChars = 43;  // base62: 256 bits
inline constexpr std::size_t kKeyChars = kKeyPrefix.size() + kKeyIdChars + 1 + kKeySecretChars;

// Borrows from the text that it was taken from.
struct KeyText {
  std::string_view id;
  std::string_view secret;
};

// nullopt: it has not the form of a key.
[[nodiscard]] std::optional<KeyText> split_key(std::string_view text);

// A new key, drawn at random.
[[nodiscard]] std::string draw_key();

}  // namespace troupe::ipc
