#include "ipc/frames/unserved.h"

#include <fmt/format.h>
#include <google/protobuf/unknown_field_set.h>

#include <vector>

#include "ipc/troupe.pb.h"

namespace troupe::ipc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

std::optional<UnservedField> find_in(const Message& message, const std::string& prefix) {
  const Reflection& reflection = *message.GetReflection();
  if (const UnknownFieldSet& unknown = reflection.GetUnknownFields(message); !unknown.empty()) {
    const int number = unknown.field(0).number();
    return UnservedField{fmt::format("{}#{}", prefix, number),
                         fmt::format("this server does not know field {} of {}; it speaks version 1 of the protocol",
                                     number, message.GetDescriptor()->name())};
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->options().GetExtension(v1::not_served))
      return UnservedField{prefix + field->name(), field->name() + " is not served by this version"};
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string below = prefix + field->name() + ".";
    if (!field->is_repeated()) {
      if (auto found = find_in(reflection.GetMessage(message, field), below)) return found;
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i)
      if (auto found = find_in(reflection.GetRepeatedMessage(message, field, i), below)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<UnservedField> find_unserved(const Message& request) { return find_in(request, ""); }

const FieldDescriptor* body_of(const Message& frame) {
  return frame.GetReflection()->GetOneofFieldDescriptor(frame, frame.GetDescriptor()->oneof_decl(0));
}

std::uint64_t stream_of(const Message& frame) {
  const FieldDescriptor* const body = body_of(frame);
  if (!body) return 0;
  const FieldDescriptor* const stream = body->message_type()->FindFieldByNumber(1);
  if (stream->name() != "stream") return 0;
  const Message& message = frame.GetReflection()->GetMessage(frame, body);
  return message.GetReflection()->GetUInt64(message, stream);
}

std::uint64_t unknown_body_stream(const Message& frame) {
  const UnknownFieldSet& unknown = frame.GetReflection()->GetUnknownFields(frame);
  // A frame has one body: only the first unknown field is parsed, so that many of them cost no time.
  UnknownFieldSet fields;
  if (unknown.empty() || unknown.field(0).type() != UnknownField::TYPE_LENGTH_DELIMITED ||
      !fields.ParseFromString(unknown.field(0).length_delimited()))
    return 0;
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == 1 && fields.field(i).type() == UnknownField::TYPE_VARINT)
      return fields.field(i).varint();
  return 0;
}

}  // namespace troupe::ipc
