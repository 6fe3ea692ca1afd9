// troupe chat against a server, through a pipe and at a terminal.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kTurns = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";

std::string answer_to(ServerProcess& server, const std::string& text, const std::string& count) {
  const Finished finished = server.call({"run", "--temp", "0", "-n", count, text});
  REQUIRE(finished.code == 0);
  return finished.out;
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
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(master >= 0);
  REQUIRE(::grantpt(master) == 0);
  REQUIRE(::unlockpt(master) == 0);
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  REQUIRE(slave >= 0);
  Spawn child = server.spawn({"chat", "--temp", "0"});
  child.environment["TERM"] = "xterm";
  child.in = slave;
  child.err_on_terminal = true;
  Process chat(child);
  ::close(slave);
  const auto type = [&](const std::string& text) {
    REQUIRE(::write(master, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  REQUIRE(chat.wait_for_err("Ctrl-D ends"));
  REQUIRE(chat.wait_for_err("\n> "));  // from here on Ctrl-C is a key
  type("dropped\x03");
  REQUIRE(chat.wait_for_err("^C"));
  type("/set predict 100000\r");
  REQUIRE(chat.wait_for_err("100000"));
  type("Once upon a time\r");
  REQUIRE(chat.wait_for_out(" "));
  chat.signal(SIGINT);
  REQUIRE(chat.wait_for_err("(stopped)"));
  type("/quit\r");
  const Finished finished = chat.wait();
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(finished.out.find("dropped") == std::string::npos);
  ::close(master);
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
