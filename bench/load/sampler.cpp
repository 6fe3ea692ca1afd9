#include "bench/load/sampler.h"

#include <utility>

namespace troupe::load {

Sampler::Sampler(client::Client& client, Clock::time_point start, std::chrono::milliseconds interval)
    : client_(client), start_(start), interval_(interval), thread_([this] { work(); }) {}

Sampler::~Sampler() { finish(); }

std::vector<ServerSample> Sampler::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  return std::exchange(samples_, {});
}

// Samples at fixed times, independent of when answers arrive: if the server answers late, samples are skipped and not
// made up for in a burst.
void Sampler::work() {
  std::unique_lock lock(mutex_);
  Clock::time_point due = start_;
  for (;;) {
    const bool last = finished_;
    lock.unlock();
    take();
    lock.lock();
    if (last) return;
    while (due <= Clock::now()) due += interval_;
    changed_.wait_until(lock, due, [&] { return finished_; });
  }
}

void Sampler::take() {
  const auto status = client_.status();
  if (!status) return;  // the run itself will report that the server is gone
  samples_.push_back({.at_s = std::chrono::duration<double>(Clock::now() - start_).count(),
                      .running = status->count("requests_running"),
                      .waiting = status->count("requests_waiting"),
                      .parked = status->count("requests_parked"),
                      .generated_tokens = status->count("generated_tokens"),
                      .steps = status->count("steps"),
                      .step_seconds = status->value("step_seconds"),
                      .blocks_free = status->count("blocks_free"),
                      .blocks_total = status->count("blocks_total")});
}

}  // namespace troupe::load
