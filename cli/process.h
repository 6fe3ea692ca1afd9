// What every process of ours does before anything else, and how it says that the system gives it no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "cli/exit_code.h"
#include "config/result.h"

namespace troupe::cli {

// Call first in main(). Opens those of the descriptors 0 to 2 that were closed on /dev/null, so that no file or socket
// becomes stdout; a write beyond a limit of file sizes (ulimit -f) becomes an error instead of a signal. False:
// /dev/null cannot be opened.
[[nodiscard]] bool prepare_process() noexcept;

// For servers: a write to a closed pipe is an error, not the end. Other subcommands keep the signal, with which a
// program at the beginning of a pipe ends quietly when the one at its end has gone.
void ignore_closed_pipes() noexcept;
// From here on large buffers go back to the system when they are freed. Otherwise the allocator keeps what it has seen
// freed once, and memory stays at the sum of all peaks.
void give_back_large_buffers() noexcept;

// For servers: keeps kMemoryReserve bytes of address space aside. When memory runs out they are given back first, so
// that small allocations, such as those of a message that must not be lost, go on while large ones, of a request, fail.
inline constexpr std::size_t kMemoryReserve = 4u << 20;
void keep_memory_reserve() noexcept;

// Why the process ends, for a person and for scripts.
struct Ending {
  int code;
  std::string why;
};

// Nothing where so many more threads can run at once, else kExitOsLimit and the limits to raise. Starts them, and waits
// for their end.
[[nodiscard]] std::optional<Ending> lack_of_threads(std::uint32_t count);

// Of what was thrown: kExitOsLimit and the limit to raise where the system gives no more memory, threads or
// descriptors; else kExitFailure.
[[nodiscard]] Ending ending_of(const std::exception_ptr& thrown);
[[nodiscard]] inline Ending ending_of(const Error& error) { return {exit_code(error.code), error.message}; }

}  // namespace troupe::cli
