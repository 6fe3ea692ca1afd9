// troupe chat against a server, through a pipe and at a terminal.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::ordered_json;

namespace {

constexpr const char* kTurns = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";

std::string answer_to(ServerProcess& server, const std::string& text, const std::string& count) {
  const Finished finished = server.call({"run", "--temp", "0", "-n", count, text});
  REQUIRE(finished.code == 0);
  return finished.out;
}

// `troupe chat` at a terminal: what is typed, and what its screen (stderr) and its answers (stdout) show.
class TerminalChat {
 public:
  // Without colours, unless the environment asks for them (NO_COLOR empty).
  explicit TerminalChat(ServerProcess& server, std::vector<std::string> options = {},
                        std::map<std::string, std::string> environment = {}) {
    environment.emplace("NO_COLOR", "1");
    environment.emplace("TERM", "xterm");
    const bool is_plain = !environment["NO_COLOR"].empty() || environment["TERM"] == "dumb";
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(master_ >= 0);
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(slave >= 0);
    options.insert(options.begin(), {"chat", "--temp", "0"});
    Spawn child = server.spawn(options);
    child.environment.merge(environment);
    child.in = slave;
    child.err_on_terminal = child.on_terminal = true;
    process_ = std::make_unique<Process>(child);
    ::close(slave);
    REQUIRE(process_->wait_for_err("Ctrl-D ends"));
    REQUIRE(process_->wait_for_err(is_plain ? "> " : ">\x1b[0m "));  // from here on Ctrl-C is a key
  }
  ~TerminalChat() { ::close(master_); }

  Process& process() { return *process_; }
  void type(const std::string& text) const {
    REQUIRE(::write(master_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  // Until the screen shows this.
  void type_for(const std::string& text, const std::string& shown) {
    type(text);
    REQUIRE(process_->wait_for_err(shown));
  }
  Finished quit() {
    type("/quit\r");
    return process_->wait();
  }

 private:
  int master_ = -1;
  std::unique_ptr<Process> process_;
};

ordered_json conversation_in(const std::string& path) {
  std::ifstream file(path);
  return ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

TEST_CASE("chat reads what is said from a pipe, and each answer continues the whole conversation") {
  const TempFolder folder;
  ServerProcess server({"--chat-template", folder.write("turns.jinja", kTurns)});
  const std::string first = answer_to(server, "Once upon a time", "6");
  const std::string text = first.substr(0, first.size() - 1);
  const std::string second = answer_to(server, "Once upon a time" + text + " and then", "6");
  const std::string file = folder.path("talk.json");
  const Finished chat = server.call({"chat", "--temp", "0", "-n", "6"}, "Once upon a time\n and then\n/save " + file +
                                                                            "\n/stats\n/nonsense\n/quit\nnot read\n");
  INFO(chat.err);
  CHECK(chat.out == first + second);
  CHECK_THAT(chat.err, Contains("6 tokens, first after") && Contains("no command /nonsense"));
  const Finished again = server.call({"chat", "--temp", "0", "-n", "6"}, "/load " + file + "\n/regen\n");
  CHECK(again.out == second);
  CHECK(again.code == 0);
}

TEST_CASE("chat with a model that has no template says so and continues the text") {
  ServerProcess server;
  const std::string first = answer_to(server, "Once upon a time", "5");
  const Finished chat = server.call({"chat", "--temp", "0", "-n", "5"}, "Once upon \\\na time\n");
  CHECK(chat.code == 0);
  CHECK_THAT(chat.err, Contains("no chat template") && Contains("--chat-template"));
  const Finished plain = server.call({"chat", "--temp", "0", "-n", "5"}, "Once upon a time");
  CHECK(plain.out == first);
}

TEST_CASE("at a terminal Ctrl-C drops a line that is edited and stops an answer, and the chat goes on") {
  ServerProcess server;
  TerminalChat chat(server);
  chat.type_for("dropped\x03", "^C");
  chat.type_for("/set predict 100000\r", "100000");
  chat.type("Once upon a time\r");
  REQUIRE(chat.process().wait_for_out(" "));
  chat.process().signal(SIGINT);
  REQUIRE(chat.process().wait_for_err("(stopped)"));
  const Finished finished = chat.quit();
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(finished.out.find("dropped") == std::string::npos);
}

TEST_CASE("at a terminal what is pasted is one message, and Enter says it") {
  const TempFolder folder;
  ServerProcess server;
  TerminalChat chat(server, {"-n", "3"});
  const std::string file = folder.path("talk.json"), again = folder.path("again.json");
  chat.type("\x1b[200~/one\rtwo\r\n\r\tfour \xC3\xA4\nfive\x1b[201~ and more\r");
  chat.type("/save " + file + "\r");
  chat.type_for("/session\r", "has no name");
  const Finished finished = chat.quit();
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto saved = conversation_in(file);
  REQUIRE(saved["messages"].size() == 2);
  CHECK(saved["messages"][0]["content"] == "/one\ntwo\n\n\tfour \xC3\xA4\nfive and more");
}

TEST_CASE("at a terminal that shows colours the prompt, notes and reasoning have their own") {
  const TempFolder folder;
  ServerProcess server({"--chat-template", folder.write("think.jinja", "{{ messages[-1].content }}<think>")});
  const std::vector<std::string> options = {"-n", "40", "--reasoning-budget", "3"};
  const auto talk = [&](const std::map<std::string, std::string>& environment) {
    TerminalChat chat(server, options, environment);
    chat.type("Once upon a time\r");
    chat.type_for("/stats\r", "prompt tokens");
    return chat.quit();
  };
  const Finished colored = talk({{"NO_COLOR", ""}});
  INFO(colored.err << colored.out);
  CHECK_THAT(colored.err, Contains("\x1b[1;32m>\x1b[0m ") && Contains("\x1b[36m/help lists commands") &&
                              Contains("\x1b[36m  ") && Contains(" prompt tokens"));
  CHECK_THAT(colored.out, Catch::Matchers::StartsWith("\x1b[2m") && Contains("</think>\x1b[0m"));
  const Finished none = talk({}), dumb = talk({{"NO_COLOR", ""}, {"TERM", "dumb"}});
  for (const Finished& plain : {none, dumb}) {
    INFO(plain.err << plain.out);
    CHECK(plain.out.find('\x1b') == std::string::npos);
    CHECK(plain.err.find("\x1b[36m") == std::string::npos);
    CHECK(plain.err.find("\x1b[1;32m") == std::string::npos);
  }
  std::string text = colored.out;
  for (const std::string code : {"\x1b[2m", "\x1b[0m"}) text.erase(text.find(code), code.size());
  CHECK(text == none.out);
  // Not through a pipe.
  Spawn piped = server.spawn({"chat", "--temp", "0", "-n", "40", "--reasoning-budget", "3"});
  piped.environment["TERM"] = "xterm";
  piped.stdin_text = "Once upon a time\n";
  CHECK(run(piped).out == none.out);
}

TEST_CASE("at a terminal: two turns, another answer, one taken back, saved, loaded, and resumed by name") {
  const TempFolder folder;
  ServerProcess server;
  const std::map<std::string, std::string> home = {{"XDG_STATE_HOME", folder.path()}};
  const std::string file = folder.path("talk.json"), undone = folder.path("undone.json");
  const std::string kept = folder.path("troupe/chats/tea.json");
  {
    TerminalChat chat(server, {"-n", "4"}, home);
    chat.type("Once upon a time\r");
    chat.type(" and then\r");
    chat.type("/regen\r");
    chat.type("/save " + file + "\r");
    chat.type_for("/undo\r", "2 turns");
    chat.type("/save " + undone + "\r");
    chat.type_for("/load " + file + "\r", "4 turns");
    chat.type_for("/session tea\r", "tea: 4 turns in ");
    const Finished finished = chat.quit();
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    const auto saved = conversation_in(file), before = conversation_in(undone);
    REQUIRE(saved["messages"].size() == 4);
    CHECK(before["messages"].size() == 2);
    const auto content = [&](std::size_t i) { return saved["messages"][i]["content"].get<std::string>(); };
    CHECK(finished.out == content(1) + "\n" + content(3) + "\n" + content(3) + "\n");  // greedy: /regen says the same
    CHECK(conversation_in(kept) == saved);
  }
  TerminalChat chat(server, {"-n", "4", "--session", "tea"}, home);
  REQUIRE(chat.process().wait_for_err("4 turns so far"));
  chat.type_for("/undo\r/undo\r", "0 turns");
  chat.type_for("/undo\r", "nothing has been said yet");
  CHECK(chat.quit().code == 0);
  CHECK(conversation_in(kept)["messages"].empty());
}

TEST_CASE("chat --session keeps the conversation between two runs") {
  const TempFolder folder;
  ServerProcess server;
  const auto call = [&](const std::string& input) {
    Spawn child = server.spawn({"chat", "--temp", "0", "-n", "4", "--session", "tea"});
    child.environment["XDG_STATE_HOME"] = folder.path();
    child.stdin_text = input;
    return run(child);
  };
  const Finished first = call("Once upon a time\n");
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string text = first.out.substr(0, first.out.size() - 1);
  CHECK(call(" and\n").out == answer_to(server, "Once upon a time" + text + " and", "4"));
  CHECK(server.call({"chat", "--session", "../x"}, "").code == 2);
}

TEST_CASE("chat --session is a session of the server: after a restart of both a turn computes its new tokens alone") {
  const TempFolder folder;
  const std::string turns =
      "{% for m in messages %}{{ bos_token if loop.first }}[{{ m.role }}]{{ m.content }}{% endfor %}[answer]";
  const std::vector<std::string> arguments = {"--chat-template", folder.write("turns.jinja", turns), "--sessions-dir",
                                              folder.path("sessions")};
  const std::string story = "Once upon a time there was a fox who lived in the wood and had many friends. He was old.";
  const auto talk = [&](ServerProcess& server, const std::string& input, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"chat", "--temp", "0", "-n", "6", "--session", "tea"});
    Spawn child = server.spawn(options);
    child.environment["XDG_STATE_HOME"] = folder.path();
    child.stdin_text = input;
    Finished finished = run(child);
    INFO(finished.err);
    CHECK(finished.code == 0);
    return finished;
  };
  // Of /stats.
  const auto numbers = [](const Finished& finished) {
    int prompt = -1, cached = -1;
    const std::size_t at = finished.err.rfind("\n  ", finished.err.rfind(" prompt tokens"));
    std::sscanf(finished.err.c_str() + (at == std::string::npos ? 0 : at), " %d prompt tokens, %d of them cached",
                &prompt, &cached);
    return std::pair(prompt, cached);
  };
  std::pair<int, int> first, second, third;
  std::string all;
  {
    ServerProcess server(arguments);
    const Finished begun = talk(server, story + "\nAnd then?\n/stats\n");
    first = numbers(begun);
    INFO(begun.err);
    REQUIRE(first.first > 40);
    REQUIRE(server.call({"session", "save", "tea"}).code == 0);
    second = numbers(talk(server, "Why?\n/stats\n"));
    REQUIRE(server.call({"session", "save", "tea"}).code == 0);
    CHECK(server.stop().code == 0);
  }
  ServerProcess server(arguments);
  third = numbers(talk(server, "Who?\n/stats\n"));
  for (const auto& [earlier, later] : {std::pair(first, second), std::pair(second, third)}) {
    CHECK(later.first > earlier.first + 6);     // what was said and answered before is in the prompt
    CHECK(later.second >= earlier.first - 31);  // and but for a part of a block in the cache
    CHECK(later.first - later.second <= 6 + 31 + 24);
  }
  CHECK(server.call({"session", "list"}).out.find("tea") != std::string::npos);
  // Another answer: the session is begun anew, with all messages.
  const auto again = numbers(talk(server, "/regen\n/stats\n"));
  CHECK(again.first > first.first);
  const auto cleared = numbers(talk(server, "/clear\nHello\n/stats\n"));
  CHECK(cleared.first < 40);
  // A session that another program began goes on.
  REQUIRE(server.call({"run", "--session", "other", "-n", "6", "--temp", "0", story}).code == 0);
  Spawn child = server.spawn({"chat", "--temp", "0", "-n", "6", "--session", "other"});
  child.environment["XDG_STATE_HOME"] = folder.path();
  child.stdin_text = "Why?\n/stats\n";
  CHECK(numbers(run(child)).first > 30);
}
