// The process: its setup at the start of main(), and how it ends when a limit of the system is reached or threads hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal/exit_code.h"
#include "config/result.h"
#include "ipc/sockets/listening_socket.h"

namespace troupe::cli {

// Call first in main(). Opens closed descriptors among 0 to 2 on /dev/null, so that no file or socket becomes stdout; a
// write beyond the limit of file sizes (ulimit -f) becomes an error instead of a signal. False: /dev/null cannot be
// opened.
[[nodiscard]] bool prepare_process() noexcept;

// For servers: a write to a closed pipe is an error and does not end the process. Other subcommands keep SIGPIPE, which
// ends a program without a message when the next one in the pipe has ended.
void ignore_closed_pipes() noexcept;
// From here on large buffers go back to the system when they are freed. By default the allocator raises its threshold
// with the sizes that are freed and keeps them, so that memory stays at the sum of all peaks.
void give_back_large_buffers() noexcept;

// For servers: reserves kMemoryReserve bytes of address space. When memory runs out they are released first, so that
// small allocations, such as those of a message that must not be lost, succeed while large ones, of a request, fail.
inline constexpr std::size_t kMemoryReserve = 4u << 20;
void keep_memory_reserve() noexcept;

// Why the process ends: the exit code and a message.
struct Ending {
  int code;
  std::string why;
};

// Starts `count` threads at once and waits for their end. nullopt if that worked, else kExitOsLimit and the limits to
// raise.
[[nodiscard]] std::optional<Ending> lack_of_threads(std::uint32_t count);

// For an exception: kExitOsLimit and the limit to raise if memory, threads or descriptors ran out; else kExitFailure.
[[nodiscard]] Ending ending_of(const std::exception_ptr& thrown);
[[nodiscard]] inline Ending ending_of(const Error& error) { return {exit_code(error.code), error.message}; }

// The socket file that end_by_force() removes; null: none. Kept until the process ends.
void remove_at_forced_end(std::shared_ptr<ipc::SocketFile> file);

// Removes the socket file, tries for at most 200 ms to write `why` to the log, else writes it to stderr, and calls
// _exit(): no destructor runs. Any thread; waits for no lock.
[[noreturn]] void end_by_force(int code, const char* why) noexcept;

// Makes std::terminate, and so an unhandled exception, call end_by_force() with the code and reason of ending_of(), and
// abort(), whose caller has printed the reason, end with kExitFailure. No core file is written: it would hold prompts.
void handle_terminate() noexcept;

}  // namespace troupe::cli
