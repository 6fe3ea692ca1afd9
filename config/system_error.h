// The error of a system call that failed, with the code and the remedy that its number calls for.
#pragma once

#include <cerrno>
#include <string>

#include "config/result.h"

namespace troupe {

// Whether `number` (an errno) means that the system gives this process no more descriptors.
[[nodiscard]] constexpr bool lacks_descriptors(int number) { return number == EMFILE || number == ENFILE; }

// What to do where lacks_descriptors().
inline constexpr const char* kRaiseDescriptors =
    "the system gives this process no more file descriptors; raise ulimit -n (LimitNOFILE= of a unit)";

// "`what`: <the system's words>", with ErrorCode::permission where access was denied, ErrorCode::os_limit and what to
// do where descriptors or memory ran out, else `otherwise`. `number`: the call's errno, read before anything else can
// change it.
[[nodiscard]] Error system_error(const std::string& what, int number, ErrorCode otherwise = ErrorCode::io);

}  // namespace troupe
