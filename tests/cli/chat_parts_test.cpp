// The plain parts of `troupe chat`: its lines, commands, settings and files.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/client/chat_commands.h"
#include "cli/client/chat_history.h"
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

TEST_CASE("a conversation is messages with a template, and one text without") {
  ChatHistory history{"S", {{.role = "user", .content = "U"}, {.role = "assistant", .content = "A"}}};
  const client::Conversation made = history.conversation("{}");
  REQUIRE(made.messages.size() == 3);
  CHECK(made.messages[0].role == "system");
  CHECK(made.variables == "{}");
  CHECK(history.story() == "SUA");
  CHECK(history.drop_answer());
  CHECK_FALSE(history.drop_answer());
  CHECK(history.story() == "SU");
}

TEST_CASE("a conversation is saved for its owner alone, and read again as it was") {
  const test::TempFolder folder;
  const std::string path = folder.path("talk.json");
  const ChatHistory history{"S\n\"", {{.role = "user", .content = "Grüße\n"}, {.role = "assistant", .content = "A"}}};
  REQUIRE(save_history(history, path));
  REQUIRE(save_history(history, path));
  const auto loaded = load_history(path);
  REQUIRE(loaded);
  CHECK(loaded->system == history.system);
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
