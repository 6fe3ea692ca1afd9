#include "config/system_error.h"

#include <catch2/catch.hpp>

using namespace troupe;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

TEST_CASE("the error of a system call has the code that its number calls for") {
  for (const int denied : {EACCES, EPERM}) CHECK(system_error("x", denied).code == ErrorCode::permission);
  for (const int limit : {EMFILE, ENFILE, ENOMEM}) CHECK(system_error("x", limit).code == ErrorCode::os_limit);
  CHECK(system_error("x", EIO).code == ErrorCode::io);
  CHECK(system_error("x", EIO, ErrorCode::bad_config).code == ErrorCode::bad_config);
  CHECK(system_error("x", EMFILE, ErrorCode::bad_config).code == ErrorCode::os_limit);
}

TEST_CASE("the error of a system call says what failed and why, and what to raise where a limit is reached") {
  CHECK(system_error("/a: cannot be read", EIO).message == "/a: cannot be read: Input/output error");
  CHECK_THAT(system_error("x", EMFILE).message, EndsWith("raise ulimit -n (LimitNOFILE= of a unit)"));
  CHECK_THAT(system_error("x", ENOMEM).message, Contains("ulimit -v"));
}
