// troupe backup and troupe restore: of a server that runs, of files that are damaged, onto a state that is in use.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/interposed.h"
#include "tests/cli/process.h"
#include "tests/support/skip.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> backup_turn(const std::string& session, const std::string& prompt) {
  return {"run", "--json", "--temp", "0", "-n", "24", "--ignore-eos", "--session", session, prompt};
}

// Flags of a server that keeps everything below this directory.
std::vector<std::string> kept_in(const std::string& state) {
  return {"--usage-db", state + "/usage.db", "--sessions-dir", state + "/sessions"};
}

Finished restored(const std::string& state, std::vector<std::string> more) {
  more.insert(more.begin(), {"restore", "--state", state});
  return invoke(more);
}

json usage_in(const std::string& state) {
  const Finished used =
      invoke({"usage", "--json", "--socket", state + "/none.sock", "--usage-db", state + "/usage.db"});
  INFO(used.err);
  REQUIRE(used.code == 0);
  return json::parse(used.out)["rows"];
}

// A backup of a state with two sessions, usage and a key, whose server has ended.
struct Kept {
  Kept() {
    ServerProcess server(kept_in(state));
    REQUIRE(server.call(backup_turn("tea", "Once upon a time")).code == 0);
    REQUIRE(server.call(backup_turn("milk", "One day")).code == 0);
    REQUIRE(server.call({"usage"}).code == 0);  // it is written then
    REQUIRE(server.stop().code == 0);
    REQUIRE(invoke({"key", "add", "ci", "--keys-file", state + "/keys"}).code == 0);
    const Finished made = invoke({"backup", "--state", state, "--keys", backup});
    INFO(made.err);
    REQUIRE(made.code == 0);
  }
  [[nodiscard]] std::string tokens(const std::string& session) const {
    return backup + "/sessions/" + std::to_string(::getuid()) + "/" + session + ".tokens";
  }
  const TempFolder folder;
  const std::string state = folder.path("state"), backup = folder.path("backup");
};

std::vector<std::string> names_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder)) names.push_back(each.path().filename().string());
  return names;
}

// Paths and bytes, without those of a database, which changes as it is opened.
std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    const std::string name = each.path().lexically_relative(folder).string();
    if (name.ends_with("-wal") || name.ends_with("-shm")) continue;
    std::ifstream file(each.path(), std::ios::binary);
    const bool is_read = !each.is_directory() && !name.starts_with("usage.db");
    files[name] = is_read ? std::string(std::istreambuf_iterator<char>(file), {}) : "";
  }
  return files;
}

}  // namespace

TEST_CASE("a backup of a server that serves is restored elsewhere, and conversations go on with the same bits") {
  const TempFolder folder;
  const std::string state = folder.path("state"), other = folder.path("other"), backup = folder.path("backup");
  std::string next;
  {
    ServerProcess server(kept_in(state));
    REQUIRE(server.call(backup_turn("tea", "Once upon a time")).code == 0);
    REQUIRE(server.call({"session", "save", "tea"}).code == 0);
    REQUIRE(server.call({"usage"}).code == 0);
    const Finished made = invoke({"backup", "--state", state, backup});
    INFO(made.err);
    REQUIRE(made.code == 0);
    CHECK_THAT(made.out, Contains("usage.db") && Contains("2 files of sessions") && Contains("from " + state));
    next = json::parse(server.call(backup_turn("tea", " and then")).out)["text"];
    CHECK(restored(state, {backup}).code == 75);
    const Finished busy = restored(state, {"--replace", backup});
    CHECK(busy.code == 75);
    CHECK_THAT(busy.err, Contains("stop it first"));
  }
  struct stat info {};
  REQUIRE(::stat(backup.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  const json manifest = json::parse(std::ifstream(backup + "/manifest.json"));
  CHECK(manifest["files"].size() == 3);
  CHECK(manifest["files"][0]["name"] == "usage.db");
  CHECK(manifest["files"][0]["sha256"].get<std::string>().size() == 64);
  const Finished done = restored(other, {backup});
  INFO(done.err);
  REQUIRE(done.code == 0);
  CHECK_THAT(done.out, Contains(other + "/sessions") && Contains("whole"));
  CHECK(usage_in(other)[0]["requests_done"] == 1);
  ServerProcess server(kept_in(other));
  CHECK(json::parse(server.call(backup_turn("tea", " and then")).out)["text"] == next);
}

TEST_CASE("a server that keeps no sessions holds its state, too") {
  const Kept kept;
  const TempFolder folder;
  ServerProcess server({"--usage-db", folder.path("state/usage.db"), "--sessions-dir", "off"});
  REQUIRE(server.call({"run", "-n", "2", "Once"}).code == 0);
  REQUIRE(server.call({"usage"}).code == 0);
  const Finished busy = restored(folder.path("state"), {"--replace", kept.backup});
  CHECK(busy.code == 75);
  CHECK_THAT(busy.err, Contains("usage.db: a server uses it; stop it first"));
}

TEST_CASE("a damaged backup is refused by the name of what is wrong, before anything is touched") {
  const Kept kept;
  const TempFolder folder;
  const std::string target = folder.path("target");
  std::string says;
  SECTION("a changed byte") {
    std::fstream file(kept.tokens("tea"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.put('\xff');
    says = "tea.tokens: is not what was copied";
  }
  SECTION("a file that was cut off") {
    fs::resize_file(kept.tokens("tea"), 20);
    says = "tea.tokens: has 20 bytes in place of";
  }
  SECTION("a missing file") {
    fs::remove(kept.tokens("milk"));
    says = "milk.tokens: is missing";
  }
  SECTION("a link in the place of a file") {
    fs::rename(kept.backup + "/keys", kept.folder.path("elsewhere"));
    fs::create_symlink(kept.folder.path("elsewhere"), kept.backup + "/keys");
    says = "keys: is a symbolic link";
  }
  SECTION("a file that the manifest does not name") {
    std::ofstream(kept.backup + "/sessions/more.tokens") << "x";
    says = "sessions/more.tokens: is not in manifest.json";
  }
  SECTION("a manifest that names a file outside") {
    json manifest = json::parse(std::ifstream(kept.backup + "/manifest.json"));
    manifest["files"][0]["name"] = "sessions/../../usage.db";
    std::ofstream(kept.backup + "/manifest.json") << manifest;
    says = "is no file of a server's state";
  }
  SECTION("half a manifest") {
    fs::resize_file(kept.backup + "/manifest.json", 100);
    says = "manifest.json: it is no JSON object";
  }
  SECTION("no manifest") {
    fs::remove(kept.backup + "/manifest.json");
    says = "has no manifest.json; this is no backup";
  }
  const Finished refused = restored(target, {"--keys", kept.backup});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Contains(says));
  CHECK_FALSE(fs::exists(target));
}

TEST_CASE("a restore refuses a state that is there, and --replace keeps it") {
  const Kept kept;
  const Finished refused = restored(kept.state, {kept.backup});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("there is one already; --replace keeps it as"));
  const Finished dry = restored(kept.state, {"--dry-run", "--replace", kept.backup});
  CHECK(dry.code == 0);
  CHECK_THAT(dry.out, Contains("would be restored to") && Contains("keys: in the backup, and not restored (--keys)"));
  fs::remove(kept.state + "/sessions/" + std::to_string(::getuid()) + "/tea.tokens");
  const std::vector<std::string> before = names_below(kept.state);
  const Finished done = restored(kept.state, {"--replace", kept.backup});
  INFO(done.err);
  REQUIRE(done.code == 0);
  CHECK_THAT(done.out, Contains("is kept as " + kept.state + "/usage.db.before-restore"));
  CHECK(names_below(kept.state).size() == before.size() + 2);  // usage.db and sessions, as they were
  CHECK(usage_in(kept.state)[0]["requests_done"] == 2);
  CHECK(fs::exists(kept.state + "/sessions/" + std::to_string(::getuid()) + "/tea.tokens"));
  CHECK(restored(kept.state, {"--force", kept.backup}).code == 0);
  CHECK(fs::exists(kept.state + "/sessions.before-restore.2"));
}

TEST_CASE("whichever file a restore cannot rename, what was there is whole, and nothing is left beside it") {
  if (!kCanInterpose) return skip("a sanitizer wants the calls of the C library itself");
  const Kept kept;
  std::ofstream(kept.state + "/sessions/" + std::to_string(::getuid()) + "/tea.tokens", std::ios::app) << "newer";
  const std::map<std::string, std::string> before = files_below(kept.state);
  int num_failed = 0;
  for (int number = 1; number <= 12; ++number) {
    const std::string state = kept.folder.path("state" + std::to_string(number));
    fs::copy(kept.state, state, fs::copy_options::recursive);
    fs::permissions(state, fs::perms(0700));
    const Finished ended =
        run({.arguments = {"restore", "--state", state, "--keys", "--replace", kept.backup},
             .environment = {{"LD_PRELOAD", fail_call_library()}, {"FAIL_CALL", "rename:" + std::to_string(number)}}});
    INFO(number << ended.err);
    CHECK_FALSE(ended.by_signal);
    CHECK(usage_in(state)[0]["requests_done"] == 2);
    if (ended.code == 0) {  // there was another way, or there were not so many
      CHECK(files_below(state).size() > before.size());
      continue;
    }
    ++num_failed;
    CHECK(ended.code == 1);
    CHECK(files_below(state) == before);
  }
  CHECK(num_failed >= 3);  // one of each part
}

TEST_CASE("keys are copied and restored where they are asked for alone") {
  const Kept kept;
  const TempFolder folder;
  CHECK(restored(folder.path("with"), {"--keys", kept.backup}).code == 0);
  CHECK_THAT(invoke({"key", "list", "--keys-file", folder.path("with/keys")}).out, Contains("ci"));
  CHECK(restored(folder.path("without"), {kept.backup}).code == 0);
  CHECK_FALSE(fs::exists(folder.path("without/keys")));
  const std::string plain = folder.path("plain");
  REQUIRE(invoke({"backup", "--state", kept.state, plain}).code == 0);
  CHECK_FALSE(fs::exists(plain + "/keys"));
  fs::remove(kept.state + "/keys");
  const Finished none = invoke({"backup", "--state", kept.state, "--keys", folder.path("none")});
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Contains("leave --keys out"));
}

TEST_CASE("a backup that fails leaves nothing, and takes the place of nothing") {
  const Kept kept;
  const TempFolder folder;
  const Finished again = invoke({"backup", "--state", kept.state, kept.backup});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, Contains("there is something already"));
  CHECK(invoke({"backup", "--state", kept.state, folder.path("no/such/folder")}).code == 2);
  CHECK_THAT(invoke({"backup", "--state", kept.state, kept.state + "/sessions/mine"}).err,
             Contains("lies in the directory of sessions"));
  const Finished nothing = invoke({"backup", "--state", folder.path("nothing"), folder.path("backup")});
  CHECK(nothing.code == 1);
  CHECK_THAT(nothing.err, Contains("there is no state of a server") && Contains("--state /var/lib/troupe"));
  CHECK(invoke({"backup", "--state", kept.state}).code == 2);
  CHECK(invoke({"restore", "--state", kept.state}).code == 2);
  // A disk that is full: no file gets more than 100 bytes.
  Spawn spawn{.arguments = {"backup", "--state", kept.state, "--usage-db", "off", folder.path("full")},
              .limits = {{RLIMIT_FSIZE, 100}}};
  const Finished full = run(spawn);
  CHECK(full.code == 1);
  CHECK_THAT(full.err, Contains("cannot be written"));
  spawn.arguments = {"restore", "--state", folder.path("state"), kept.backup};
  const Finished no_room = run(spawn);
  CHECK(no_room.code == 1);
  CHECK_THAT(no_room.err, Contains("cannot be written"));
  CHECK(names_below(folder.path("")).empty());
}

TEST_CASE("what is not a session's file is left out and named, and the others are copied") {
  const Kept kept;
  const TempFolder folder;
  const std::string own = kept.state + "/sessions/" + std::to_string(::getuid());
  fs::create_symlink("/etc/passwd", own + "/link.tokens");
  fs::create_directory(own + "/folder.kv");
  const Finished made = invoke({"backup", "--state", kept.state, folder.path("backup")});
  CHECK(made.code == 0);
  CHECK_THAT(made.err, Contains("link.tokens: is not a plain file") && Contains("folder.kv: is not a plain file"));
  CHECK_THAT(made.out, Contains("4 files of sessions"));
}

TEST_CASE("another user's state is refused with who may, and root gives files to the directory's owner") {
  if (::geteuid() != 0) return skip("only root can act as another user");
  const Kept kept;
  const TempFolder folder;
  fs::permissions(folder.path(""), fs::perms::all);
  for (const std::string& each : {kept.folder.path(""), kept.state}) fs::permissions(each, fs::perms(0755));
  const auto as_nobody = [](std::vector<std::string> arguments) {
    return run({.arguments = std::move(arguments), .as_nobody = true});
  };
  const Finished refused = as_nobody({"backup", "--state", kept.state, folder.path("backup")});
  CHECK(refused.code == 77);
  CHECK_THAT(refused.err, Contains("run this as that user (sudo -u root troupe ...) or as root"));
  fs::permissions(kept.state, fs::perms(0700));
  const Finished hidden = as_nobody({"backup", "--state", kept.state, folder.path("backup")});
  CHECK(hidden.code == 77);
  CHECK_THAT(hidden.err, Contains("run this as the user that the server runs as, or as root"));
  CHECK(names_below(folder.path("")).empty());

  const std::string theirs = folder.path("theirs");
  fs::create_directory(theirs);
  REQUIRE(::chown(theirs.c_str(), 65534, 65534) == 0);
  const Finished done = restored(theirs, {kept.backup});
  INFO(done.err);
  REQUIRE(done.code == 0);
  for (const auto& each : fs::recursive_directory_iterator(theirs)) {
    struct stat info {};
    REQUIRE(::lstat(each.path().c_str(), &info) == 0);
    CHECK(info.st_uid == 65534);
  }
  const Finished copied = invoke({"backup", "--state", theirs, folder.path("again")});
  INFO(copied.err);
  CHECK(copied.code == 0);
}
