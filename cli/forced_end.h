// Ends of the process that wait for none of its threads.
#pragma once

#include <memory>

#include "ipc/socket_file.h"

namespace troupe::cli {

// What end_by_force() removes; null: nothing. Kept until the process ends.
void remove_at_forced_end(std::shared_ptr<ipc::SocketFile> file);

// Removes the socket file, tries for at most 200 ms to write `why` to the log, or to stderr where there is none, and
// leaves with _exit(): no destructor runs. Any thread; waits for no lock.
[[noreturn]] void end_by_force(int code, const char* why) noexcept;

// Makes std::terminate, and so an exception that nothing handles, end the process by force as ending_of() says, and
// abort(), which has said why, with kExitFailure: never a core file, which would hold prompts.
void handle_terminate() noexcept;

}  // namespace troupe::cli
