#include "bench/load/drivers/verify.h"

#include <catch2/catch.hpp>
#include <set>

#include "bench/load/drivers/exchange.h"
#include "bench/load/drivers/garbage.h"

using namespace troupe;
using namespace troupe::load;

namespace {

RequestRecord ended(EndKind kind, const std::string& outcome) {
  RequestRecord record;
  record.kind = kind;
  record.outcome = outcome;
  return record;
}

const Answer kAlone{{5, 6, 7}, "abc"};

std::string compare(const RequestRecord& record, const Answer& answer) {
  return difference(record, answer, kAlone, "length");
}

}  // namespace

TEST_CASE("a whole answer must be equal in tokens, text and outcome") {
  const RequestRecord whole = ended(EndKind::done, "length");
  CHECK(compare(whole, kAlone).empty());
  CHECK(compare(whole, {{5, 9, 7}, "abc"}) == "token 1 is 9, alone it is 6");
  CHECK(compare(whole, {{5, 6}, "ab"}) == "it has 2 tokens, alone 3");
  CHECK(compare(whole, {{5, 6, 7, 8}, "abcd"}) == "it has 4 tokens, alone 3");
  CHECK(compare(whole, {{5, 6, 7}, "abd"}) == "its tokens are equal, its text is not");
  CHECK(compare(whole, {{5, 6, 7}, "ab"}) == "its tokens are equal, its text is not");
  CHECK(compare(ended(EndKind::done, "eos"), kAlone) == "it ended with eos, alone with length");
}

TEST_CASE("an answer that was cut must be a prefix of the other") {
  for (const RequestRecord& cut : {ended(EndKind::done, "cancelled"), ended(EndKind::done, "deadline"),
                                   ended(EndKind::lost, "disconnected"), ended(EndKind::failed, "worker_lost")}) {
    INFO(cut.outcome);
    CHECK(compare(cut, {{5, 6}, "a"}).empty());
    CHECK(compare(cut, kAlone).empty());
    CHECK(compare(cut, {{5, 7}, "a"}) == "token 1 is 7, alone it is 6");
    CHECK(compare(cut, {{5, 6, 7, 8}, "abc"}) == "it has 4 tokens, alone 3");
    CHECK(compare(cut, {{5, 6}, "b"}) == "its tokens are equal, its text is not");
  }
}

TEST_CASE("an end is recorded as the client saw it") {
  Exchange exchange;
  SECTION("done") {
    client::Ended end{.outcome = client::Outcome::length};
    end.usage.completion_tokens = 3;
    end.usage.prompt_tokens = 8;
    end.usage.cached_tokens = 4;
    exchange.record.completion_tokens = 3;
    exchange.end = end;
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::done);
    CHECK(exchange.record.outcome == "length");
    CHECK(exchange.record.prompt_tokens == 8);
    CHECK(exchange.record.cached_tokens == 4);
    CHECK(exchange.record.num_ends == 1);
  }
  SECTION("done, with a token less than the server counts") {
    client::Ended end{.outcome = client::Outcome::length};
    end.usage.completion_tokens = 3;
    exchange.record.completion_tokens = 2;
    exchange.end = end;
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::failed);
    CHECK(exchange.record.message == "of 3 tokens 2 came");
  }
  SECTION("done, with tokens twice") {
    exchange.out_of_order = true;
    exchange.end = client::Ended{.outcome = client::Outcome::eos};
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::failed);
    CHECK(exchange.record.outcome == "out_of_order");
  }
  SECTION("refused") {
    exchange.end = client::Ended{.outcome = client::Outcome::queue_full, .message = "full"};
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::refused);
    CHECK(exchange.record.outcome == "queue_full");
    CHECK(exchange.record.message == "full");
  }
  SECTION("disconnected by an injected fault") {
    exchange.record.fault = Fault::disconnect;
    exchange.record.fault_at_s = 1;
    exchange.end = Error{ErrorCode::io, "closed"};
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::lost);
    CHECK(exchange.record.outcome == "disconnected");
  }
  SECTION("the connection broke") {
    exchange.end = Error{ErrorCode::io, "broken"};
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::lost);
    CHECK(exchange.record.outcome == "connection");
  }
  SECTION("no room for the connection") {
    exchange.end = Error{ErrorCode::busy, "too many"};
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::refused);
    CHECK(exchange.record.outcome == "connection_refused");
  }
  SECTION("it never came") {
    settle(exchange);
    CHECK(exchange.record.kind == EndKind::none);
    CHECK(exchange.record.num_ends == 0);
  }
}

TEST_CASE("garbage has all its kinds, and the same seed gives the same bytes") {
  std::set<std::string> seen;
  for (std::uint32_t choice = 0; choice < 7; ++choice) {
    const std::string bytes = garbage_bytes(1, choice);
    CHECK(bytes.size() >= 8);
    CHECK(bytes == garbage_bytes(1, choice));
    seen.insert(bytes);
  }
  CHECK(seen.size() == 7);
  CHECK(garbage_bytes(1, 0) != garbage_bytes(2, 0));
  CHECK(garbage_bytes(1, 0) != garbage_bytes(1, 7));
}
