// Samples the server's counters periodically, for the timeline of a run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/load/record.h"
#include "ipc/client/client.h"

namespace troupe::load {

// Samples from its own thread between construction and finish(). Borrows the client, which may be used concurrently.
class Sampler {
 public:
  using Clock = std::chrono::steady_clock;

  // `start`: time 0 of the samples.
  Sampler(client::Client& client, Clock::time_point start, std::chrono::milliseconds interval);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Takes a last sample and returns all samples. Call it once.
  std::vector<ServerSample> finish();

 private:
  void work();
  void take();

  client::Client& client_;
  const Clock::time_point start_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::vector<ServerSample> samples_;  // used by the thread only until it is joined
  std::thread thread_;
};

}  // namespace troupe::load
