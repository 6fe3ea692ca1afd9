#include "ipc/keys/secrets.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "config/assert.h"

namespace troupe::ipc {
namespace {

constexpr std::string_view kBase62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static_assert(kBase62.size() == 62);

// OpenSSL refuses parameters that need more than this; they need 128 * N * r bytes and a little.
constexpr std::uint64_t kScryptMemory = 2 * 128 * kScryptN * kScryptR;

}  // namespace

void fill_random(std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    TROUPE_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::string random_base62(std::size_t count) {
  // Bytes from 248 = 4 * 62 on would make some characters likelier.
  constexpr std::uint8_t kUnbiased = 248;
  std::string text;
  std::array<std::uint8_t, 64> bytes{};
  while (text.size() < count) {
    fill_random(bytes);
    for (const std::uint8_t byte : bytes)
      if (byte < kUnbiased && text.size() < count) text += kBase62[byte % kBase62.size()];
  }
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return text;
}

bool is_base62(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return kBase62.find(c) != std::string_view::npos; });
}

Result<Hash> scrypt(std::string_view secret, const Salt& salt) {
  Hash hash{};
  if (EVP_PBE_scrypt(secret.data(), secret.size(), salt.data(), salt.size(), kScryptN, kScryptR, kScryptP,
                     kScryptMemory, hash.data(), hash.size()) != 1)
    return Error{ErrorCode::out_of_memory, "there is no memory to check a key (4 MiB)"};
  return hash;
}

Hash keyed_hash(const Hash& key, std::string_view text) {
  Hash hash{};
  unsigned size = 0;
  const auto* const made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data(), &size);
  TROUPE_ASSERT(made && size == hash.size());
  return hash;
}

bool equal_in_constant_time(const Hash& a, const Hash& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void wipe(std::string& text) {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

}  // namespace troupe::ipc
