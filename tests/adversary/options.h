// The command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::adversary {

// Bounds of the measured values.
struct Bounds {
  bool latency = true;            // false: no times are bounded
  double health_ms = 20;          // a neighbour's Health, p99
  double first_token_factor = 3;  // its time to a first token, p99, against its own without an attack
  double first_token_ms = 5;      // taken as that where it is less
  double busy_health_ms = 100;    // its Health where the attack makes the server compute
  double wait_ms = 2000;          // its small Tokenize and Detokenize, p99
  double compute_ms = 10'000;     // its Generates where the attack makes the server compute, p99
  double session_ms = 400;        // its session turn, p99, above that without an attack: two steps and 200 ms
  double connect_ms = 250;        // connecting until Welcome, p99
  // Of what may take only so long whatever is measured (an exit, an answer at all): how many times as long it may take.
  int patience() const { return latency ? 1 : 5; }
  std::uint64_t max_rss = 0;            // resident memory; 0: by the limits
  std::uint64_t stop_rss = 4ull << 30;  // an attack that made the server hold as much is stopped
};

struct Options {
  std::string troupe;
  double seconds = 60;
  std::uint64_t seed = 1;
  std::vector<std::string> attacks{};  // as they were given; empty: all
  Bounds bounds;
  std::string report;
  std::string model;
  std::vector<std::string> server_arguments{};  // after "--"
  bool list = false;
  bool help = false;
};

// On error `error` says what is wrong.
Options parse_options(const std::vector<std::string>& arguments, std::string& error);
std::string help_text();

}  // namespace troupe::adversary
