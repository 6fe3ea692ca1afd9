// Memory of a rendering, counted where it is taken: containers that use this allocator cannot forget to.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace troupe::engine::chat {

// Counts what the allocations below take on the thread that made it, from then until it is destroyed; throws
// TemplateError before more than `limit` bytes are taken. Of several on one thread the last one counts.
class MemoryAccount {
 public:
  explicit MemoryAccount(std::size_t limit);
  ~MemoryAccount();
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  void take(std::size_t bytes) {
    if (bytes > limit_ - bytes_) throw_full();
    bytes_ += bytes;
    if (bytes_ > most_) most_ = bytes_;
  }
  void give_back(std::size_t bytes) { bytes_ -= bytes; }
  std::size_t most() const { return most_; }  // bytes at one time, so far

  // Null outside of a rendering, as while a template is parsed: then nothing is counted.
  static MemoryAccount* current();

 private:
  [[noreturn]] void throw_full() const;

  std::size_t limit_;
  std::size_t bytes_ = 0, most_ = 0;
  MemoryAccount* outer_;
};

void* take_charged(std::size_t bytes);
void give_back_charged(void* memory, std::size_t bytes) noexcept;

template <class T>
struct Charged {
  using value_type = T;
  Charged() = default;
  template <class U>
  Charged(const Charged<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(take_charged(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { give_back_charged(memory, count * sizeof(T)); }
  template <class U>
  bool operator==(const Charged<U>&) const {
    return true;
  }
};

using ChargedBytes = std::basic_string<char, std::char_traits<char>, Charged<char>>;
template <class T>
using ChargedVector = std::vector<T, Charged<T>>;

}  // namespace troupe::engine::chat
