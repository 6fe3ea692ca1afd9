// The streams of a connection, without one: credit, cancellation, counts.
#include "ipc/streams.h"

#include <catch2/catch.hpp>

#include "tests/ipc/fixture.h"

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using scheduler::Outcome;

namespace {

constexpr std::uint32_t kUid = 1000;

struct NoSink final : actors::StreamSink {
  void tokens(actors::TokenRun) override {}
  void end(actors::End) override {}
};

struct Fixture {
  Fixture() { hub.gateway = &gateway; }

  Streams::Stream& generate(std::uint64_t number, std::uint32_t n, std::uint64_t credit, bool implicit = false) {
    hub.count_received(*tally, RequestKind::generate, n);
    Streams::Stream& stream = streams.enter(number, RequestKind::generate, tally, n);
    stream.implicit_credit = implicit;
    actors::Request request;
    request.prompt = "hello";
    request.num_choices = n;
    request.credit = credit;
    streams.submit(stream, std::move(request), std::make_shared<NoSink>());
    return stream;
  }
  void send(std::uint64_t number, std::uint32_t choice, std::size_t count) {
    actors::TokenRun run;
    run.choice = choice;
    run.ids.assign(count, 5);
    REQUIRE(streams.enter_tokens(number, run) != nullptr);
  }
  std::uint64_t ended(Outcome outcome) const { return tally->counts.num_ended(RequestKind::generate, outcome); }

  FakeGateway gateway;
  Hub hub{ServerOptions{}};
  std::shared_ptr<Tally> tally = hub.tally(TenantId{kUid});
  Streams streams{hub, kUid};
};

}  // namespace

TEST_CASE("streams: granted credit reaches the gateway once per choice, and never more than can be counted") {
  Fixture f;
  f.generate(1, 2, 0);
  f.streams.grant(1, 0, 3);
  f.streams.grant(1, 0, 4);
  f.streams.grant(1, 1, ~std::uint64_t{0});
  f.streams.grant(1, 2, 5);  // there is no such choice
  f.streams.grant(9, 0, 5);  // nor such a stream
  f.streams.pass_on_granted();
  CHECK(f.gateway.credit_of(1) == 7);
  CHECK(f.gateway.credit_of(2) == 1ull << 32);
  CHECK(f.gateway.num_credit_calls() == 2);
  f.streams.pass_on_granted();
  CHECK(f.gateway.num_credit_calls() == 2);
}

TEST_CASE("streams: implicit credit follows what was written, and a client cannot grant more") {
  Fixture f;
  f.generate(1, 1, 64, /*implicit=*/true);
  f.streams.grant(1, 0, 100);
  f.send(1, 0, 5);
  f.streams.pass_on_granted();
  CHECK(f.gateway.num_credit_calls() == 0);
  f.streams.pass_on_written();
  CHECK(f.gateway.credit_of(1) == 5);
}

TEST_CASE("streams: a choice without credit is cancelled after the timeout, once, and its end says why") {
  Fixture f;
  f.generate(1, 2, 2);
  f.streams.grant(1, 1, 5);
  f.send(1, 0, 2);
  const Clock::time_point now = Clock::now();
  CHECK(f.streams.cancel_stalled(now));
  CHECK(f.gateway.num_cancelled() == 0);
  const auto later = now + f.hub.options.limits.stall_timeout;
  for (int look = 0; look < 2; ++look) (void)f.streams.cancel_stalled(later);
  f.streams.cancel(1);  // the other choice; the first one's is on the way
  CHECK(f.gateway.num_cancelled() == 2);
  actors::End end = end_of(Outcome::cancelled);
  REQUIRE(f.streams.enter_end(1, end));
  CHECK(end.message.find("stall_timeout") != std::string::npos);
}

TEST_CASE("streams: each choice is counted once, whether it ends, is cancelled, or its connection goes") {
  Fixture f;
  f.generate(1, 3, 9);
  f.generate(2, 2, 9);
  actors::End first = end_of(Outcome::eos);
  first.choice = 2;
  CHECK_FALSE(f.streams.enter_end(1, first)->is_last);
  CHECK(f.streams.contains(1));
  f.streams.cancel_all();
  CHECK(f.streams.empty());
  CHECK(f.ended(Outcome::eos) == 1);
  CHECK(f.ended(Outcome::cancelled) == 4);
  CHECK_FALSE(f.streams.enter_end(1, first));  // it comes too late
  CHECK_FALSE(f.streams.enter_answer(2, Outcome::eos));
  CHECK(f.ended(Outcome::eos) == 1);
  CHECK(f.hub.counts.num_ended(RequestKind::generate, Outcome::cancelled) == 4);
}

TEST_CASE("streams: a guest cancels its own requests by their numbers, an owner any by its id") {
  Fixture f;
  f.generate(1, 2, 9);
  CHECK_FALSE(f.streams.cancel_request(2, {.id = TenantId{7}}, 7));
  CHECK(f.streams.cancel_request(2, {.id = TenantId{kUid}}, kUid));
  CHECK(f.streams.cancel_request(1, {.id = TenantId{0}, .is_owner = true}, 0));
  CHECK(f.gateway.num_cancelled() == 2);
  OwnRequests own;
  f.streams.add_requests(own, TenantId{kUid}, /*is_asking=*/true);
  CHECK(own.size() == 2);
}

TEST_CASE("streams: a request that ended without the gateway is told of once, and one that it has, not at all") {
  Fixture f;
  std::vector<std::string> told;
  f.hub.options.on_ended = [&](const actors::EndedRequest& ended) {
    told.push_back(std::string(ended.kind) + " " + std::string(ended.client_id) + " " +
                   std::string(scheduler::info(ended.outcome).name));
    CHECK(ended.tenant.id == TenantId{kUid});
    CHECK(ended.protocol == actors::Protocol::http);
    CHECK(ended.model.size() == kMaxModelNameBytes + 1);
    CHECK(ended.request == 0);
  };
  const auto enter = [&](std::uint64_t number, RequestKind kind, std::string id) {
    Arrival arrival{.tenant = {.id = TenantId{kUid}}, .protocol = actors::Protocol::http, .client_id = std::move(id)};
    arrival.set_model(std::string(1 << 20, 'm'));
    f.streams.enter(number, kind, f.tally, 1, std::move(arrival));
  };
  enter(1, RequestKind::generate, "a");
  CHECK(f.streams.enter_answer(1, Outcome::invalid_argument));
  CHECK_FALSE(f.streams.enter_answer(1, Outcome::invalid_argument));
  enter(2, RequestKind::status, "b");
  CHECK(f.streams.enter_answer(2, Outcome::eos));
  enter(3, RequestKind::tokenize, "c");
  f.generate(4, 2, 1);
  f.generate(5, 1, 1);
  actors::End end;
  end.outcome = Outcome::eos;
  REQUIRE(f.streams.enter_end(5, end));
  f.streams.cancel_all();
  CHECK(told == std::vector<std::string>{"generate a invalid_argument", "tokenize c cancelled"});
}
