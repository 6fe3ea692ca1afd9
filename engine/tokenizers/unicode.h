// Writes UTF-8; config/utf8.h reads it.
#pragma once

#include <string>

namespace troupe::engine {

// Appends the UTF-8 form of a code point below 0x110000.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace troupe::engine
