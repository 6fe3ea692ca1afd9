// Bytes that break the protocol, sent on separate connections, as a broken or hostile client does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <thread>

#include "bench/load/drivers/as_user.h"
#include "bench/load/record.h"

namespace troupe::load {

// The garbage number `choice`. `choice` also selects the kind: random bytes, a length above every limit, HTTP with two
// lengths for one body, a frame that is no message, one that ends early, a frame before Hello, garbage after a proper
// Hello. A pure function of (seed, choice).
[[nodiscard]] std::string garbage_bytes(std::uint64_t seed, std::uint32_t choice);

// Sends garbage from its own thread, one connection after the other. send() may be called from any thread.
class GarbageSender {
 public:
  // `user`: of the connections; absent, or where the kernel refuses it: that of this process.
  GarbageSender(std::string socket, std::uint64_t seed, std::optional<User> user);
  ~GarbageSender();
  GarbageSender(const GarbageSender&) = delete;
  GarbageSender& operator=(const GarbageSender&) = delete;

  // Queues garbage. The thread connects, sends it, and waits at most 10 s for the server to close the connection.
  void send(std::uint32_t choice);
  // Waits until all garbage is sent and answered, and returns the counts. Call it once.
  GarbageCount finish();

 private:
  void work();
  void send_one(std::uint32_t choice);

  const std::string socket_;
  const std::uint64_t seed_;
  const std::optional<User> user_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::uint32_t> waiting_;
  bool finished_ = false;
  GarbageCount count_;  // used by the thread only until it is joined
  std::thread thread_;  // started with the first garbage
};

}  // namespace troupe::load
