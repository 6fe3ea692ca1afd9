// When a run is over because the server serves this client no more.
#include "bench/load/drivers/shut_out.h"

#include <catch2/catch.hpp>

using namespace troupe::load;

namespace {

RequestRecord ended_as(EndKind kind, const std::string& outcome, double sent_s, double end_s) {
  RequestRecord record;
  record.kind = kind;
  record.outcome = outcome;
  record.sent_s = sent_s;
  record.end_s = end_s;
  record.message = "why: " + outcome;
  return record;
}

}  // namespace

TEST_CASE("requests that were sent after the first refusal prove it, those that ran at that moment do not") {
  for (const char* const outcome : {"permission", "http_401", "http_403", "quota"}) {
    ShutOut shut_out;
    for (int i = 0; i < 64; ++i) shut_out.note(ended_as(EndKind::refused, outcome, 1, 2));
    CHECK_FALSE(shut_out.during_run());
    for (std::uint32_t i = 0; i < ShutOut::kEnough; ++i) {
      CHECK_FALSE(shut_out.during_run());
      shut_out.note(ended_as(EndKind::refused, outcome, 3, 4));
    }
    REQUIRE(shut_out.during_run());
    CHECK(shut_out.during_run()->denied);
    CHECK(shut_out.during_run()->why == std::string("why: ") + outcome);
  }
}

TEST_CASE("a server that answers in between, has no room or breaks off answers shuts no client out") {
  ShutOut shut_out;
  RequestRecord broken = ended_as(EndKind::lost, "connection", 3, 4);
  broken.completion_tokens = 2;
  RequestRecord later = ended_as(EndKind::refused, "quota", 3, 4);
  later.retry_after_s = 1;
  for (int i = 0; i < 20; ++i) {
    shut_out.note(ended_as(EndKind::lost, "connection", 3, 3));
    shut_out.note(ended_as(EndKind::lost, "connection", 4, 4));
    shut_out.note(ended_as(EndKind::done, "length", 3, 4));
  }
  for (int i = 0; i < 20; ++i) {
    shut_out.note(broken);
    shut_out.note(later);
    shut_out.note(ended_as(EndKind::refused, "queue_full", 4, 5));
    shut_out.note(ended_as(EndKind::lost, "disconnected", 4, 5));
  }
  CHECK_FALSE(shut_out.during_run());
  CHECK_FALSE(shut_out.after_run());
}

TEST_CASE("after the run a short one is judged, too") {
  ShutOut none, last, alone;
  none.note(ended_as(EndKind::done, "length", 0, 1));
  last.note(ended_as(EndKind::done, "length", 0, 1));
  last.note(ended_as(EndKind::lost, "connection", 1, 1));
  CHECK_FALSE(none.after_run());
  CHECK_FALSE(last.after_run());  // one answer that broke off
  last.note(ended_as(EndKind::lost, "connection", 1, 2));
  REQUIRE(last.after_run());
  CHECK_FALSE(last.after_run()->denied);
  alone.note(ended_as(EndKind::refused, "http_401", 0, 1));
  CHECK(alone.after_run());
}
