#include <algorithm>

#include "config/values.h"

namespace troupe::config {
namespace {

// Optimal string alignment distance (Damerau-Levenshtein without edits of swapped letters): three rows of the table.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

}  // namespace

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> names) {
  const std::string_view wanted = without_dashes(name);
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const std::string_view letters = without_dashes(candidate);
    const std::size_t distance = edit_distance(wanted, letters);
    // Names with no letter in common are not similar: "x" is not a typo of "c".
    if (distance < best_distance && distance < std::max(wanted.size(), letters.size())) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

}  // namespace troupe::config
