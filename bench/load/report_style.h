// The style sheet of the page of a load run, with the classes that the charts use.
#pragma once

#include <string_view>

namespace troupe::load {

extern const std::string_view kPageStyle;

}  // namespace troupe::load
