// LoadModel and UnloadModel over a real socket: for whom they are, what they pass on, and what they refuse.
#include <unistd.h>

#include "ipc/client/client.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;

v1::ClientFrame load_frame(const std::string& path) {
  v1::ClientFrame frame;
  frame.mutable_load_model()->set_stream(7);
  frame.mutable_load_model()->set_path(path);
  return frame;
}

v1::ClientFrame check_frame() {
  v1::ClientFrame frame;
  frame.mutable_check_models()->set_stream(9);
  return frame;
}

v1::ClientFrame unload_frame(const std::string& model) {
  v1::ClientFrame frame;
  frame.mutable_unload_model()->set_stream(8);
  frame.mutable_unload_model()->set_model(model);
  return frame;
}

TEST_CASE("the owner loads a model with all its values, and unloads one") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  const auto loaded =
      (*client)->load_model({.path = "/models/a.gguf",
                             .name = "a",
                             .draft = "/models/d.gguf",
                             .chat_template = "chatml",
                             .ctx_size = 512,
                             .kv_blocks = 0,
                             .kv_type = "int8",
                             .memory = 1u << 30,
                             .weight = 2.5,
                             .predict = 9,
                             .aliases = {"b", "c"},
                             .tool_format = "hermes",
                             .defaults = {.temperature = 0.5f, .top_k = 3, .reasoning = "low", .system = "s"},
                             .replace = "unload-first",
                             .load = "on-request",
                             .keep_alive = "90s"});
  REQUIRE(loaded);
  CHECK(loaded->name == "a");
  CHECK(loaded->readiness == client::Readiness::ready);
  CHECK(loaded->retiring);
  CHECK_FALSE(loaded->replacing);
  const std::vector<actors::ModelRequest> asked = server.gateway.asked_models();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].keys.path == "/models/a.gguf");
  CHECK(asked[0].keys.draft == "/models/d.gguf");
  CHECK(asked[0].keys.chat_template == "chatml");
  CHECK(asked[0].keys.ctx_size == 512);
  CHECK(asked[0].keys.kv_blocks == 0);
  CHECK(asked[0].keys.kv_type == "int8");
  CHECK(asked[0].keys.memory == 1u << 30);
  CHECK(asked[0].keys.weight == 2.5);
  CHECK(asked[0].keys.predict == 9);
  CHECK(asked[0].keys.aliases == std::vector<std::string>{"b", "c"});
  CHECK(asked[0].keys.tool_format == "hermes");
  CHECK(asked[0].keys.defaults.temperature == 0.5);
  CHECK(asked[0].keys.defaults.top_k == 3);
  CHECK_FALSE(asked[0].keys.defaults.top_p);
  CHECK(asked[0].keys.defaults.reasoning == "low");
  CHECK(asked[0].keys.defaults.system == "s");
  CHECK(asked[0].keys.replace == "unload-first");
  CHECK(asked[0].keys.load == "on-request");
  CHECK(asked[0].keys.keep_alive == "90s");
  CHECK_FALSE(asked[0].keys.pinned);
  REQUIRE((*client)->load_model({.path = "/models/b.gguf"}));
  const auto beside = (*client)->load_model({.path = "/models/b.gguf", .pinned = true, .replace = "beside"});
  CHECK(server.gateway.asked_models().back().keys.pinned);
  REQUIRE(beside);
  CHECK(beside->replacing);
  CHECK_FALSE(beside->retiring);
  CHECK_FALSE(server.gateway.asked_models()[1].keys.ctx_size);
  CHECK(server.gateway.asked_models()[1].keys.kv_type.empty());
  CHECK_FALSE(server.gateway.asked_models()[1].keys.predict);
  CHECK((*client)->load_model({.path = "/models/b.gguf", .predict = 0}).error().code == ErrorCode::invalid_argument);

  const auto unloaded = (*client)->unload_model("here");
  REQUIRE(unloaded);
  CHECK(unloaded->readiness == client::Readiness::draining);
  const auto unknown = (*client)->unload_model("there");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code == ErrorCode::model_missing);
}

TEST_CASE("the owner has models checked, by name or all") {
  FakeServer server;
  const auto client = client::Client::connect({.socket = server.path()});
  REQUIRE(client);
  const auto one = (*client)->check_models({"here"});
  REQUIRE(one);
  REQUIRE(one->size() == 1);
  CHECK(one->front().model == "here");
  CHECK(one->front().canary_ok);
  CHECK(one->front().weights_ok);
  CHECK(one->front().bytes == 1000);
  CHECK(one->front().seconds == 0.5);
  CHECK(one->front().file_change.empty());
  CHECK(one->front().problem.empty());
  const auto all = (*client)->check_models();
  REQUIRE(all);
  REQUIRE(all->size() == 2);
  CHECK(all->back().canary_ok);
  CHECK_FALSE(all->back().weights_ok);
  CHECK(all->back().file_change == "/models/a.gguf: was written to");
  CHECK(all->back().problem == "vector 1");
  CHECK((*client)->check_models({"there"}).error().code == ErrorCode::model_missing);
  CHECK((*client)->check_models(std::vector<std::string>(65, "here")).error().code == ErrorCode::invalid_argument);
}

TEST_CASE("a load with a value that cannot be is refused with its field") {
  FakeServer server;
  RawClient client(server.path());
  (void)client.hello();
  const auto refused_field = [&](v1::ClientFrame frame) {
    REQUIRE(client.send(frame));
    const v1::ServerFrame answer = client.expect();
    REQUIRE(answer.has_refused());
    CHECK(answer.refused().stream() == 7);
    CHECK(answer.refused().code() == v1::OUTCOME_INVALID_ARGUMENT);
    return answer.refused().field();
  };
  CHECK(refused_field(load_frame("")) == "path");
  CHECK(refused_field(load_frame("models/a.gguf")) == "path");
  CHECK(refused_field(load_frame(std::string("/a\0b", 4))) == "path");
  CHECK(refused_field(load_frame("/" + std::string(5000, 'a'))) == "path");
  v1::ClientFrame frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_draft("d.gguf");
  CHECK(refused_field(frame) == "draft");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->mutable_defaults()->set_top_p(2);
  CHECK(refused_field(frame) == "defaults");
  frame.mutable_load_model()->mutable_defaults()->clear_top_p();
  frame.mutable_load_model()->mutable_defaults()->set_system(std::string(20'000, 's'));
  CHECK(refused_field(frame) == "defaults");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_name("a\nb");
  CHECK(refused_field(frame) == "name");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_kv_type("q4_0");
  CHECK(refused_field(frame) == "kv_type");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_weight(0);
  CHECK(refused_field(frame) == "weight");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_tool_format("nope");
  CHECK(refused_field(frame) == "tool_format");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_replace("later");
  CHECK(refused_field(frame) == "replace");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_load("later");
  CHECK(refused_field(frame) == "load");
  frame = load_frame("/a.gguf");
  frame.mutable_load_model()->set_keep_alive("5m");
  CHECK(refused_field(frame) == "keep_alive");
  for (const std::string& alias : {std::string(), std::string("a\nb")}) {
    frame = load_frame("/a.gguf");
    frame.mutable_load_model()->add_aliases(alias);
    CHECK(refused_field(frame) == "aliases");
  }
  frame = load_frame("/a.gguf");
  for (int i = 0; i < 17; ++i) frame.mutable_load_model()->add_aliases("n" + std::to_string(i));
  CHECK(refused_field(frame) == "aliases");
  CHECK(server.gateway.asked_models().empty());
}

TEST_CASE("who does not run the server changes no models") {
  ServerOptions options;
  options.tenants = TenantRules(
      {{.uids = {::geteuid()},
        .trusted_proxy = true,
        .policy = std::make_shared<const scheduler::TenantPolicy>(scheduler::TenantPolicy{.name = "proxy"})}});
  FakeServer server(options);
  RawClient guest(server.path());
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol(1);
  hello.mutable_hello()->set_tenant("61001");
  REQUIRE(guest.send(hello));
  REQUIRE(guest.expect().has_welcome());
  for (const v1::ClientFrame& frame : {load_frame("/a.gguf"), unload_frame("here"), check_frame()}) {
    REQUIRE(guest.send(frame));
    const v1::ServerFrame answer = guest.expect();
    REQUIRE(answer.has_refused());
    CHECK(answer.refused().code() == v1::OUTCOME_PERMISSION);
  }
  CHECK(server.gateway.asked_models().empty());
}

}  // namespace
}  // namespace troupe::ipc
