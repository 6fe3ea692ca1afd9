#include "config/system_error.h"

#include <fmt/format.h>

#include <cstring>

namespace troupe {

Error system_error(const std::string& what, int number, ErrorCode otherwise) {
  const std::string said = fmt::format("{}: {}", what, std::strerror(number));
  if (number == EACCES || number == EPERM) return {ErrorCode::permission, said};
  if (lacks_descriptors(number)) return {ErrorCode::os_limit, fmt::format("{}: {}", said, kRaiseDescriptors)};
  if (number == ENOMEM)
    return {ErrorCode::os_limit, said + ": the system gives no more memory; raise ulimit -v (MemoryMax= of a unit)"};
  return {otherwise, said};
}

}  // namespace troupe
