// Requests that one frame answers: tokens, text, models, health, status.
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/frames/status_frame.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

TEST_CASE("questions are answered with their stream number") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame ask;
  ask.mutable_tokenize()->set_stream(1);
  ask.mutable_tokenize()->set_text("abc");
  REQUIRE(client.send(ask));
  v1::ServerFrame answer = client.expect();
  REQUIRE(answer.tokenized().stream() == 1);
  REQUIRE(answer.tokenized().ids_size() == 3);
  ask.mutable_detokenize()->set_stream(2);
  for (const int id : {0x61, 0xff, 0x62}) ask.mutable_detokenize()->add_ids(id);
  REQUIRE(client.send(ask));
  answer = client.expect();
  REQUIRE(answer.detokenized().stream() == 2);
  REQUIRE(answer.detokenized().raw() ==
          "a\xff"
          "b");
  REQUIRE(answer.detokenized().text() ==
          "a\xef\xbf\xbd"
          "b");
  ask.mutable_models()->set_stream(3);
  REQUIRE(client.send(ask));
  answer = client.expect();
  REQUIRE(answer.models().stream() == 3);
  REQUIRE(answer.models().models(0).name() == "fake");
  REQUIRE_FALSE(answer.models().models(0).has_bos());
  REQUIRE(answer.models().models(0).eos() == 2);
  REQUIRE(answer.models().health_size() == 1);
  REQUIRE(answer.models().health(0).name() == "fake");
  REQUIRE(answer.models().health(0).readiness() == v1::READINESS_READY);
  ask.mutable_health()->set_stream(4);
  REQUIRE(client.send(ask));
  const v1::Health health = client.expect().health();
  REQUIRE(health.readiness() == v1::READINESS_READY);
  REQUIRE(health.models_size() == 1);
  REQUIRE(health.models(0).name() == "fake");
  ask.mutable_status()->set_stream(5);
  REQUIRE(client.send(ask));
  answer = client.expect();
  REQUIRE(answer.status().stream() == 5);
  REQUIRE(answer.status().model() == "fake");
  REQUIRE(answer.status().connections() == 1);
  REQUIRE(answer.status().connections_accepted() == 1);
}

TEST_CASE("a guest sees its own live requests, owner and root all, and no more than the limit are listed") {
  const auto seen = [](std::uint32_t uid, bool is_owner, std::size_t count) {
    std::vector<actors::RequestView> requests;
    for (std::uint32_t i = 0; i < count; ++i) requests.push_back({.request = i + 1, .tenant = TenantId{1000 + i % 2}});
    return visible(requests, {.tenant = {TenantId{uid}, is_owner}});
  };
  REQUIRE(seen(1000, false, 10).size() == 5);
  for (const actors::RequestView& view : seen(1001, false, 10)) REQUIRE(view.tenant == TenantId{1001});
  REQUIRE(seen(1002, false, 10).empty());
  REQUIRE(seen(900, true, 10).size() == 10);
  REQUIRE(seen(900, true, 1000).size() == kMaxListedRequests);
  REQUIRE(seen(900, true, 1000).front().request == 1);
}

TEST_CASE("live requests are listed only if asked for, with their states") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame ask;
  ask.mutable_status()->set_stream(1);
  REQUIRE(client.send(ask));
  REQUIRE(client.expect().status().live_requests().empty());
  ask.mutable_status()->set_list_requests(true);
  REQUIRE(client.send(ask));
  const v1::ServerFrame answer = client.expect();
  REQUIRE(answer.status().live_requests_size() == 1);
  const v1::Status::LiveRequest& request = answer.status().live_requests(0);
  REQUIRE(request.request() == 7);
  REQUIRE(request.uid() == ::geteuid());
  REQUIRE(request.state() == "running");
  REQUIRE(request.generated_tokens() == 3);
  REQUIRE(answer.status().histograms_size() == static_cast<int>(actors::kLatencyNames.size()));
  for (const auto& histogram : answer.status().histograms())
    REQUIRE(histogram.counts_size() == answer.status().histogram_bounds_size() + 1);
  REQUIRE(answer.status().memory(answer.status().memory_size() - 1).kind() == "outboxes");
}

TEST_CASE("a question about a model that is not there names those that are") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame ask;
  ask.mutable_tokenize()->set_stream(1);
  ask.mutable_tokenize()->set_model("gpt-9");
  REQUIRE(client.send(ask));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_UNKNOWN_MODEL);
  REQUIRE(refused.message().find("fake") != std::string::npos);
  ask.mutable_tokenize()->set_model("fake");
  REQUIRE(client.send(ask));  // the number is free again
  REQUIRE(client.expect().has_tokenized());
}

TEST_CASE("an answer above the frame limit becomes a refusal with the numbers") {
  FakeServer server({.max_frame_bytes = 5000});
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame ask;
  ask.mutable_tokenize()->set_stream(1);
  ask.mutable_tokenize()->set_text(std::string(4900, '\x01'));
  REQUIRE(client.send(ask));
  REQUIRE(client.expect().tokenized().ids_size() == 4900);
  ask.mutable_detokenize()->set_stream(1);  // text and raw together are twice the request
  for (int i = 0; i < 3000; ++i) ask.mutable_detokenize()->add_ids(1);
  REQUIRE(client.send(ask));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.code() == v1::OUTCOME_TOO_LONG);
  REQUIRE(refused.limit() == 5000);
}

}  // namespace
}  // namespace troupe::ipc
