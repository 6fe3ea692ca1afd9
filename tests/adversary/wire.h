// The protocol's bytes, written and read by hand: an attack sends bytes that the client library cannot send, and its
// reader must not have the same errors as the server's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::adversary {

// Fields of a protobuf message, appended in the order of the calls; nothing is checked.
class Message {
 public:
  Message& number(std::uint32_t field, std::uint64_t value);        // uint32, uint64, bool, enum, int32
  Message& signed_number(std::uint32_t field, std::int64_t value);  // sint32
  Message& real(std::uint32_t field, float value);                  // float
  Message& text(std::uint32_t field, std::string_view bytes);       // string, bytes
  Message& message(std::uint32_t field, const Message& inner);      // also a group of packed numbers
  Message& packed(std::uint32_t field, const std::vector<std::int32_t>& values);
  Message& raw(std::string_view bytes);

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(std::uint32_t field, std::uint32_t type);
  std::string bytes_;
};

void append_varint(std::string& out, std::uint64_t value);

// A length (4 bytes, little-endian), which may be wrong, and a body.
std::string framed(std::string_view body);
std::string framed(std::string_view body, std::uint32_t claimed_length);

// One field of a message.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  // of a varint, or the bits of fixed32 and fixed64
  std::string_view bytes;   // of what has a length
  bool has_bytes = false;
};

// Walks over the fields of an encoded message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  // Absent at the end and if the bytes are damaged.
  std::optional<Field> next();
  bool damaged() const { return damaged_; }

 private:
  std::optional<std::uint64_t> varint();
  std::optional<std::uint64_t> fixed(std::size_t size);
  std::string_view rest_;
  bool damaged_ = false;
};

// Packed int32.
std::vector<std::int32_t> unpack(std::string_view bytes);

// Cuts bytes that come in any pieces into frames' bodies.
class FrameCutter {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole body, good until the next call; nothing if there is none yet.
  std::optional<std::string_view> next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace troupe::adversary
