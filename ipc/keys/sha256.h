// SHA-256 of data that comes in pieces.
#pragma once

#include <cstddef>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace troupe::ipc {

// Throws std::bad_alloc where there is no memory.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> data);
  // Of all that was added, in 64 lower-case digits. Once.
  [[nodiscard]] std::string hex();

 private:
  evp_md_ctx_st* context_;
};

}  // namespace troupe::ipc
