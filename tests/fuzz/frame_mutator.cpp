#include "tests/fuzz/frame_mutator.h"

#include <google/protobuf/unknown_field_set.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "ipc/frames/framing.h"

namespace troupe::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::size_t below(std::mt19937_64& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

std::uint64_t integer(std::mt19937_64& random) {
  constexpr std::uint64_t kInteresting[] = {0,          1,          2,          7,          64,         65,
                                            1000,       1001,       0x7fff,     0xffff,     0x7fffffff, 1ull << 31,
                                            0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull,      ~0ull - 999};
  return random() % 4 == 0 ? random() >> below(random, 64) : kInteresting[below(random, std::size(kInteresting))];
}

double number(std::mt19937_64& random) {
  constexpr double kInteresting[] = {0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 2e-5, 1.5, 1000.0, 100.01, INFINITY, -INFINITY};
  return random() % 8 == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : kInteresting[below(random, std::size(kInteresting))];
}

std::string text(std::mt19937_64& random) {
  constexpr const char* kUnits[] = {"",     "a",        "tales", "public", " ", "\xE4\xB8\xAD",
                                    "\xFF", "\xF0\x9F", "<s>",   "\n",     "%s"};
  const std::string unit = random() % 16 == 0 ? std::string(1, '\0') : kUnits[below(random, std::size(kUnits))];
  constexpr std::size_t kLengths[] = {1, 1, 2, 16, 63, 64, 65, 256, 257, 5000};
  std::string out;
  for (std::size_t count = kLengths[below(random, std::size(kLengths))]; count > 0; --count) out += unit;
  return out;
}

// Sets a field, or adds an entry to a repeated one.
void set_field(Message& message, const FieldDescriptor& field, std::mt19937_64& random) {
  const Reflection& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto add, auto value) {
    if (field.is_repeated())
      (reflection.*add)(&message, &field, value);
    else
      (reflection.*set)(&message, &field, value);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<std::int32_t>(integer(random)));
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&Reflection::SetInt64, &Reflection::AddInt64, static_cast<std::int64_t>(integer(random)));
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<std::uint32_t>(integer(random)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::SetUInt64, &Reflection::AddUInt64, integer(random));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(&Reflection::SetFloat, &Reflection::AddFloat, static_cast<float>(number(random)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return put(&Reflection::SetDouble, &Reflection::AddDouble, number(random));
    case FieldDescriptor::CPPTYPE_BOOL:
      return put(&Reflection::SetBool, &Reflection::AddBool, random() % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, static_cast<int>(integer(random)));
    case FieldDescriptor::CPPTYPE_STRING:
      return put(&Reflection::SetString, &Reflection::AddString, text(random));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.is_repeated())
        reflection.AddMessage(&message, &field);
      else
        reflection.MutableMessage(&message, &field);
  }
}

// The messages within one, itself first.
void collect(Message& message, std::vector<Message*>& all) {
  all.push_back(&message);
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      collect(*reflection.MutableMessage(&message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i)
      collect(*reflection.MutableRepeatedMessage(&message, field, i), all);
  }
}

void mutate_message(Message& message, std::mt19937_64& random) {
  const Reflection& reflection = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor();
  if (descriptor.field_count() == 0) return;
  const FieldDescriptor& field =
      *descriptor.field(static_cast<int>(below(random, static_cast<std::size_t>(descriptor.field_count()))));
  switch (below(random, 8)) {
    case 0:
      return reflection.ClearField(&message, &field);
    case 1: {  // from a newer protocol, or from nowhere
      auto& unknown = *reflection.MutableUnknownFields(&message);
      const int number = 1 + static_cast<int>(below(random, 5000));
      if (random() % 2 == 0) return unknown.AddVarint(number, integer(random));
      return unknown.AddLengthDelimited(number, text(random));
    }
    case 2: {  // many
      if (!field.is_repeated()) break;
      constexpr std::size_t kCounts[] = {15, 16, 17, 64, 65, 1024, 1025, 3000};
      for (std::size_t n = kCounts[below(random, std::size(kCounts))]; n > 0; --n) set_field(message, field, random);
      return;
    }
    default:
      break;
  }
  set_field(message, field, random);
}

void mutate_bytes(std::string& bytes, std::mt19937_64& random) {
  const std::size_t at = below(random, bytes.size() + 1);
  switch (below(random, 5)) {
    case 0:
      return bytes.resize(at);
    case 1:
      bytes.insert(at, 1 + below(random, 12), static_cast<char>(random()));
      return;
    case 2:  // groups within groups, which no message of ours has
      bytes.insert(at, 1 + below(random, 300), '\x0b');
      return;
    case 3:
      bytes.erase(at, 1 + below(random, 8));
      return;
    default:
      for (std::size_t count = 1 + below(random, 8); count > 0 && !bytes.empty(); --count)
        bytes[below(random, bytes.size())] = static_cast<char>(random());
  }
}

}  // namespace

std::string mutate_frame(const Message& frame, std::mt19937_64& random) {
  const std::unique_ptr<Message> copy(frame.New());
  copy->CopyFrom(frame);
  for (std::size_t count = 1 + below(random, 3); count > 0; --count) {
    std::vector<Message*> all;
    collect(*copy, all);
    mutate_message(*all[below(random, all.size())], random);
  }
  std::string bytes = copy->SerializePartialAsString();
  if (random() % 4 == 0) mutate_bytes(bytes, random);
  return bytes;
}

std::string mutate_framing(std::string_view body, std::mt19937_64& random) {
  std::uint64_t length = body.size();
  // A length above the limit ends the connection; one below cuts the next frame out of this one's bytes.
  if (random() % 64 == 0) length = integer(random);
  if (random() % 64 == 0 && length > 0) --length;
  std::string bytes;
  ipc::append_frame_header(bytes, static_cast<std::uint32_t>(length));
  return bytes.append(body);
}

}  // namespace troupe::fuzz
