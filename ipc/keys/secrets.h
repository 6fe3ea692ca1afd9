// Randomness and hashes for keys. OpenSSL is named here and where TLS is spoken, nowhere else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "config/result.h"

namespace troupe::ipc {

inline constexpr std::size_t kSaltBytes = 16;
inline constexpr std::size_t kHashBytes = 32;
using Salt = std::array<std::uint8_t, kSaltBytes>;
using Hash = std::array<std::uint8_t, kHashBytes>;

// scrypt's parameters (RFC 7914), the same for all keys, so that an unknown key costs what a wrong one does: 4 MiB and
// about 10 ms. Keys are 256 random bits: scrypt only has to keep a stolen file from saying which key it was.
inline constexpr std::uint64_t kScryptN = 4096;
inline constexpr std::uint64_t kScryptR = 8;
inline constexpr std::uint64_t kScryptP = 1;

// Fills `bytes` from the kernel's generator. Waits at boot until that is seeded.
void fill_random(std::span<std::uint8_t> bytes);
// `count` letters and digits (base62), each drawn uniformly: 5.954 bits a character.
[[nodiscard]] std::string random_base62(std::size_t count);
[[nodiscard]] bool is_base62(std::string_view text);

// Error: out_of_memory.
[[nodiscard]] Result<Hash> scrypt(std::string_view secret, const Salt& salt);
// HMAC with SHA-256.
[[nodiscard]] Hash keyed_hash(const Hash& key, std::string_view text);
// Whether they are equal, in a time that does not depend on where they differ.
[[nodiscard]] bool equal_in_constant_time(const Hash& a, const Hash& b);
// Overwrites the text, which the compiler may not leave out, and empties it.
void wipe(std::string& text);

}  // namespace troupe::ipc
