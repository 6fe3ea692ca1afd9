// How many mutations a test tries: few where tests run all the time, TROUPE_MUTATIONS for a long run.
#pragma once

#include <cstdlib>
#include <string>

namespace troupe::fuzz {

inline int num_mutations(int ordinary) {
  const char* const wanted = std::getenv("TROUPE_MUTATIONS");
  return wanted != nullptr && *wanted != '\0' ? std::stoi(wanted) : ordinary;
}

}  // namespace troupe::fuzz
