// Sessions on the wire and in the client library, with a gateway that keeps one, "talk".
#include "ipc/client/client.h"
#include "ipc/frames/wire.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

v1::ClientFrame sessions_frame(std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_session_request()->set_stream(stream);
  return frame;
}

TEST_CASE("each question about sessions is answered by one frame") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame list = sessions_frame(1);
  list.mutable_session_request()->mutable_list();
  REQUIRE(client.send(list));
  const v1::Sessions all = client.expect().sessions();
  REQUIRE(all.stream() == 1);
  REQUIRE(all.sessions_size() == 1);
  CHECK(all.sessions(0).name() == "talk");
  CHECK(all.sessions(0).tokens() == 40);

  v1::ClientFrame fork = sessions_frame(1);
  fork.mutable_session_request()->mutable_fork()->set_from("talk");
  fork.mutable_session_request()->mutable_fork()->set_to("aside");
  REQUIRE(client.send(fork));
  CHECK(client.expect().sessions().sessions(0).name() == "aside");

  v1::ClientFrame inspect = sessions_frame(2);
  inspect.mutable_session_request()->mutable_inspect()->set_name("talk");
  REQUIRE(client.send(inspect));
  const v1::Sessions one = client.expect().sessions();
  REQUIRE(one.sessions(0).anchors_size() == 1);
  CHECK(one.sessions(0).anchors(0).position() == 32);
  CHECK(one.sessions(0).anchors(0).hash() == 0xfedcba9876543210);
  CHECK(one.sessions(0).anchors(0).cached());

  v1::ClientFrame remove = sessions_frame(3);
  remove.mutable_session_request()->mutable_delete_()->set_name("talk");
  REQUIRE(client.send(remove));
  const v1::ServerFrame gone = client.expect();
  REQUIRE(gone.has_sessions());
  CHECK(gone.sessions().stream() == 3);
  CHECK(gone.sessions().sessions_size() == 0);
}

TEST_CASE("a question about a session that is not there, or about nothing, is refused by name") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame save = sessions_frame(4);
  save.mutable_session_request()->mutable_save()->set_name("none");
  REQUIRE(client.send(save));
  const v1::Refused refused = client.expect().refused();
  CHECK(refused.stream() == 4);
  CHECK(refused.code() == v1::OUTCOME_INVALID_ARGUMENT);
  CHECK(refused.field() == "name");
  REQUIRE(client.send(sessions_frame(5)));
  CHECK(client.expect().refused().field() == "session_request");
  REQUIRE(client.send(sessions_frame(0)));
  CHECK(client.expect().refused().field() == "stream");
}

TEST_CASE("a Generate names the session that it continues, and recompute needs one") {
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_session("talk");
  frame.mutable_generate()->set_session_recompute(true);
  v1::Generate copy = frame.generate();
  const auto request = to_request(copy, {.id = TenantId{1000}}, actors::kMaxPromptBytes);
  REQUIRE(std::holds_alternative<actors::Request>(request));
  CHECK(std::get<actors::Request>(request).session == "talk");
  CHECK(std::get<actors::Request>(request).session_recompute);
  frame.mutable_generate()->clear_session();
  const auto wrong = to_request(*frame.mutable_generate(), {.id = TenantId{1000}}, actors::kMaxPromptBytes);
  REQUIRE(std::holds_alternative<Refusal>(wrong));
  CHECK(std::get<Refusal>(wrong).field == "session_recompute");
}

TEST_CASE("the client library asks about sessions") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  const auto all = (*client)->sessions();
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  CHECK(all->front().name == "talk");
  const auto inspected = (*client)->inspect_session("talk");
  REQUIRE(inspected);
  REQUIRE(inspected->anchors.size() == 1);
  CHECK(inspected->cache_known);
  CHECK((*client)->save_session("talk"));
  CHECK((*client)->fork_session("talk", "aside")->name == "aside");
  CHECK((*client)->delete_session("talk"));
  const auto none = (*client)->inspect_session("none");
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::invalid_argument);
  CHECK_FALSE((*client)->delete_session("\xff"));
  client::Request request{.prompt = "on"};
  request.session = "\xff";
  CHECK_FALSE((*client)->generate(request, {}));
}

}  // namespace
}  // namespace troupe::ipc
