// What a line of `troupe chat` asks for: something said, or a command. Plain logic.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// Puts together what is said from lines: one that ends with a backslash goes on in the next; """ begins and ends a text
// of several lines.
class MessageLines {
 public:
  // The message once it is whole; nothing while it goes on.
  std::optional<std::string> add(std::string_view line);
  bool is_open() const { return is_block_ || is_open_; }
  // At the end of the input: what has come of an unfinished one; nothing if there is none.
  std::optional<std::string> end();
  void clear();

 private:
  std::optional<std::string> finish();

  std::string text_;
  bool is_block_ = false;  // inside """
  bool is_open_ = false;   // after a backslash
};

enum class ChatCommand { set, system, save, load, clear, regenerate, undo, session, stats, help, quit };

struct CommandLine {
  ChatCommand command;
  std::string argument;  // what follows, without space around it
};

// A line that begins with one "/" and a letter is a command; "//" begins something said with one "/" (`said` then has
// it). Nothing: it is something said. Error: there is no such command.
[[nodiscard]] Result<std::optional<CommandLine>> parse_command(std::string_view line);

// What /set changes.
struct ChatSettings {
  client::Sampling sampling;
  client::Sampling presets;  // the numbers that are taken where `sampling` has none
  std::optional<std::uint32_t> reasoning_budget;
};
// "temp 0.7": sets one, which may be named as in the protocol, too ("top_k"). Empty: changes nothing. Returns the
// settings, one a line. Error: invalid_argument, with the names that there are.
[[nodiscard]] Result<std::string> set_setting(ChatSettings& settings, std::string_view assignment);

// The text of /help.
[[nodiscard]] std::string_view chat_help();

}  // namespace troupe::cli
