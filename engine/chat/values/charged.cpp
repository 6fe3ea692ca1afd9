#include "engine/chat/values/charged.h"

#include <fmt/format.h>

#include "engine/chat/values/template_error.h"

namespace troupe::engine::chat {
namespace {

thread_local MemoryAccount* current_account = nullptr;

constexpr std::size_t kOverhead = 16;  // of the C library, for each allocation

}  // namespace

MemoryAccount::MemoryAccount(std::size_t limit) : limit_(limit), outer_(current_account) { current_account = this; }
MemoryAccount::~MemoryAccount() { current_account = outer_; }

MemoryAccount* MemoryAccount::current() { return current_account; }

void MemoryAccount::throw_full() const {
  throw TemplateError(fmt::format("its values take more than {} MiB", limit_ >> 20));
}

void* take_charged(std::size_t bytes) {
  if (current_account != nullptr) current_account->take(bytes + kOverhead);
  return ::operator new(bytes);
}

void give_back_charged(void* memory, std::size_t bytes) noexcept {
  if (current_account != nullptr) current_account->give_back(bytes + kOverhead);
  ::operator delete(memory);
}

}  // namespace troupe::engine::chat
