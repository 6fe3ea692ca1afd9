// Formatting and reading of text for the subcommands.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "config/options/options.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// "1.87 MiB", "512 B": three digits.
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
// "5.25 M", "1.10 G": for counts of parameters.
[[nodiscard]] std::string human_count(std::uint64_t count);

// "stalled" if it is; else "loading", "ready", "draining" or "failed"
[[nodiscard]] std::string name_of(const client::Health& health);
// "ready", "stalled", "loading (40 %)", "failed: the file is damaged"
[[nodiscard]] std::string state_of(const client::Health::Model& model);

// Local time by a format of strftime(3); "@SECONDS" if no calendar with years of four digits has it.
[[nodiscard]] std::string local_time(std::int64_t seconds, const char* format);
[[nodiscard]] std::string local_time(std::uint64_t seconds, const char* format);

// The kinds of memory by size, the largest first.
[[nodiscard]] std::vector<client::MemoryUse> largest_first(std::vector<client::MemoryUse> uses);

// "Intel(R) Xeon(R) ...", from /proc/cpuinfo; "unknown CPU" if it has no name.
[[nodiscard]] std::string cpu_name();

// Lines "label   value" with the values in one column. Both are made Printable.
[[nodiscard]] std::string aligned(const std::vector<std::pair<std::string, std::string>>& lines);

// The whole file, or all of stdin for "-". Error: io, permission, or invalid_argument for more than 1 GiB.
[[nodiscard]] Result<std::string> read_text(const std::string& path);

// The text of a subcommand: the arguments joined by spaces, else the file of --file, else stdin. Error:
// invalid_argument if there are both, or neither and stdin is a terminal.
[[nodiscard]] Result<std::string> input_text(const config::TextOptions& options, const config::Given& given);

// What is piped in beside arguments or a file, ending with a line end; empty if stdin is a terminal or the text itself,
// and with --stdin-timeout 0.
// A pipe that stays open without a byte may be one that its caller left open, or one of a slow program whose text must
// not be lost: after --stdin-timeout this is an error, invalid_argument. `name` begins the line about the wait on
// stderr, if that is a terminal.
[[nodiscard]] Result<std::string> piped_text(const config::TokenTextOptions& options, const config::Given& given,
                                             const std::string& name);

// The text of a subcommand, and before it what is piped in beside it, as in llm and ollama
// (`cat letter | troupe run "In short:"`). Errors of both.
[[nodiscard]] Result<std::string> input_and_piped_text(const config::TokenTextOptions& options,
                                                       const config::Given& given, const std::string& name);

// "1 424 437", "1,424,437" or "[1, 424, 437]". Error: invalid_argument, with the part that is no token id.
[[nodiscard]] Result<std::vector<TokenId>> parse_ids(const std::string& text);

// "[1, 424, 437]"
[[nodiscard]] std::string format_ids(const std::vector<TokenId>& ids);

}  // namespace troupe::cli
