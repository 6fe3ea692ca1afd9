// How many wrong keys each peer may send. Plain logic; times are seconds of any clock that only goes forward.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "scheduler/shares/token_bucket.h"

namespace troupe::ipc {

inline constexpr double kMaxGuesses = 20;               // in a row
inline constexpr double kGuessesPerSecond = 0.5;        // afterwards
inline constexpr std::size_t kMaxGuessingPeers = 4096;  // remembered; further ones share one allowance

// Whose guesses, and whose connections that have shown no right key, count together: the address in IPv4, its network
// of 64 bits in IPv6 (a host has one of those for itself). An address that cannot be read is a peer of its own.
[[nodiscard]] std::string guessing_peer(std::string_view address);

// Not thread-safe.
class GuessLimits {
 public:
  // Takes a guess of the peer's. 0: it was left; else the seconds until the next one is.
  [[nodiscard]] double take(const std::string& peer, double now);
  // The guess was not looked at: it does not count.
  void give_back(const std::string& peer, double now);

  [[nodiscard]] std::size_t num_peers() const { return peers_.size(); }

 private:
  // Forgets peers that have all guesses left, at most once in a second.
  void forget_full(double now);
  scheduler::TokenBucket& bucket_of(const std::string& peer, double now);

  std::unordered_map<std::string, scheduler::TokenBucket> peers_;
  scheduler::TokenBucket others_{kMaxGuesses, kGuessesPerSecond};
  double swept_ = -1;
};

}  // namespace troupe::ipc
