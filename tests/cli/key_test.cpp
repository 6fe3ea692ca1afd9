// troupe key: what it prints, what it keeps, and what it refuses.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Matches;
using nlohmann::json;

namespace {

std::string text_of_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("troupe key: a key is shown once, listed without it, and revoked") {
  const TempFolder folder;
  const std::string file = folder.path("state/keys");
  const auto key = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "key");
    arguments.insert(arguments.end(), {"--keys-file", file});
    return invoke(std::move(arguments));
  };
  const Finished made = key({"add", "ci", "--expires", "30d"});
  REQUIRE(made.code == 0);
  CHECK_THAT(made.out, Matches("trp_[0-9A-Za-z]{10}_[0-9A-Za-z]{43}\n"));
  CHECK_THAT(made.err, Contains("only time that it is shown"));
  const std::string secret = made.out.substr(15, 43);
  CHECK_THAT(text_of_file(file), !Contains(secret));
  CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::mask) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));

  const json guest = json::parse(key({"add", "guest", "--quota", "max-running=2,weight=0.5", "--json"}).out);
  CHECK(guest["key"].get<std::string>().size() == 58);
  CHECK(guest["tenant"] == "key:guest");
  CHECK(guest["expires"].is_null());

  const Finished again = key({"add", "ci"});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, Contains("has a key ci"));
  CHECK(again.out.empty());

  const Finished listed = key({"list"});
  CHECK_THAT(listed.out, Contains("key:ci"));
  CHECK_THAT(listed.out, Contains("max-running = 2"));
  const json keys = json::parse(key({"list", "--json"}).out);
  REQUIRE(keys.size() == 2);
  CHECK(keys[0]["expires"].get<long>() - keys[0]["created"].get<long>() == 30 * 86400);
  CHECK(keys[0]["expired"] == false);
  CHECK(keys[1]["quota"] == json({{"max-running", 2}, {"weight", 0.5}}));
  CHECK_THAT(listed.out + keys.dump(), !Contains(secret));
  CHECK_FALSE(keys[0].contains("hash"));

  CHECK(key({"revoke", "ci"}).code == 0);
  CHECK(key({"revoke", "ci"}).code == 2);
  CHECK_THAT(text_of_file(file), !Contains("name=ci"));
  CHECK(json::parse(key({"list", "--json"}).out).size() == 1);
}

TEST_CASE("troupe key: a tenant must be one of the configuration's, and the error names it") {
  const TempFolder folder;
  const std::string config = folder.path("troupe.toml");
  std::ofstream(config) << "[[tenant]]\nname = \"web\"\nuser = \"root\"\n";
  const auto add = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"key", "add", "k", "--keys-file", folder.path("keys"), "--config", config});
    return invoke(std::move(arguments));
  };
  const Finished unknown = add({"--tenant", "wbe"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("'wbe'") && Contains("names web"));
  CHECK_FALSE(std::filesystem::exists(folder.path("keys")));
  for (const std::string& own : {std::string("0"), std::string("000"), std::to_string(::geteuid())}) {
    const Finished refused = add({"--tenant", own});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Contains("is the server's own user or root, and no key is theirs"));
  }
  CHECK_THAT(add({"--tenant", "0" + std::to_string(::geteuid() + 1)}).err, Contains("write uid 0"));
  CHECK_FALSE(std::filesystem::exists(folder.path("keys")));
  const Finished both = add({"--tenant", "web", "--quota", "max-running=1"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("limits of tenant web are in its rule"));
  REQUIRE(add({"--tenant", "web", "--json"}).code == 0);
  CHECK_THAT(text_of_file(folder.path("keys")), Contains(" tenant=web "));
}

TEST_CASE("troupe key: wrong uses say what is right, and make no file") {
  const TempFolder folder;
  const std::string file = folder.path("keys");
  struct Wrong {
    std::vector<std::string> arguments;
    int code;
    std::string says;
  };
  const Wrong wrongs[] = {
      {{}, 2, "add NAME, list, revoke NAME"},
      {{"make", "x"}, 2, "there is no 'make'"},
      {{"add"}, 2, "add takes a name"},
      {{"add", "1st"}, 2, "must begin with a letter"},
      {{"add", "a b"}, 2, "is no name of a key"},
      {{"add", "a", "--quota", "max-running"}, 2, "is no LIMIT=N"},
      {{"add", "a", "--quota", "max-running=0"}, 2, "from 1"},
      {{"add", "a", "--quota", "colour=1"}, 2, "a key has no such limit"},
      {{"list", "--expires", "3d"}, 2, "belong to add"},
      {{"list"}, 78, "there is no such file"},
      {{"revoke", "a"}, 78, "there is no such file"},
  };
  for (const Wrong& wrong : wrongs) {
    std::vector<std::string> arguments{"key", "--keys-file", file};
    arguments.insert(arguments.end(), wrong.arguments.begin(), wrong.arguments.end());
    const Finished finished = invoke(arguments);
    INFO(finished.err);
    CHECK(finished.code == wrong.code);
    CHECK_THAT(finished.err, Contains(wrong.says));
    CHECK(finished.out.empty());
    CHECK_FALSE(std::filesystem::exists(file));
  }
}
