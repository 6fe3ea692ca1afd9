// Every field that the schema marks (not_served) is refused by name, also fields that are added later.
#include <algorithm>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The path from ClientFrame to a field.
using Path = std::vector<const FieldDescriptor*>;

// All fields marked (not_served) that can be set in a frame without setting another one of them.
std::vector<Path> unserved_fields(const google::protobuf::Descriptor& message, const Path& prefix = {}) {
  std::vector<Path> found;
  for (int i = 0; i < message.field_count(); ++i) {
    Path path = prefix;
    path.push_back(message.field(i));
    if (message.field(i)->options().GetExtension(v1::not_served)) {
      found.push_back(std::move(path));
    } else if (message.field(i)->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const auto below = unserved_fields(*message.field(i)->message_type(), path);
      found.insert(found.end(), below.begin(), below.end());
    }
  }
  return found;
}

// Makes the field present: with its zero where that can be told from absence, which must be refused as well.
void set_present(Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool zero = field.has_presence();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.is_repeated())
        reflection.AddMessage(&message, &field);
      else
        reflection.MutableMessage(&message, &field);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, zero ? "" : "x");
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, !zero);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, zero ? 0 : 1);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.SetFloat(&message, &field, zero ? 0.0f : 1.0f);
    default:
      FAIL(field.full_name() << " has a type that this test cannot set");
  }
}

std::string name_of(const Path& path) {
  std::string name;
  // As refusals write it: the path within the request; for a whole request its name.
  for (std::size_t i = path.size() > 1 ? 1 : 0; i < path.size(); ++i)
    name += (name.empty() ? "" : ".") + path[i]->name();
  return name;
}

TEST_CASE("every field and every request that the schema marks as not served is refused by name") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  const auto paths = unserved_fields(*v1::ClientFrame::descriptor());
  std::vector<std::string> names;
  std::uint64_t stream = 0;
  for (const Path& path : paths) {
    names.push_back(name_of(path));
    INFO(names.back());
    v1::ClientFrame frame;
    ++stream;
    if (path.size() > 1 && path.front()->name() == "generate") frame = generate_frame(stream);
    Message* message = &frame;
    for (std::size_t i = 0; i + 1 < path.size(); ++i)
      message = message->GetReflection()->MutableMessage(message, path[i]);
    set_present(*message, *path.back());
    // The number of the request, which every body has in field 1.
    const Message& body = frame.GetReflection()->GetMessage(frame, path.front());
    Message* mutable_body = frame.GetReflection()->MutableMessage(&frame, path.front());
    body.GetReflection()->SetUInt64(mutable_body, body.GetDescriptor()->FindFieldByNumber(1), stream);
    REQUIRE(client.send(frame));
    const v1::Refused refused = client.expect().refused();
    REQUIRE(refused.stream() == stream);
    REQUIRE(refused.code() == v1::OUTCOME_UNSUPPORTED);
    REQUIRE(refused.field() == names.back());
    REQUIRE(refused.message().find(path.back()->name()) != std::string::npos);
    REQUIRE_FALSE(refused.closing());
  }
  // The walk over the schema finds the fields that are known to be marked.
  for (const char* known : {"adapter", "echo", "sampling.typical_p", "sampling.xtc_probability",
                            "sampling.xtc_threshold", "sampling.dry_multiplier", "sampling.mirostat"}) {
    INFO(known);
    REQUIRE(std::find(names.begin(), names.end(), known) != names.end());
  }
  REQUIRE(server.gateway.num_submitted() == 0);
}

TEST_CASE("an unknown field in a part that repeats is refused by its path") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  v1::Sampling& sampling = *frame.mutable_generate()->mutable_sampling();
  sampling.add_logit_bias();
  v1::LogitBias& second = *sampling.add_logit_bias();
  second.GetReflection()->MutableUnknownFields(&second)->AddVarint(57, 1);
  REQUIRE(client.send(frame));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.field() == "sampling.logit_bias.#57");
}

TEST_CASE("a refused request with an open stream's number does not end that stream") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const auto open = server.gateway.wait_submitted(0);
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_adapter("x");
  REQUIRE(client.send(frame));
  const v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 0);
  REQUIRE(refused.field() == "adapter");
  open.sink->end(end_of(scheduler::Outcome::eos));
  REQUIRE(client.expect().done().stream() == 1);
}

}  // namespace
}  // namespace troupe::ipc
