// troupe session, and troupe run --session, against real servers that end and begin again.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

std::vector<std::string> session_turn(const std::string& name, const std::string& prompt) {
  return {"run", "--json", "--temp", "0", "-n", "24", "--ignore-eos", "--session", name, prompt};
}

std::vector<int> session_ids(const Finished& finished) {
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return json::parse(finished.out)["ids"].get<std::vector<int>>();
}

}  // namespace

TEST_CASE("a conversation goes on on another server, and the commands show, fork and delete it") {
  const TempFolder folder;
  const std::vector<std::string> options{"--sessions-dir", folder.path("sessions")};
  std::vector<int> second;
  {
    ServerProcess server(options);
    (void)session_ids(server.call(session_turn("talk", "Once upon a time")));
    second = session_ids(server.call(session_turn("talk", " and then")));
    const Finished listed = server.call({"session", "list"});
    CHECK(listed.code == 0);
    CHECK_THAT(listed.out, Contains("talk"));
    REQUIRE(server.call({"session", "fork", "talk", "aside"}).code == 0);
  }
  ServerProcess server(options);
  const json saved = json::parse(server.call({"session", "save", "talk", "--json"}).out);
  CHECK(saved["name"] == "talk");
  CHECK(saved["answers"] == 2);
  CHECK(saved["computed"] == saved["tokens"].get<int>() - 1);
  CHECK(session_ids(server.call(session_turn("talk", " one day"))) ==
        session_ids(server.call(session_turn("aside", " one day"))));
  const json inspected = json::parse(server.call({"session", "inspect", "talk", "--anchors", "--json"}).out);
  CHECK(inspected["anchors"].size() == inspected["tokens"].get<std::size_t>() / 32);
  CHECK(inspected["cached"].get<int>() >= 32);
  CHECK(inspected["file_version"] == 4);
  CHECK(server.call({"session", "delete", "talk"}).code == 0);
  const json left = json::parse(server.call({"session", "list", "--json"}).out);
  REQUIRE(left.size() == 1);
  CHECK(left[0]["name"] == "aside");
}

TEST_CASE("the directory of sessions is made at the start, so that the first session waits for no disk") {
  const TempFolder folder;
  ServerProcess server({"--sessions-dir", folder.path("state/sessions")});
  CHECK(std::filesystem::is_directory(folder.path("state/sessions")));
}

TEST_CASE("what a client was told of is there after kill -9, whatever else was being written") {
  const TempFolder folder;
  std::vector<std::string> texts{"Once upon a time", " there was", " and so", " but then"};
  std::vector<int> killed, whole;
  for (const std::string& text : texts) {
    ServerProcess server({"--sessions-dir", folder.path("killed")});
    killed = session_ids(server.call(session_turn("talk", text)));
    server.process().signal(SIGKILL);
    (void)server.process().wait();
  }
  ServerProcess server({"--sessions-dir", folder.path("whole")});
  for (const std::string& text : texts) whole = session_ids(server.call(session_turn("talk", text)));
  CHECK(killed == whole);
}

TEST_CASE(
    "a conversation goes on under the model that replaced its own, computed anew, with a receipt that is proved") {
  const TempFolder folder;
  ServerProcess server({"--sessions-dir", folder.path("sessions"), "-m", TROUPE_MODELS "/tales-5m-tq2_0.gguf"});
  (void)session_ids(server.call(session_turn("talk", "Once upon a time")));
  const std::string first = json::parse(server.call({"model", "info", "--json"}).out)["numerics_id"];
  const Finished replaced =
      server.call({"model", "load", "troupe tales 5M=" TROUPE_MODELS "/tales-draft-q8_0.gguf", "replace=beside"});
  INFO(replaced.err);
  REQUIRE(replaced.code == 0);
  const Finished refused = server.call(session_turn("talk", " and then"));
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("with the same vocabulary and chat template") && Contains("--recompute"));
  const std::string receipt = folder.path("receipt.json");
  auto again = session_turn("talk", " and then");
  again.insert(again.end() - 1, {"--recompute", "--receipt", receipt});
  const Finished recomputed = server.call(again);
  INFO(recomputed.err);
  REQUIRE(recomputed.code == 0);
  const json answer = json::parse(recomputed.out);
  CHECK(answer["receipt"]["recomputed_from"] == first);
  CHECK(json::parse(std::ifstream(receipt))["recomputed_from"] == first);
  const Finished proved = server.call({"verify", receipt});
  CHECK(proved.code == 0);
  CHECK_THAT(proved.out, Contains("proved: 24 tokens") &&
                             Contains("that the conversation in the prompt was computed under numerics " + first));
  const json plain = json::parse(server.call(session_turn("talk", " one day")).out);
  CHECK_FALSE(plain["receipt"].contains("recomputed_from"));
}

TEST_CASE("troupe session repair says what is wrong, keeps the rest, and waits for no running server") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions");
  const std::vector<std::string> repair{"session", "repair", "--sessions-dir", directory};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> all = repair;
    all.push_back(flag);
    return invoke(all);
  };
  CHECK(invoke(repair).code == 1);  // it is not there, and is not made
  CHECK_FALSE(std::filesystem::exists(directory));
  {
    ServerProcess server({"--sessions-dir", directory});
    (void)session_ids(server.call(session_turn("talk", "Once upon a time")));
    (void)session_ids(server.call(session_turn("torn", "Once upon a time")));
    const Finished busy = invoke(repair);
    CHECK(busy.code == 75);
    CHECK_THAT(busy.err, Contains("a server keeps its sessions here; stop it first"));
  }
  CHECK(invoke(repair).code == 0);
  const std::string user = std::to_string(::getuid());
  std::filesystem::resize_file(directory + "/" + user + "/torn.tokens", 70);
  std::filesystem::remove(directory + "/" + user + "/torn.kv");
  const Finished dry = with("--dry-run");
  CHECK(dry.code == 1);
  CHECK_THAT(dry.out, Contains(user + "/torn.tokens: truncated") && Contains("would be moved to damaged/"));
  const json told = json::parse(with("--json").out);
  CHECK(told["sessions"] == 1);
  CHECK(told["findings"][0]["mended"] == true);
  CHECK(invoke(repair).code == 0);
  ServerProcess server({"--sessions-dir", directory});
  const json left = json::parse(server.call({"session", "list", "--json"}).out);
  REQUIRE(left.size() == 1);
  CHECK(left[0]["name"] == "talk");
  CHECK_THAT(invoke({"session", "list", "--dry-run"}).err, Contains("--dry-run belongs to repair"));
}

TEST_CASE("a conversation whose tokens were lost is kept, named once in the log, and repaired") {
  const TempFolder folder;
  const std::string directory = folder.path("sessions"), files = directory + "/" + std::to_string(::getuid());
  {
    ServerProcess server({"--sessions-dir", directory});
    (void)session_ids(server.call(session_turn("talk", "Once upon a time")));
    REQUIRE(server.call({"session", "save", "talk"}).code == 0);
  }
  std::filesystem::remove(files + "/talk.tokens");
  for (const bool is_first : {true, false}) {
    ServerProcess server({"--sessions-dir", directory});
    CHECK(server.call({"session", "list"}).code == 0);
    const Finished stopped = server.stop();
    CHECK((stopped.err.find("talk.kv: has no tokens beside it; it is kept as talk.kv.lost") != std::string::npos) ==
          is_first);
  }
  std::filesystem::rename(files + "/talk.kv.lost", files + "/talk.kv");
  CHECK_THAT(invoke({"session", "repair", "--sessions-dir", directory}).out, Contains("talk.tokens is missing"));
  ServerProcess server({"--sessions-dir", directory});
  CHECK(session_ids(server.call(session_turn("talk", " and then"))).size() == 24);
}

TEST_CASE("wrong uses of troupe session say what is right") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{}, {"show"}, {"list", "talk"}, {"fork", "talk"}, {"delete"}}) {
    std::vector<std::string> all{"session"};
    all.insert(all.end(), words.begin(), words.end());
    const Finished finished = invoke(all);
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("fork NAME NEW"));
  }
  CHECK_THAT(invoke({"run", "--recompute", "hello"}).err, Contains("without --session"));
}

TEST_CASE("a server without a place for sessions says why, at its start and when it is asked") {
  const std::map<std::string, std::string> nowhere{{"HOME", ""}, {"XDG_STATE_HOME", ""}, {"STATE_DIRECTORY", ""}};
  const std::string why = "none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is an absolute path";
  const TempFolder folder;
  Process server(
      {.arguments = {"serve", "--socket", folder.path("t.sock"), "--usage-db", "off"}, .environment = nowhere});
  REQUIRE(server.wait_for_err("sessions are refused: this server keeps no sessions (--sessions-dir auto: " + why));
  REQUIRE(server.wait_for_err("ready"));
  const Finished refused = invoke({"run", "--socket", folder.path("t.sock"), "--session", "talk", "hello"});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("refused (unsupported)") && Contains(why));
}

TEST_CASE("a server without a directory for sessions refuses them by name") {
  ServerProcess server({"--sessions-dir", "off"});
  const Finished refused = server.call({"run", "--session", "talk", "hello"});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("refused (unsupported)") && Contains("--sessions-dir"));
  const Finished bad = server.call({"session", "inspect", "talk"});
  CHECK_THAT(bad.err, Contains("--sessions-dir"));
}
