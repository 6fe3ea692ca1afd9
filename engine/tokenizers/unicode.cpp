#include "engine/tokenizers/unicode.h"

#include <utf8proc.h>

#include <array>

namespace troupe::engine {

void append_utf8(std::string& out, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  out.append(bytes.begin(), bytes.begin() + count);
}

}  // namespace troupe::engine
