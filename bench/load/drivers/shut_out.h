// Finds out that a server serves this client no more: it has gone, or refuses whatever is asked. Plain logic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/load/record.h"

namespace troupe::load {

class ShutOut {
 public:
  // A request has ended. Broken connections and refusals for good (of the user, its key or its quota, without a time to
  // come back) speak for it, an answer against it; that there is no room says nothing.
  void note(const RequestRecord& record);
  // What the first of them was told; empty: it is not so. While the run lasts, kEnough requests must have been sent in
  // vain after it: those that ran when a connection broke prove nothing.
  [[nodiscard]] std::optional<ShutOutBy> during_run() const;
  // After the run one is enough, or that nothing was ever answered.
  [[nodiscard]] std::optional<ShutOutBy> after_run() const;

  static constexpr std::uint32_t kEnough = 8;

 private:
  std::optional<ShutOutBy> first_;
  double since_s_ = 0;
  std::uint32_t num_in_vain_ = 0;
  bool was_served_ = false;
};

}  // namespace troupe::load
