// troupe run against a server: how its input becomes a request, and how it prints answers.
#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.begin() + 1, more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("run --choices gives several answers, and the first is what a request for one gets") {
  ServerProcess server;
  const std::vector<std::string> one{"run", "--seed", "7", "--temp", "2", "-n", "12", "Once upon"};
  const json alone = json::parse(server.call(with(one, {"--json"})).out);
  const Finished exact = server.call(with(one, {"--json", "--choices", "3"}));
  REQUIRE(exact.code == 0);
  const json choices = json::parse(exact.out)["choices"];
  REQUIRE(choices.size() == 3);
  CHECK(choices[0]["ids"] == alone["ids"]);
  for (const json& choice : choices) {
    CHECK(choice["seed"] == 7);
    CHECK(choice["ids"].size() == 12);
  }
  CHECK(choices[1]["ids"] != choices[0]["ids"]);
  const Finished text = server.call(with(one, {"-v", "--choices", "2"}));
  CHECK(text.code == 0);
  const auto line_of = [](const json& choice) { return choice["text"].get<std::string>() + "\n"; };
  CHECK(text.out ==
        "--- answer 1 of 2 ---\n" + line_of(choices[0]) + "\n--- answer 2 of 2 ---\n" + line_of(choices[1]));
  CHECK_THAT(text.err, Contains("answer 2 of 2: 12 tokens, "));
  CHECK_THAT(text.err, Contains("answer 2 of 2: took: ") && Contains("answer 1 of 2: waited: "));
  CHECK(server.call(with(one, {"--choices", "65"})).code == 2);
}

TEST_CASE("run reads control tokens in its text, unless --no-parse-special says that it has none") {
  ServerProcess server;
  const auto tokens = [&](const std::vector<std::string>& more) {
    const Finished ran = server.call(with({"run", "--json", "-n", "1", "<s></s></s>"}, more));
    REQUIRE(ran.code == 0);
    return json::parse(ran.out)["usage"]["prompt_tokens"].get<int>();
  };
  CHECK(tokens({}) == 3);
  CHECK(tokens({"--special"}) == 3);
  CHECK(tokens({"--no-parse-special"}) > 8);
}

TEST_CASE("the alias in a configuration file names the model of a server, and no client asks for it elsewhere") {
  const TempFolder folder;
  const std::string file = folder.write("troupe.toml", "alias = \"mine\"\n");
  ServerProcess named({"--config", file});
  CHECK(json::parse(named.call({"status", "--json"}).out)["models"][0]["name"] == "mine");
  ServerProcess other;
  for (const std::vector<std::string>& request : std::vector<std::vector<std::string>>{
           {"run", "-n", "1", "hello"},
           {"embed", "hello"},
           {"load", "--num-prompts", "1", "--clients", "1", "--prompt-len", "4", "--output-len", "1"}}) {
    const Finished finished = other.call(with(request, {"--config", file}));
    INFO(request[0] << ": " << finished.err);
    CHECK(finished.code == 0);
  }
  const Finished asked = other.call({"run", "--config", folder.write("t.toml", "model-name = 'mine'\n"), "hello"});
  CHECK(asked.code == 2);
  CHECK_THAT(asked.err, Contains("refused (unknown_model): "));
}

TEST_CASE("run: a bias of -inf bans a token, and values below float32's normal ones are tiny, not off") {
  ServerProcess server;
  const auto answer = [&](std::vector<std::string> more) {
    std::vector<std::string> all{"run", "--json", "-n", "12", "Once upon a time"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished finished = server.call(all);
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    return json::parse(finished.out)["ids"];
  };
  const json greedy = answer({"--temp", "0"});
  const std::string first = std::to_string(greedy[0].get<int>());
  const json banned = answer({"--temp", "0", "-l", first + "-inf"});
  CHECK(std::find(banned.begin(), banned.end(), greedy[0]) == banned.end());
  CHECK(answer({"--temp", "0", "-l", first + "=-inf"}) == banned);
  for (const std::string wrong : {"+inf", "=inf", "=-infinite", "-nan"}) {
    const Finished refused = server.call({"run", "-l", first + wrong, "x"});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Contains("1234=-inf"));
  }
  // The smallest set with any probability is the most probable token.
  for (const std::string tiny : {"1e-39", "1e-300"})
    CHECK(answer({"--temp", "1", "--top-k", "0", "--min-p", "0", "--seed", "3", "--top-p", tiny}) == greedy);
}

TEST_CASE("run: more answers than the tenant may ever ask for are a usage error") {
  const TempFolder folder;
  const std::string rules = folder.write("t.toml", "[[tenant]]\ndefault = true\nmax-choices = 2\n");
  ServerProcess server({"--config", rules});
  const Finished refused = server.call({"run", "--choices", "3", "-n", "2", "Once"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("refused (quota): ") && Contains("max-choices"));
  CHECK(server.call({"run", "--choices", "2", "-n", "2", "Once"}).code == 0);
}

TEST_CASE("serve --predict is the length of an answer whose request names none; a table beats it, and a request all") {
  const TempFolder folder;
  const auto length = [](ServerProcess& server, const std::vector<std::string>& more = {}) {
    const std::vector<std::string> ask{"run", "--json", "--temp", "0", "--ignore-eos", "Once upon a time"};
    const Finished finished = server.call(with(ask, more));
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    return json::parse(finished.out)["ids"].size();
  };
  {
    ServerProcess server({"-n", "6", "-c", "64"});
    CHECK(length(server) == 6);
    CHECK(length(server, {"-n", "9"}) == 9);
    CHECK(length(server, {"-n", "-1"}) > 20);
  }
  {
    ServerProcess server({"-n", "6", "--config", folder.write("t.toml", "[[tenant]]\ndefault = true\npredict = 3\n")});
    CHECK(length(server) == 3);
  }
  const std::string model =
      folder.write("m.toml", "predict = 5\n[[model]]\npath = \"" TROUPE_MODELS "/tales-5m-tq2_0.gguf\"\npredict = 4\n");
  {
    ServerProcess server({"--config", model});
    CHECK(length(server) == 4);
    const Finished loaded = server.call({"model", "load", "twin=" TROUPE_MODELS "/tales-5m-tq2_0.gguf", "predict=2"});
    INFO(loaded.err);
    CHECK(loaded.code == 0);
    CHECK(length(server, {"--model-name", "twin"}) == 2);
  }
  ServerProcess flag({"--config", model, "-n", "6"});
  CHECK(length(flag) == 6);
}

TEST_CASE("run: an answer that the context ends before -n says so, once for all answers") {
  ServerProcess server({"-c", "64"});
  const std::vector<std::string> ask{"run", "--temp", "0", "--ignore-eos", "Once upon a time"};
  const Finished cut = server.call(with(ask, {"-n", "100000", "--choices", "2"}));
  INFO(cut.err);
  CHECK(cut.code == 0);
  const json usage = json::parse(server.call(with(ask, {"-n", "100000", "--json"})).out)["usage"];
  const int prompt = usage["prompt_tokens"];
  CHECK(usage["completion_tokens"] == 64 - prompt);
  CHECK(cut.err == "troupe run: warning: the answer ended after " + std::to_string(64 - prompt) +
                       " tokens, before the 100000 of -n: with a prompt of " + std::to_string(prompt) +
                       " it fills the context of 64 (the server's --ctx-size, or max-context of a tenant)\n");
  // Nothing was cut: it ended at -n, or no length was asked for.
  CHECK(server.call(with(ask, {"-n", std::to_string(64 - prompt)})).err.empty());
  CHECK(server.call(ask).err.empty());
}

TEST_CASE("on a terminal errors, warnings and the server's state have colours, unless NO_COLOR or TERM forbids them") {
  const std::string red = "\x1b[31m", green = "\x1b[32m", yellow = "\x1b[33m", end = "\x1b[0m";
  ServerProcess server({"-c", "64"});
  using Environment = std::map<std::string, std::string>;
  const auto call = [&](std::vector<std::string> arguments, const Environment& environment, bool on_terminal = true) {
    Spawn spawn = server.spawn(std::move(arguments));
    spawn.environment.insert(environment.begin(), environment.end());
    spawn.on_terminal = spawn.err_on_terminal = on_terminal;
    return run(spawn);
  };
  const Environment colors{{"TERM", "xterm"}, {"NO_COLOR", ""}};
  const std::vector<std::string> refused{"run", "--model-name", "other", "hello"}, unread{"status", "--no-such-flag"},
      cut{"run", "-n", "1000", "--ignore-eos", "Once"}, healthy{"status"};
  CHECK_THAT(call(refused, colors).err, Contains(red + "troupe run:" + end + " refused (unknown_model): "));
  CHECK_THAT(call(unread, colors).err, Contains(red + "troupe status:" + end + " unknown flag"));
  CHECK_THAT(call(cut, colors).err, Contains("troupe run: " + yellow + "warning:" + end + " the answer ended after"));
  const Finished colored = call(healthy, colors);
  CHECK(colored.out.find(green + "ready" + end + "\n") < colored.out.find('\n'));

  const std::vector<std::pair<Environment, bool>> plain{
      {{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true}, {{{"TERM", "dumb"}}, true}, {{}, true}, {colors, false}};
  for (const auto& [environment, on_terminal] : plain)
    for (const auto& arguments : {refused, unread, healthy}) {
      const Finished finished = call(arguments, environment, on_terminal);
      CHECK((finished.out + finished.err).find("\x1b[3") == std::string::npos);
    }
}

TEST_CASE("run: a model's name before the prompt is a word of it, and that is said") {
  ServerProcess server({"--alias", "tales"});
  const auto note = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "-n", "1", "--stdin-timeout", "0"});
    const Finished run = server.call(words);
    CHECK(run.code == 0);
    return run.err;
  };
  CHECK_THAT(note({"llama3", "hello"}),
             Contains("llama3 is taken as the first word of the prompt") && Contains("`troupe model ls`"));
  CHECK_THAT(note({"tales", "hello"}), Contains("--model-name tales"));
  CHECK(note({"--model-name", "tales", "tales", "hello"}).empty());
  CHECK(note({"Once", "upon"}).empty());
  CHECK(note({"llama3"}).empty());
}

TEST_CASE("run: without a prompt a terminal is told of chat") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  const Finished run = troupe::test::run({.arguments = {"run"}, .in = terminal});
  ::close(terminal);
  CHECK(run.code == 2);
  CHECK_THAT(run.err, Contains("there is no prompt") && Contains("`troupe chat` is a conversation"));
}

TEST_CASE("run: an unmet deadline is called by its flag") {
  ServerProcess server;
  const Finished run = server.call({"run", "--timeout", "1ms", "--ignore-eos", "-n", "500", "Once"});
  CHECK_THAT(run.err, !Contains("deadline_ms") && !Contains("max_tokens"));
}

TEST_CASE("run: a socket that is closed to us says which group may use it, and how to have a server of one's own") {
  if (::geteuid() != 0) {
    WARN("skipped: root alone can close a socket to another user by group");
    return;
  }
  const TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const int door = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder.path("t.sock");
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(door, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(door, 1) == 0);
  REQUIRE(::chown(path.c_str(), 0, 1) == 0);  // the group of gid 1: daemon
  REQUIRE(::chmod(path.c_str(), 0660) == 0);
  const Finished run = troupe::test::run({.arguments = {"run", "--socket", path, "Once"}, .as_nobody = true});
  ::close(door);
  if (run.code == 126 || run.code == 127) {
    WARN("skipped: another user may not run " << TROUPE_BINARY);
    return;
  }
  CHECK(run.code == 77);
  const group* const daemon = ::getgrgid(1);
  CHECK_THAT(run.err, Contains(std::string("its users are in the group ") + (daemon ? daemon->gr_name : "1")) &&
                          Contains("usermod -aG") && Contains("a server of your own: troupe serve"));
}

TEST_CASE("what is piped into run goes before the arguments, with a line end between") {
  ServerProcess server;
  const std::vector<std::string> ask{"run", "--json", "--temp", "0", "-n", "8"};
  const auto answer = [&](const std::vector<std::string>& arguments, const std::string& piped) {
    std::vector<std::string> all = ask;
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished finished = server.call(all, piped);
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    const json object = json::parse(finished.out);
    return std::pair(object["ids"], object["usage"]["prompt_tokens"]);
  };
  const auto expected = answer({"-f", "-"}, "A cat sat.\nOnce upon a time");
  CHECK(answer({"Once", "upon a time"}, "A cat sat.\n") == expected);
  CHECK(answer({"Once upon a time"}, "A cat sat.") == expected);
  const auto alone = answer({"Once upon a time"}, "");
  CHECK(alone != expected);
  const TempFolder folder;
  const std::string file = folder.write("prompt.txt", "Once upon a time\n");
  CHECK(answer({"-f", file}, "A cat sat.\n") == expected);
  CHECK(answer({"-f", file}, "") == alone);
  CHECK(answer({"-f", file, "--stdin-timeout", "0"}, "A cat sat.\n") == alone);
  CHECK(answer({"--ids", "261", "399"}, "[1, 424, 437]") == alone);
}

namespace {

// A pipe as standard input, whose writing end this process holds.
class OpenPipe {
 public:
  OpenPipe() { REQUIRE(::pipe2(ends_.data(), O_CLOEXEC) == 0); }
  ~OpenPipe() {
    close();
    ::close(ends_[0]);
  }
  OpenPipe(const OpenPipe&) = delete;
  OpenPipe& operator=(const OpenPipe&) = delete;

  int reader() const { return ends_[0]; }
  void write(const std::string& text) const {
    REQUIRE(::write(ends_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void close() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

}  // namespace

TEST_CASE("a pipe beside arguments that stays open without a byte is an error, with what to do about it") {
  ServerProcess server;
  for (const char* subcommand : {"run", "tokenize", "embed"}) {
    const OpenPipe idle;
    std::vector<std::string> arguments{subcommand, "--stdin-timeout", "50ms", "Once upon a time"};
    Spawn spawn = std::string(subcommand) == "tokenize" ? Spawn{.arguments = arguments} : server.spawn(arguments);
    spawn.in = idle.reader();
    const Finished finished = run(spawn);
    INFO(subcommand << ": " << finished.err);
    CHECK(finished.code == 2);
    CHECK(finished.out.empty());
    CHECK_THAT(finished.err,
               Contains("nothing came from it within 50ms") && Contains("</dev/null") && Contains("--stdin-timeout 0"));
    spawn.environment["TROUPE_STDIN_TIMEOUT"] = "0";
    spawn.arguments.erase(std::find(spawn.arguments.begin(), spawn.arguments.end(), "--stdin-timeout"));
    spawn.arguments.erase(std::find(spawn.arguments.begin(), spawn.arguments.end(), "50ms"));
    CHECK(run(spawn).code == 0);
  }
}

TEST_CASE("what comes late through a pipe is not lost, and its end is waited for once a byte has come") {
  OpenPipe slow;
  Process process({.arguments = {"tokenize", "--ids", "--stdin-timeout", "2m", "a time"},
                   .in = slow.reader(),
                   .err_on_terminal = true});
  REQUIRE(process.wait_for_err("waiting for standard input"));
  slow.write("Once");
  slow.write(" upon");
  slow.close();
  CHECK(process.wait().out == invoke({"tokenize", "--ids"}, "Once upon\na time").out);
}

TEST_CASE("what is piped into tokenize and embed goes before the arguments, too") {
  CHECK(invoke({"tokenize", "--ids", "upon", "a time"}, "Once").out ==
        invoke({"tokenize", "--ids"}, "Once\nupon a time").out);
  CHECK(invoke({"tokenize", "--decode", "261", "399"}, "[424, 437]\n").out == "Once upon a time");
  const TempFolder folder;
  const std::string file = folder.write("texts.txt", "one\ntwo\n");
  CHECK(invoke({"tokenize", "--ids", "-f", file}, "Once").out == invoke({"tokenize", "--ids"}, "Once\none\ntwo\n").out);
  ServerProcess server;
  const std::string vectors = server.call({"embed", "first", "second", "one", "two"}).out;
  for (const std::vector<std::string>& texts :
       {std::vector<std::string>{"embed", "one", "two"}, {"embed", "-f", file}}) {
    const Finished both = server.call(texts, "first\nsecond");
    CHECK(both.code == 0);
    CHECK(both.out == vectors);
  }
}

TEST_CASE("run --chat sends a message, and a server without a chat template says what to do") {
  ServerProcess without;
  const Finished refused = without.call({"run", "--chat", "-n", "4", "Hello"});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("no chat template") && Contains("--chat-template"));

  const TempFolder folder;
  const std::string file = folder.write("chat.jinja", "{% for m in messages %}{{ m.content }}{{ end }}{% endfor %}");
  ServerProcess server({"--chat-template", file});
  const std::vector<std::string> one{"run", "--json", "--seed", "7", "-n", "6"};
  const json plain = json::parse(server.call(with(one, {"Once upon a time"})).out);
  const Finished chat = server.call(with(one, {"--chat", "--system", "Once upon", " a time"}));
  INFO(chat.err);
  REQUIRE(chat.code == 0);
  CHECK(json::parse(chat.out)["ids"] == plain["ids"]);
  const Finished variables =
      server.call(with(one, {"--chat", "--chat-template-kwargs", R"({"end": " a time"})", "Once upon"}));
  CHECK(json::parse(variables.out)["ids"] == plain["ids"]);
  CHECK(json::parse(server.call({"status", "--json"}).out)["models"][0]["chat_template"] == file);
  CHECK(server.call({"run", "--system", "x", "y"}).code == 2);
  CHECK(server.call({"run", "--chat", "--ids", "1"}).code == 2);
}

TEST_CASE("serve --chat-template takes a name, and refuses a file that is no template before it loads the model") {
  ServerProcess named({"--chat-template", "chatml"});
  CHECK(json::parse(named.call({"status", "--json"}).out)["models"][0]["chat_template"] == "chatml");
  const TempFolder folder;
  const std::string file = folder.write("bad.jinja", "a\n{% if %}");
  const Finished bad = invoke({"serve", "--socket", folder.path() + "/s", "--chat-template", file});
  CHECK(bad.code != 0);
  CHECK_THAT(bad.err, Contains("line 2"));
}

TEST_CASE("run and chat end reasoning once --reasoning-budget is used up") {
  const TempFolder folder;
  ServerProcess server({"--chat-template", folder.write("think.jinja", "{{ messages[-1].content }}<think>")});
  const std::vector<std::string> run = {"run", "--chat", "--temp", "0", "-n", "24", "Once upon a time"};
  const std::string free = server.call(run).out, ended = server.call(with(run, {"--reasoning-budget", "3"})).out;
  CHECK(free.find("</think>") == std::string::npos);
  const std::size_t end = ended.find("</think>");
  REQUIRE(end != std::string::npos);
  CHECK(end > 0);
  CHECK(free.starts_with(ended.substr(0, end)));
  CHECK_THAT(server.call(with(run, {"--reasoning-budget", "0"})).out, Catch::Matchers::StartsWith("</think>"));
  const std::vector<std::string> chat = {"chat", "--temp", "0", "-n", "24"};
  CHECK(server.call(with(chat, {"--reasoning-budget", "3"}), "Once upon a time\n").out == ended);
  CHECK(server.call(chat, "/set reasoning-budget 3\nOnce upon a time\n").out == ended);
  CHECK(server.call(with(run, {"--reasoning-budget", "-2"})).code == 2);
}
