#include "ipc/frames/unserved.h"

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
    const std::string number = std::to_string(unknown.field(0).number());
    return UnservedField{prefix + "#" + number, "this server does not know field " + number + " of " +
                                                    message.GetDescriptor()->name() +
                                                    "; it speaks version 1 of the protocol"};
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
