// How a run's tenants shared the server. Plain logic over plain values.
//
// A tenant is served the tokens that the server computed for it: those of prompts, without cached ones, and those of
// answers, whatever became of the request. And it is served the time of computing that its requests' receipts say,
// which is what a troupe server shares by weight: a token of a long prompt takes less of it than one of an answer. Only
// the time counts in which every tenant had requests: a tenant that ends early would otherwise seem to have been served
// little.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "bench/load/record.h"

namespace troupe::load {

// The fairness index of Jain, Chiu and Hawe (1984): (sum of x)^2 / (n * sum of x^2), from 1 / n (one has all) to 1 (all
// have the same). `values` are not negative; of none, or of zeros alone, it is 1. O(n).
[[nodiscard]] double jain_index(std::span<const double> values);

// What one tenant was served of one thing.
struct Served {
  double per_s = 0;
  double share = 0;      // of what all were served, 0 to 1
  double deviation = 0;  // share / Share::due - 1
};

struct Share {
  std::size_t tenant = 0;  // its place in Run::tenants
  double due = 0;          // of the sum of the weights
  Served tokens{};
  Served time{};  // seconds of computing
};

struct Evenness {
  std::size_t worst = 0;  // the place in Fairness::shares of the deviation that is largest in size
  double jain = 1;        // of what was served per weight
};

struct Fairness {
  double from_s = 0, to_s = 0;  // the time in which every tenant had requests
  std::vector<Share> shares{};  // of the tenants that have one, in their order
  Evenness of_tokens{};
  std::optional<Evenness> of_time{};  // absent: the server sends no receipts
};

// Absent if fewer than two tenants have a share, or nothing was served while all of them had requests. O(arrivals).
[[nodiscard]] std::optional<Fairness> fairness_of(const Run& run);

}  // namespace troupe::load
