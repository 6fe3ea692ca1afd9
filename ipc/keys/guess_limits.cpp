#include "ipc/keys/guess_limits.h"

#include <arpa/inet.h>

#include <array>

namespace troupe::ipc {

std::string guessing_peer(std::string_view address) {
  const std::string text(address.substr(0, address.find('%')));  // without the interface: "fe80::1%eth0"
  in6_addr parsed{};
  if (::inet_pton(AF_INET6, text.c_str(), &parsed) != 1) return text;
  if (IN6_IS_ADDR_V4MAPPED(&parsed)) {
    std::array<char, INET_ADDRSTRLEN> v4{};
    return ::inet_ntop(AF_INET, &parsed.s6_addr[12], v4.data(), v4.size());
  }
  constexpr std::size_t kNetworkBytes = 8;
  for (std::size_t i = kNetworkBytes; i < sizeof(parsed.s6_addr); ++i) parsed.s6_addr[i] = 0;
  std::array<char, INET6_ADDRSTRLEN> network{};
  return ::inet_ntop(AF_INET6, &parsed, network.data(), network.size());
}

double GuessLimits::take(const std::string& peer, double now) {
  scheduler::TokenBucket& bucket = bucket_of(peer, now);
  const double wait = bucket.wait_for(1, now);
  if (wait == 0) bucket.take(1, now);
  return wait;
}

void GuessLimits::give_back(const std::string& peer, double now) {
  const auto found = peers_.find(peer);
  (found == peers_.end() ? others_ : found->second).give_back(1, now);
}

scheduler::TokenBucket& GuessLimits::bucket_of(const std::string& peer, double now) {
  if (const auto found = peers_.find(peer); found != peers_.end()) return found->second;
  if (peers_.size() >= kMaxGuessingPeers) forget_full(now);
  if (peers_.size() >= kMaxGuessingPeers) return others_;
  return peers_.try_emplace(peer, kMaxGuesses, kGuessesPerSecond).first->second;
}

void GuessLimits::forget_full(double now) {
  if (swept_ >= 0 && now - swept_ < 1) return;
  swept_ = now;
  std::erase_if(peers_, [&](const auto& each) { return each.second.is_full(now); });
}

}  // namespace troupe::ipc
