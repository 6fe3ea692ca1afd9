#include "ipc/keys/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <new>

namespace troupe::ipc {

Sha256::Sha256() : context_(::EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) {
    ::EVP_MD_CTX_free(context_);
    throw std::bad_alloc();
  }
}

Sha256::~Sha256() { ::EVP_MD_CTX_free(context_); }

void Sha256::add(std::span<const std::byte> data) { ::EVP_DigestUpdate(context_, data.data(), data.size()); }

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  ::EVP_DigestFinal_ex(context_, digest.data(), nullptr);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace troupe::ipc
