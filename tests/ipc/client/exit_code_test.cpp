#include <catch2/catch.hpp>

#include "cli/terminal/exit_code.h"
#include "ipc/client/conversions.h"
#include "scheduler/outcome.h"

namespace troupe::client {
namespace {

TEST_CASE("a refusal ends every client subcommand with the exit code that the table of outcomes has for `troupe run`") {
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes()) {
    if (row.kind != scheduler::OutcomeKind::refused) continue;
    INFO(row.name);
    v1::Refused refused;
    refused.set_code(static_cast<v1::Outcome>(row.outcome));
    CHECK(cli::client_exit_code(to_error(refused).code) == row.exit_code);
  }
}

}  // namespace
}  // namespace troupe::client
