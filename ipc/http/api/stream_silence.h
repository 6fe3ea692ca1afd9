// When a streamed answer that has nothing to say sends something all the same, so that neither its client nor a proxy
// takes the connection for dead. Plain: time is an argument.
#pragma once

#include <chrono>
#include <optional>

namespace troupe::ipc::api {

struct SilenceLimits {
  // After an admitted request has waited so long, the head is sent. Until then a refusal has a status of its own.
  std::chrono::milliseconds head_after{1'000};
  // After so long without a byte something is sent that clients pass over.
  std::chrono::milliseconds ping_after{15'000};
  // A request that waits for its model to be loaded: after so long the head is sent, and then, as often, how the load
  // stands. Clients wait some ten seconds for a head; loads that fail mostly do so before it.
  std::chrono::milliseconds load_after{5'000};
};

class StreamSilence {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit StreamSilence(const SilenceLimits& limits) : limits_(limits) {}

  // The whole request was admitted: it waits for its turn.
  void admitted(TimePoint now) {
    if (!due_) due_ = now + limits_.head_after;
  }
  // It waits for its model to be loaded: until it is admitted, or loaded() is called.
  void waits_for_load(TimePoint now) { due_ = now + limits_.load_after; }
  void loaded() { due_.reset(); }
  // Something of the answer was sent.
  void sent(TimePoint now) { due_ = now + limits_.ping_after; }
  // When something is to be sent; nullopt: not before the request is admitted, or waits for a load.
  [[nodiscard]] std::optional<TimePoint> due() const { return due_; }

 private:
  const SilenceLimits limits_;
  std::optional<TimePoint> due_;
};

}  // namespace troupe::ipc::api
