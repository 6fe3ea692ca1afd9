#include "tests/adversary/wire.h"

#include <cstring>

namespace troupe::adversary {
namespace {

constexpr std::uint32_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
constexpr std::size_t kPrefixBytes = 4;

void append_little_endian(std::string& out, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void Message::tag(std::uint32_t field, std::uint32_t type) { append_varint(bytes_, std::uint64_t{field} << 3 | type); }

Message& Message::number(std::uint32_t field, std::uint64_t value) {
  tag(field, kVarint);
  append_varint(bytes_, value);
  return *this;
}

Message& Message::signed_number(std::uint32_t field, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return number(field, value < 0 ? ~(bits << 1) : bits << 1);
}

Message& Message::real(std::uint32_t field, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  tag(field, kFixed32);
  append_little_endian(bytes_, bits, sizeof bits);
  return *this;
}

Message& Message::text(std::uint32_t field, std::string_view bytes) {
  tag(field, kLengthDelimited);
  append_varint(bytes_, bytes.size());
  bytes_.append(bytes);
  return *this;
}

Message& Message::message(std::uint32_t field, const Message& inner) { return text(field, inner.bytes()); }

Message& Message::packed(std::uint32_t field, const std::vector<std::int32_t>& values) {
  std::string inner;
  for (const std::int32_t value : values)
    append_varint(inner, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  return text(field, inner);
}

Message& Message::raw(std::string_view bytes) {
  bytes_.append(bytes);
  return *this;
}

std::string framed(std::string_view body) { return framed(body, static_cast<std::uint32_t>(body.size())); }

std::string framed(std::string_view body, std::uint32_t claimed_length) {
  std::string frame;
  frame.reserve(kPrefixBytes + body.size());
  append_little_endian(frame, claimed_length, kPrefixBytes);
  frame.append(body);
  return frame;
}

std::optional<std::uint64_t> Fields::varint() {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < rest_.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte & 0x80) continue;
    rest_.remove_prefix(i + 1);
    return value;
  }
  damaged_ = true;
  return std::nullopt;
}

std::optional<std::uint64_t> Fields::fixed(std::size_t size) {
  damaged_ = rest_.size() < size;
  if (damaged_) return std::nullopt;
  const std::uint64_t value = little_endian(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::optional<Field> Fields::next() {
  if (rest_.empty() || damaged_) return std::nullopt;
  const auto tag = varint();
  if (!tag) return std::nullopt;
  Field field{.number = static_cast<std::uint32_t>(*tag >> 3), .value = 0, .bytes = {}};
  std::optional<std::uint64_t> value;
  switch (*tag & 7) {
    case kVarint:
      value = varint();
      break;
    case kFixed64:
      value = fixed(8);
      break;
    case kFixed32:
      value = fixed(4);
      break;
    case kLengthDelimited:
      value = varint();
      if (value && *value <= rest_.size()) {
        field.bytes = rest_.substr(0, *value);
        field.has_bytes = true;
        rest_.remove_prefix(*value);
        return field;
      }
      value.reset();
      break;
    default:
      break;
  }
  damaged_ = !value;
  if (damaged_) return std::nullopt;
  field.value = *value;
  return field;
}

std::vector<std::int32_t> unpack(std::string_view bytes) {
  std::vector<std::int32_t> values;
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
    shift += 7;
    if (byte & 0x80) continue;
    values.push_back(static_cast<std::int32_t>(value));
    value = shift = 0;
  }
  return values;
}

std::optional<std::string_view> FrameCutter::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() >= kPrefixBytes) {
    const std::uint64_t length = little_endian(rest.substr(0, kPrefixBytes));
    if (rest.size() - kPrefixBytes >= length) {
      begin_ += kPrefixBytes + length;
      return rest.substr(kPrefixBytes, length);
    }
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  return std::nullopt;
}

}  // namespace troupe::adversary
