// Test cases that skip, for skip_test.sh to look at.
#include <catch2/catch.hpp>

#include "tests/support/shared_data.h"

using troupe::test::shared_file;
using troupe::test::skip;

TEST_CASE("checks nothing for lack of a file", "[whole]") {
  for (int i = 0; i < 3; ++i)  // said once
    if (shared_file("golden/first.json")) FAIL("there is such a file");
  if (shared_file("golden/second.json")) FAIL("there is such a file");
}

TEST_CASE("checks nothing, in the older words", "[whole]") { WARN("skipped: only root can become another user"); }

TEST_CASE("checks something, and skips a variant", "[part]") {
  skip("this CPU lacks kernels", "amx");
  CHECK(true);
}

TEST_CASE("warns of something else", "[other]") { WARN("not skipped: a warning"); }

TEST_CASE("fails in front of what it skips", "[failure]") {
  CHECK(false);
  skip("this CPU lacks kernels", "amx");
}
