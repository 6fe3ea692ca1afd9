// The plain parts of `troupe chat`: its lines, commands, settings and files.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/client/chat_commands.h"
#include "cli/client/chat_history.h"
#include "cli/client/chat_style.h"
#include "tests/support/temp_folder.h"

namespace troupe::cli {
namespace {

using Catch::Contains;

// What the lines say; "-" for each line that ends nothing.
std::string said(std::initializer_list<const char*> lines) {
  MessageLines message;
  std::string all;
  for (const char* line : lines) {
    const auto whole = message.add(line);
    all += whole ? "[" + *whole + "]" : "-";
  }
  if (const auto rest = message.end()) all += "{" + *rest + "}";
  return all;
}

TEST_CASE("a line is a message, unless it ends with a backslash or opens quotes") {
  CHECK(said({"one", "two"}) == "[one][two]");
  CHECK(said({"one\\", "two\\", "three"}) == "--[one\ntwo\nthree]");
  CHECK(said({"\"\"\"", "one", "", "two", "\"\"\""}) == "----[one\n\ntwo]");
  CHECK(said({"\"\"\"one", "two\"\"\"", "three"}) == "-[one\ntwo][three]");
  CHECK(said({"\"\"\"one line\"\"\""}) == "[one line]");
  CHECK(said({"one\\"}) == "-{one\n}");
  CHECK(said({"\"\"\"", "one"}) == "--{one}");
}

TEST_CASE("a slash and a letter begin a command, other slashes do not") {
  const auto set = parse_command("/set  temp 0.5 ");
  REQUIRE((set && *set));
  CHECK((*set)->command == ChatCommand::set);
  CHECK((*set)->argument == "temp 0.5");
  CHECK((*parse_command("/quit"))->argument.empty());
  for (const char* text : {"hello", "", "/", "// a comment", "/ x", "/1"})
    CHECK_FALSE(parse_command(text)->has_value());
  CHECK_THAT(parse_command("/sett x").error().message, Contains("no command /sett"));
}

TEST_CASE("a turn that is taken back takes its answer along") {
  ChatHistory history;
  CHECK_FALSE(history.drop_turn());
  history.turns = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}};
  CHECK(history.drop_turn());
  REQUIRE(history.turns.size() == 2);
  CHECK(history.turns.back().content == "b");
  history.turns.push_back({"user", "not answered"});
  CHECK(history.drop_turn());
  CHECK(history.turns.size() == 2);
  CHECK(history.drop_turn());
  CHECK(history.turns.empty());
}

TEST_CASE("settings are numbers in their range, and are listed") {
  ChatSettings settings;
  CHECK_THAT(*set_setting(settings, ""), Contains("temp") && Contains("(unset)"));
  CHECK_THAT(*set_setting(settings, "temp 0.5"), Contains("0.5"));
  CHECK(settings.sampling.temperature == 0.5f);
  CHECK_FALSE(set_setting(settings, "predict = 12"));
  REQUIRE(set_setting(settings, "predict=12"));
  CHECK(settings.sampling.max_tokens == 12u);
  REQUIRE(set_setting(settings, "reasoning_budget 0"));  // also as the protocol names it
  CHECK(settings.reasoning_budget == 0u);
  REQUIRE(set_setting(settings, "reasoning-budget -1"));
  CHECK_FALSE(settings.reasoning_budget);
  for (const char* wrong : {"temp x", "temp -1", "top-k 1.5", "seed", "predict -2", "reasoning-budget 1.5", "nope 1"}) {
    INFO(wrong);
    CHECK_FALSE(set_setting(settings, wrong));
  }
}

constexpr ChatStyle kMarks{.prompt = "[p]", .note = "[n]", .reasoning = "[r]", .end = "[/]"};

std::string shaded(const std::vector<std::string>& pieces, bool begins_open = false, const ChatStyle& style = kMarks) {
  ReasoningShade shade(style, "<think>", "</think>", begins_open);
  std::string text;
  for (const std::string& each : pieces) text += shade.show(each);
  return text + shade.end();
}

TEST_CASE("reasoning is shaded with its markers, wherever its text is cut") {
  const auto check = [](const std::string& text, const std::string& shown, bool begins_open = false) {
    INFO(text);
    std::vector<std::string> bytes;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      CHECK(shaded({text.substr(0, cut), text.substr(cut)}, begins_open) == shown);
      if (cut < text.size()) bytes.emplace_back(1, text[cut]);
    }
    CHECK(shaded(bytes, begins_open) == shown);
    CHECK(shaded({text}, begins_open, {}) == text);
  };
  check("plain <think>", "plain <think>");
  check("<think>why</think>so </think>", "[r]<think>why</think>[/]so </think>");
  check("\n<think>why</think>", "[r]\n<think>why</think>[/]");
  check("<think>why", "[r]<think>why[/]");
  check("<thi", "<thi");
  check("why</think>so", "[r]why</think>[/]so", true);
  check("</thin</think>so", "[r]</thin</think>[/]so", true);
  check("", "", true);
}

TEST_CASE("what is no terminal has no colours") {
  ::setenv("TERM", "xterm", 1);
  const int fd = ::open("/dev/null", O_WRONLY);
  CHECK(chat_style(fd).is_plain());
  ::close(fd);
}

TEST_CASE("a conversation is messages with a template, and one text without") {
  ChatHistory history{"S", 0, {{.role = "user", .content = "U"}, {.role = "assistant", .content = "A"}}};
  const client::Conversation made = history.conversation("{}");
  REQUIRE(made.messages.size() == 3);
  CHECK(made.messages[0].role == "system");
  CHECK(made.variables == "{}");
  CHECK(history.story() == "SUA");
  REQUIRE(history.next_turn("{}").messages.size() == 1);
  CHECK(history.next_turn("{}").messages[0].content == "A");
  CHECK(ChatHistory{}.next_turn("").messages.empty());
  CHECK(history.drop_answer());
  CHECK_FALSE(history.drop_answer());
  CHECK(history.story() == "SU");
}

TEST_CASE("a conversation is saved for its owner alone, and read again as it was") {
  const test::TempFolder folder;
  const std::string path = folder.path("talk.json");
  const ChatHistory history{
      "S\n\"", 7, {{.role = "user", .content = "Grüße\n"}, {.role = "assistant", .content = "A"}}};
  REQUIRE(save_history(history, path));
  REQUIRE(save_history(history, path));
  const auto loaded = load_history(path);
  REQUIRE(loaded);
  CHECK(loaded->system == history.system);
  CHECK(loaded->session_tokens == 7);
  REQUIRE(loaded->turns.size() == 2);
  CHECK(loaded->turns[0].content == "Grüße\n");
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_FALSE(load_history(folder.path("none.json")));
  for (const char* wrong : {"", "[]", "{\"messages\": 1}", "{\"messages\": [{\"role\": 1, \"content\": \"x\"}]}"}) {
    INFO(wrong);
    CHECK_FALSE(load_history(folder.write("wrong.json", wrong)));
  }
  CHECK_FALSE(save_history(history, folder.path("no/such/folder.json")));
}

TEST_CASE("a session's file lies in the folder of state, and its name cannot leave it") {
  const test::TempFolder folder;
  ::setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
  CHECK(*session_file("tea-1.x") == folder.path("") + "/troupe/chats/tea-1.x.json");
  for (const char* wrong : {"", "..", "../x", "a/b", ".x", "a b"}) CHECK_FALSE(session_file(wrong));
  CHECK_FALSE(session_file(std::string(65, 'a')));
  ::unsetenv("XDG_STATE_HOME");
}

}  // namespace
}  // namespace troupe::cli
