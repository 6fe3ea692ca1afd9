// Checks that a signal stops a server as documented, in every phase of its work.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/adversary/report.h"

namespace troupe::adversary {

struct SignalSetting {
  std::string program;
  std::string folder;  // for the folders of the servers
  std::string model;   // that is slow to load; empty: the embedded one
  std::vector<std::string> arguments{};
  int patience = 1;  // as often as long as promised may an exit take: under a sanitizer
};

// "decode/one", "decode/two", ...
std::vector<std::string> signal_cases();
// Starts a server, brings it into the phase, and signals. Adds violations to the report.
void run_signal_case(const std::string& name, const SignalSetting& setting, std::uint64_t seed, Report& report);

}  // namespace troupe::adversary
