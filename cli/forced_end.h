// Ends the process without waiting for any of its threads.
#pragma once

#include <memory>

#include "ipc/listening_socket.h"

namespace troupe::cli {

// The socket file that end_by_force() removes; null: none. Kept until the process ends.
void remove_at_forced_end(std::shared_ptr<ipc::SocketFile> file);

// Removes the socket file, tries for at most 200 ms to write `why` to the log, else writes it to stderr, and calls
// _exit(): no destructor runs. Any thread; waits for no lock.
[[noreturn]] void end_by_force(int code, const char* why) noexcept;

// Makes std::terminate, and so an unhandled exception, call end_by_force() with the code and reason of ending_of(), and
// abort(), whose caller has printed the reason, end with kExitFailure. No core file is written: it would hold prompts.
void handle_terminate() noexcept;

}  // namespace troupe::cli
