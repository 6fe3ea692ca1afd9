#include "scheduler/outcome.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

using namespace troupe::scheduler;

TEST_CASE("every outcome has one row, a number of its own and a name of its own") {
  std::set<std::uint32_t> numbers;
  std::set<std::string_view> names;
  for (const OutcomeInfo& row : outcomes()) {
    REQUIRE(numbers.insert(static_cast<std::uint32_t>(row.outcome)).second);
    REQUIRE(names.insert(row.name).second);
    REQUIRE(&info(row.outcome) == &row);
    REQUIRE(outcome_from_number(static_cast<std::uint32_t>(row.outcome)) == row.outcome);
  }
  REQUIRE(outcomes().size() == 24);
}

TEST_CASE("the numbers of outcomes, which are on the wire, do not change") {
  const std::pair<std::uint32_t, std::string_view> expected[] = {
      {1, "eos"},
      {2, "stop_id"},
      {3, "stop_string"},
      {4, "length"},
      {5, "cancelled"},
      {6, "deadline"},
      {7, "tool_call"},
      {100, "invalid_argument"},
      {101, "too_long"},
      {102, "never_fits"},
      {103, "unknown_model"},
      {104, "loading"},
      {105, "draining"},
      {106, "queue_full"},
      {107, "quota"},
      {108, "deadline_unmeetable"},
      {109, "permission"},
      {110, "unsupported"},
      {200, "worker_lost"},
      {201, "quarantined"},
      {202, "preempted_too_often"},
      {203, "model_unloaded"},
      {204, "out_of_memory"},
      {205, "internal"},
  };
  for (const auto& [number, name] : expected) {
    const auto outcome = outcome_from_number(number);
    REQUIRE(outcome.has_value());
    REQUIRE(info(*outcome).name == name);
  }
  for (std::uint32_t number : {0u, 8u, 99u, 111u, 206u, 65637u}) REQUIRE_FALSE(outcome_from_number(number).has_value());
}

TEST_CASE("the kind of an outcome shows in its number, exit code and HTTP status") {
  for (const OutcomeInfo& row : outcomes()) {
    INFO(row.name);
    const auto number = static_cast<std::uint32_t>(row.outcome);
    REQUIRE((row.kind == OutcomeKind::done) == (number < 100));
    REQUIRE((row.kind == OutcomeKind::failed) == (number >= 200));
    if (row.kind == OutcomeKind::done) {
      const bool is_cut = row.outcome == Outcome::cancelled || row.outcome == Outcome::deadline;
      REQUIRE((row.exit_code == 0) == !is_cut);
      REQUIRE((row.http_status == 200) == (row.outcome != Outcome::cancelled));
      REQUIRE_FALSE(row.retryable);
    } else {
      REQUIRE(row.exit_code != 0);
      REQUIRE(row.http_status >= 400);
    }
    if (row.exit_code == 75) REQUIRE(row.retryable);
  }
  REQUIRE(info(Outcome::queue_full).exit_code == 75);
  REQUIRE(info(Outcome::queue_full).http_status == 429);
  REQUIRE(info(Outcome::permission).exit_code == 77);
  REQUIRE(info(Outcome::invalid_argument).exit_code == 2);
}

TEST_CASE("a refusal can be tried again when it says, after a second where it does not know, or never") {
  CHECK(retry_ms({.outcome = Outcome::quota, .retry_after = 0.0101}) == 11);
  CHECK(retry_ms({.outcome = Outcome::quota, .retry_after = 0}) == 1);
  CHECK(retry_ms({.outcome = Outcome::quota}) == 1000);
  CHECK_FALSE(retry_ms({.outcome = Outcome::quota, .retry_after = std::numeric_limits<double>::infinity()}));
  CHECK_FALSE(retry_ms({.outcome = Outcome::unsupported}));
}
