// The server's log: text or JSON lines, to stderr or a file. Prompts and answers are never logged.
#pragma once

#include "config/options.h"
#include "config/result.h"

namespace spdlog {
class logger;
}

namespace troupe::cli {

// Makes the logger of --log-format, --log-level and --log-file the default of the process. Error: permission or io when
// the file cannot be opened.
[[nodiscard]] Status start_log(const config::Options& options);

// While the log is in use, from any thread: makes another level the least that is logged, and opens --log-file anew
// (its file may have been renamed by logrotate(8)). Error: permission or io; lines go to the file that was open before
// then.
[[nodiscard]] Status reload_log(const config::Options& options);

// What start_log() made, for as long as the process lives; null before.
[[nodiscard]] spdlog::logger* started_log() noexcept;

// Whether log lines go to a terminal as text, so that a progress bar may be drawn between them.
[[nodiscard]] bool log_is_on_terminal(const config::Options& options);

}  // namespace troupe::cli
