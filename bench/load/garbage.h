// Bytes that are not the protocol, on connections of their own: what a broken or hostile client sends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <queue>
#include <string>
#include <thread>

#include "bench/load/record.h"

namespace troupe::load {

// The bytes of the way `choice`, which differ in what they break: random bytes, a length above every limit, an HTTP
// request, a frame that is no message, a frame that ends early, a frame before the greeting, garbage after a proper
// greeting. A function of (seed, choice).
[[nodiscard]] std::string garbage_bytes(std::uint64_t seed, std::uint32_t choice);

// Sends garbage from a thread of its own, one connection after the other. send() may be called from any thread.
class GarbageSender {
 public:
  GarbageSender(std::string socket, std::uint64_t seed);
  ~GarbageSender();
  GarbageSender(const GarbageSender&) = delete;
  GarbageSender& operator=(const GarbageSender&) = delete;

  // Connects soon, sends, and waits until the server closes the connection, ten seconds at most.
  void send(std::uint32_t choice);
  // Waits until all is sent and answered, and says what came of it. Call it once.
  GarbageCount finish();

 private:
  void work();
  void send_one(std::uint32_t choice);

  const std::string socket_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::uint32_t> waiting_;
  bool finished_ = false;
  GarbageCount count_;  // the thread's until it is joined
  std::thread thread_;  // started with the first garbage
};

}  // namespace troupe::load
