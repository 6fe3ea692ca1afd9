// UsageRequest: a guest is told of its own tenant only, and the answer may come from any thread.
#include <thread>

#include "tests/ipc/connect_as.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

v1::ClientFrame usage_frame_of(std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_usage_request()->set_stream(stream);
  return frame;
}

// Keeps what was asked; answers with a row of the tenant that was asked for, else of uid 7.
struct UsageAsked {
  actors::AskUsage function() {
    return [this](const actors::UsageQuery& query, const actors::OnUsageReport& answer) {
      queries.push_back(query);
      if (error) return answer(*error);
      actors::UsageReport report{.rows = {}, .note = "a note"};
      const actors::UsageTenant tenant = query.only.value_or(actors::UsageTenant{.uid = 7, .name = {}});
      report.rows.push_back({.begin = 3600, .tenant = tenant, .counts = {.done = 2, .cpu_seconds = 0.5}});
      std::thread([&] { answer(report); }).join();
    };
  }
  std::vector<actors::UsageQuery> queries;
  std::optional<Error> error;
};

ServerOptions options_with(UsageAsked& asked) {
  ServerOptions options;
  options.ask_usage = asked.function();
  return options;
}

TEST_CASE("an owner is told of all tenants' usage, for the time and the periods that it asks for") {
  UsageAsked asked;
  FakeServer server(options_with(asked));
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = usage_frame_of(3);
  frame.mutable_usage_request()->set_since(1234);
  frame.mutable_usage_request()->set_by(v1::UsageRequest::PERIOD_HOUR);
  REQUIRE(client.send(frame));
  const v1::UsageReport report = client.expect().usage_report();
  REQUIRE(report.stream() == 3);
  REQUIRE(report.rows_size() == 1);
  REQUIRE(report.rows(0).uid() == 7);
  REQUIRE(report.rows(0).begin() == 3600);
  REQUIRE(report.rows(0).done() == 2);
  REQUIRE(report.rows(0).cpu_seconds() == 0.5);
  REQUIRE(report.note() == "a note");
  REQUIRE_FALSE(report.own_only());
  REQUIRE(asked.queries.size() == 1);
  REQUIRE(asked.queries[0].since == 1234);
  REQUIRE(asked.queries[0].by == actors::UsagePeriod::hour);
  REQUIRE_FALSE(asked.queries[0].only);
}

TEST_CASE("a guest is told of its own usage only, and of nothing that is wrong with the file") {
  if (!may_be_others()) return;
  constexpr std::uint32_t kGuest = 61003;
  UsageAsked asked;
  ServerOptions options = options_with(asked);
  options.allow_uids = {kGuest};
  FakeServer server(options);
  server.let_others_reach();
  std::unique_ptr<RawClient> client;
  {
    const AsUser guest(kGuest);
    client = std::make_unique<RawClient>(server.path());
  }
  client->hello();
  REQUIRE(client->send(usage_frame_of(1)));
  const v1::UsageReport report = client->expect().usage_report();
  REQUIRE(report.own_only());
  REQUIRE(report.note().empty());
  REQUIRE(report.rows_size() == 1);
  REQUIRE(report.rows(0).uid() == kGuest);
  REQUIRE(asked.queries.at(0).only == actors::UsageTenant{.uid = kGuest, .name = {}});
  asked.error = Error{ErrorCode::io, "/a/secret/path: broken"};
  REQUIRE(client->send(usage_frame_of(1)));
  REQUIRE(client->expect().refused().message().find("secret") == std::string::npos);
}

TEST_CASE("a question about usage that cannot be answered is refused with the reason") {
  FakeServer without;
  RawClient client(without.path());
  client.hello();
  REQUIRE(client.send(usage_frame_of(1)));
  const v1::Refused none = client.expect().refused();
  REQUIRE(none.code() == v1::OUTCOME_UNSUPPORTED);
  REQUIRE(none.message().find("--usage-db off") != std::string::npos);

  UsageAsked asked;
  FakeServer server(options_with(asked));
  RawClient other(server.path());
  other.hello();
  v1::ClientFrame wrong = usage_frame_of(1);
  wrong.mutable_usage_request()->set_since(~0ull);
  REQUIRE(other.send(wrong));
  REQUIRE(other.expect().refused().field() == "since");
  wrong = usage_frame_of(1);
  wrong.mutable_usage_request()->set_by(static_cast<v1::UsageRequest::Period>(9));
  REQUIRE(other.send(wrong));
  REQUIRE(other.expect().refused().field() == "by");
  REQUIRE(asked.queries.empty());
  asked.error = Error{ErrorCode::busy, "many questions"};
  REQUIRE(other.send(usage_frame_of(1)));
  const v1::Refused busy = other.expect().refused();
  REQUIRE(busy.code() == v1::OUTCOME_QUEUE_FULL);
  REQUIRE(busy.retry_after_ms() > 0);
  asked.error = Error{ErrorCode::invalid_argument, "many rows"};
  REQUIRE(other.send(usage_frame_of(1)));
  REQUIRE(other.expect().refused().code() == v1::OUTCOME_TOO_LONG);
}

}  // namespace
}  // namespace troupe::ipc
