// What a refusal says reaches the client on every way there is.
#include <catch2/catch.hpp>

#include "actors/requests/request_check.h"
#include "ipc/http/api/error.h"
#include "ipc/http/response.h"

using namespace troupe;
using namespace troupe::ipc;
using scheduler::Outcome;

namespace {

// The time of a retry that a frame names.
std::optional<std::uint64_t> retry_ms(const v1::ServerFrame& frame) {
  REQUIRE(frame.has_refused());
  if (!frame.refused().has_retry_after_ms()) return std::nullopt;
  return frame.refused().retry_after_ms();
}

}  // namespace

TEST_CASE("a refusal's time to retry, field and limit are the same in a frame, an answer, an end and over HTTP") {
  const double never = std::numeric_limits<double>::infinity();
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes()) {
    if (row.kind != scheduler::OutcomeKind::refused) continue;
    for (const std::optional<double> retry : {std::optional<double>(), std::optional(0.25), std::optional(never)}) {
      INFO(row.name << " " << retry.value_or(-1));
      const Refusal refusal{
          .outcome = row.outcome, .message = "no", .field = "a_limit", .limit = 7, .retry_after = retry};
      std::optional<std::uint64_t> expected;
      if (retry == 0.25) expected = 250;
      if (!retry && row.retryable) expected = 1000;

      for (const v1::ServerFrame& frame :
           {to_frame(3, refusal), to_frame(3, actors::SessionAnswer(refusal)), to_frame(3, actors::refused(refusal))}) {
        CHECK(retry_ms(frame) == expected);
        CHECK(frame.refused().code() == static_cast<int>(row.outcome));
        CHECK(frame.refused().message() == "no");
        CHECK(frame.refused().field() == "a_limit");
        CHECK(frame.refused().limit() == 7);
      }
      for (const api::ApiError& error : {api::api_error(refusal), api::api_error(actors::refused(refusal))}) {
        CHECK(error.retry_after.has_value() == expected.has_value());
        if (expected) CHECK(error.retry_after == std::chrono::milliseconds(*expected));
        CHECK(error.param == "a_limit");
        CHECK(error.message == "no");
        CHECK(error.retryable == (row.retryable && expected.has_value()));
      }
      const std::string bytes = http::refusal_bytes(refusal);
      CHECK((bytes.find("\r\nretry-after-ms: ") != std::string::npos) == expected.has_value());
    }
  }
}
