// Forms of answers from the command line: troupe run against a server, and troupe grammar.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

TEST_CASE("run holds an answer to a grammar, of a flag, a file or a field of HTTP") {
  ServerProcess server;
  TempFolder folder;
  const std::string grammar = "root ::= \"<\" word (\",\" word)* \">\"\nword ::= word [xyz] | [xyz]\n";
  const std::string path = folder.write("words.gbnf", grammar);
  const std::vector<std::string> ask{"run", "--seed", "3", "--temp", "2", "-n", "40", "--raw"};
  const auto run_with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = ask;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return server.call(arguments);
  };
  const Finished first = run_with({"--grammar", grammar, "Words: "});
  CHECK(first.err == "");
  REQUIRE(first.code == 0);
  CHECK(first.out.starts_with("<"));
  CHECK(first.out.find('>') == first.out.find_last_not_of("\n"));
  CHECK(first.out.find_first_not_of("<xyz,>\n") == std::string::npos);
  // A second time, what was compiled is kept; the answer is the same.
  CHECK(run_with({"--grammar-file", path, "Words: "}).out == first.out);
  const std::string body =
      json{{"prompt", "Words: "}, {"seed", 3}, {"temperature", 2}, {"max_tokens", 40}, {"grammar", grammar}}.dump();
  const std::string answer = post(server.socket(), "/v1/completions", body);
  INFO(answer);
  const std::string text = json::parse(answer.substr(answer.find("\r\n\r\n") + 4))["choices"][0]["text"];
  CHECK(text == first.out.substr(0, text.size()));
  CHECK(json::parse(server.call({"status", "--json"}).out)["memory"]["forms"]["bytes"] > grammar.size());
}

TEST_CASE("run says where a grammar is wrong, and that one form is enough") {
  ServerProcess server;
  const Finished wrong = server.call({"run", "-n", "4", "--grammar", "root ::= \"a\"\n  | (b \"c\"\n", "x"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("line 3, column 1") && Contains("')' is expected"));
  const Finished both = server.call({"run", "--grammar", "root ::= .", "--regex", "a", "x"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("--regex says already what form the answer has"));
  CHECK(server.call({"run", "--grammar-file", "/nonexistent/x.gbnf", "x"}).code != 0);
}

TEST_CASE("grammar check says what a grammar lets through") {
  TempFolder folder;
  const std::string path = folder.write("ab.gbnf", "root ::= \"a\" root \"b\" | \"é\"");
  const Finished alone = invoke({"grammar", "check", path});
  CHECK(alone.code == 0);
  CHECK_THAT(alone.out, Contains("2 bytes: é"));
  CHECK(invoke({"grammar", "check", path, "aébb", "é"}).out.find("refused at byte 5: aébb\naccepted: é\n") !=
        std::string::npos);
  const Finished texts = invoke({"grammar", "check", "--json", path, "aéb", "aé", "b"});
  CHECK(texts.code == 1);
  const json report = json::parse(texts.out);
  CHECK(report["texts"] == json::parse(R"([{"text":"aéb","accepted":true},{"text":"aé","accepted":false,"stops_at":3},
                                           {"text":"b","accepted":false,"stops_at":0}])"));
  const Finished wrong = invoke({"grammar", "check", folder.write("no.gbnf", "root ::= a")});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("no.gbnf: the grammar is wrong at line 1, column 10: there is no rule a"));
  CHECK(invoke({"grammar", "try", path}).code == 2);
  CHECK(invoke({"grammar", "check"}).code == 2);
}
