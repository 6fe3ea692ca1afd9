// Frames that are decoded on the decoder thread are answered as those that the io thread decodes.
#include <string>

#include "ipc/frames/decode.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

const std::string kLarge(kMaxInlineFrameBytes * 8, 'x');

TEST_CASE("a large frame and the frames after it are answered in order") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame ask;
  std::string bytes = RawClient::frame_bytes(generate_frame(1, kLarge));
  ask.mutable_cancel()->set_stream(1);  // cancels what the large frame began, so it must come after it
  bytes += RawClient::frame_bytes(ask);
  ask.mutable_tokenize()->set_stream(2);
  ask.mutable_tokenize()->set_text(kLarge);
  bytes += RawClient::frame_bytes(ask);
  ask.mutable_health()->set_stream(3);
  bytes += RawClient::frame_bytes(ask);
  REQUIRE(client.send_bytes(bytes));
  REQUIRE(client.expect().done().stream() == 1);
  REQUIRE(client.expect().tokenized().ids_size() == static_cast<int>(kLarge.size()));
  REQUIRE(client.expect().health().stream() == 3);
  REQUIRE(std::get<std::string>(server.gateway.wait_submitted(0).request.prompt) == kLarge);
}

TEST_CASE("a large frame is refused, or found damaged, as a small one is") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(7, kLarge);
  frame.mutable_generate()->set_adapter("x");
  REQUIRE(client.send(frame));
  v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 7);
  REQUIRE(refused.field() == "adapter");
  frame = generate_frame(8);
  for (std::size_t i = 0; i < kMaxInlineFrameBytes; ++i) frame.mutable_generate()->add_stop();
  REQUIRE(client.send(frame));
  refused = client.expect().refused();
  REQUIRE(refused.stream() == 8);
  REQUIRE(refused.field() == "stop");
  REQUIRE(client.send_bytes(RawClient::frame_bytes(generate_frame(9, kLarge + "\xff"))));
  REQUIRE(client.last_words().field() == "frame");
  REQUIRE(server.gateway.num_submitted() == 0);
}

TEST_CASE("a client may disconnect and a server may stop while a large frame is decoded") {
  v1::ClientFrame dear;  // takes long to decode
  for (int i = 0; i < 200000; ++i) dear.mutable_generate()->mutable_sampling()->add_logit_bias();
  const std::string bytes = RawClient::frame_bytes(dear);
  for (int round = 0; round < 20; ++round) {
    FakeServer server;
    RawClient gone(server.path()), stays(server.path());
    for (RawClient* client : {&gone, &stays}) {
      client->hello();
      REQUIRE(client->send_bytes(bytes));
    }
    gone.hang_up();
    if (round % 2 == 0) continue;
    REQUIRE(stays.expect().refused().field() == "sampling.logit_bias");
  }
}

}  // namespace
}  // namespace troupe::ipc
