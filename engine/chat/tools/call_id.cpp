#include "engine/chat/tools/call_id.h"

namespace troupe::engine::chat {

// The end of splitmix64 spreads the number over all digits.
std::string call_id(std::uint64_t number) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9ull;
  number = (number ^ (number >> 27)) * 0x94D049BB133111EBull;
  number ^= number >> 31;
  std::string id;
  for (std::size_t i = 0; i < kCallIdBytes; ++i, number /= kDigits.size()) id += kDigits[number % kDigits.size()];
  return id;
}

std::string call_id_for(std::string_view id) {
  if (id.size() == kCallIdBytes) return std::string(id);
  std::uint64_t hash = id.size();
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull + 1;
  return call_id(hash);
}

}  // namespace troupe::engine::chat
