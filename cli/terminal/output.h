// How the subcommands print. All output to a terminal or a log goes through these functions, cli/terminal/logging.h or
// aligned() (cli/terminal/text.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

// While it exists, std::cout writes to descriptor 1 through it. Keeps the error of a failed write; on a terminal writes
// every line at once. One per process.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput();
  ~StandardOutput() override;
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Writes the rest of the buffer. Returns an error message if some output could not be written, else "".
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

enum class Tone { note, error };

// "WHERE: MESSAGE" as one Printable line on stderr. Where that shows colours, of an error WHERE is red, and else a
// "warning:" that the message begins with is yellow.
void complain(std::string_view where, std::string_view message, Tone tone = Tone::note);

// Writes JSON that parses to exactly `value` (bytes that are not UTF-8 become U+FFFD) and that has no control
// characters for a terminal, and a line end.
void write_json(const nlohmann::ordered_json& value, std::ostream& out);

// Whether a model's text must be printed through TerminalText: stdout is a terminal, and --raw was not given.
[[nodiscard]] bool shows_controls(bool raw);

}  // namespace troupe::cli
