// What a test cannot run here, and why: for lack of reference data, of a CPU's feature, of a user's rights.
//
// Catch2 2 knows no skipped cases. A case calls skip() and returns, or goes on with the rest. A program lists its lines
// at its end (catch_main.cpp); ctest shows it as Skipped if none of its cases checked anything; ./test.sh sums up all
// programs' lines by reason (tools/skipped.sh). WARN("skipped: REASON") does the same where this file is not included.
#pragma once

#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace troupe::test {

// Lines are counted by `reason`, which has no colon; `detail` names a file or a variant. Said once for a case.
inline void skip(const std::string& reason, const std::string& detail = "") {
  static std::set<std::string> said;
  const std::string line = detail.empty() ? reason : reason + ": " + detail;
  if (said.insert(Catch::getResultCapture().getCurrentTestName() + '\t' + line).second) WARN("skipped: " << line);
}

}  // namespace troupe::test
