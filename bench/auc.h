// How well one number tells two kinds of things apart.
#pragma once

#include <algorithm>
#include <vector>

namespace troupe::bench {

// The area under the ROC curve of the best classifier by a threshold on the value: the probability that a value of one
// kind is above one of the other (equal ones count half), in whichever direction is better. 0.5: the value tells
// nothing; 1: it tells everything. 0.5 if a kind has no values. O(n log n).
[[nodiscard]] inline double auc(std::vector<double> one, std::vector<double> other) {
  if (one.empty() || other.empty()) return 0.5;
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  double above = 0;
  for (const double value : one) {
    const auto [first, last] = std::equal_range(other.begin(), other.end(), value);
    above += static_cast<double>(first - other.begin()) + 0.5 * static_cast<double>(last - first);
  }
  const double area = above / (static_cast<double>(one.size()) * static_cast<double>(other.size()));
  return std::max(area, 1 - area);
}

}  // namespace troupe::bench
