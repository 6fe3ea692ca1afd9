// Times products of one row and of eight, to choose among kernels or layouts.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <vector>

#include "engine/memory/aligned_memory.h"
#include "kernels/kernels.h"

namespace troupe::engine {

class Team;

// A matrix of some MiB, of this type and layout and of rows of k weights, read from memory. One and eight rows, because
// a server runs both single streams and batches.
class TimedProduct {
 public:
  // `kernels` and `team` must outlive it; the table has the layout for this type and k.
  TimedProduct(const kernels::KernelTable& kernels, Team& team, kernels::WeightType type, kernels::Layout layout,
               std::size_t k);

  // False if there was no memory: it then takes no time.
  bool is_there() const { return body_.data() != nullptr && prepared_.data() != nullptr; }
  // Measures once; some milliseconds.
  void run();
  // Of one row and of eight together, rounding included: the fastest of the runs; 0 before the first.
  double seconds() const { return best_ == std::numeric_limits<double>::infinity() ? 0 : best_; }
  // The same for each packed byte.
  double seconds_per_byte() const { return seconds() / static_cast<double>(body_.size()); }

 private:
  template <class Work>
  void for_each_chunk(const Work& work);

  const kernels::KernelTable& kernels_;
  Team& team_;
  kernels::Activation activation_;
  std::size_t k_;
  AlignedMemory body_, prepared_;
  kernels::MatrixView view_;
  std::vector<float> x_, out_;
  double best_ = std::numeric_limits<double>::infinity();
};

// Runs all of them several times, in turn, so that other load affects all alike.
void time_in_turn(std::deque<TimedProduct>& products);

}  // namespace troupe::engine
