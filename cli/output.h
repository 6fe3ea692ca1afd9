// How the subcommands print: whatever a terminal or a log gets passes here, or cli/logging.h, or aligned() (text.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

// While it lives std::cout writes to descriptor 1 through it, and it knows why a write failed. One per process.
// On a terminal every line appears at once.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput();
  ~StandardOutput() override;
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Writes what is left. Empty, or why not everything that was printed could be written.
  [[nodiscard]] std::string finish();

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override;

 private:
  std::vector<char> buffer_;
  bool on_terminal_;
  int error_ = 0;  // of the first write that failed
  std::streambuf* before_;
};

// "WHERE: MESSAGE" as one Printable line on stderr.
void complain(std::string_view where, std::string_view message);

// JSON that parses to exactly `value` (of text that is not UTF-8, with U+FFFD) and in which a terminal obeys nothing,
// and a line end.
void write_json(const nlohmann::ordered_json& value, std::ostream& out);

// Whether text that a model wrote must be shown by TerminalText: stdout is a terminal, and its user has not asked for
// --raw.
[[nodiscard]] bool shows_controls(bool raw);

}  // namespace troupe::cli
