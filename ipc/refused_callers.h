// Connections to the Unix socket that are refused: each gets one answer, in the protocol that its first bytes are of.
#pragma once

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "config/file_descriptor.h"
#include "ipc/frames/wire.h"

namespace troupe::ipc {

// So many may wait for their first bytes, and so long; others get a frame at once.
inline constexpr std::size_t kMaxWaitingRefused = 32;
inline constexpr std::chrono::milliseconds kRefusedWait{100};

// What a refused client is told.
struct LastWords {
  explicit LastWords(const Refusal& refusal);
  // In the protocol of the client's first bytes: `begun`, which were taken, and what waits in the socket. Of a client
  // that has sent nothing: a frame.
  [[nodiscard]] const std::string& in_protocol_of(int connection, std::string_view begun = {}) const;
  std::string frame;
  std::string http;
};

// Used by the io thread; what waits is answered or dropped by the time that `io` has run out of work.
class RefusedCallers {
 public:
  explicit RefusedCallers(asio::io_context& io) : io_(io) {}
  // Answers, and closes the connection, at once or after kRefusedWait at most.
  void refuse(FileDescriptor connection, std::shared_ptr<const LastWords> words);
  // The same, without waiting.
  static void refuse_now(int connection, const LastWords& words);

 private:
  asio::io_context& io_;
  std::size_t num_waiting_ = 0;
};

}  // namespace troupe::ipc
