// What `troupe session repair` finds, keeps and moves.
#include "actors/sessions/session_repair.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "actors/sessions/session_store.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using troupe::test::TempFolder;

const TenantId kAlice{1000}, kBob{1001};

std::string slurp_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void spill_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct Directory {
  const TempFolder folder;
  const fs::path path = folder.path("sessions");

  Directory() {
    const auto store = SessionStore::open(path);
    REQUIRE(store);
    for (const char* name : {"good", "torn", "empty"}) write(*store, {kAlice, name}, 70);
    write(*store, {kBob, "other"}, 5);
  }
  static void write(const SessionStore& store, const SessionKey& key, std::size_t count) {
    engine::SequenceRecord record{.numerics_id = "5-scalar-f16-1", .model_hash = 1, .tokens = {}};
    while (record.tokens.size() < count) record.tokens.push_back(static_cast<TokenId>(record.tokens.size()));
    REQUIRE(store.write_tokens(key, record));
  }
  fs::path at(const std::string& name) const { return path / "1000" / name; }

  SessionRepair repair(bool dry_run = false) const {
    const auto repaired = repair_sessions(path, dry_run);
    if (!repaired) FAIL(repaired.error().message);
    return *repaired;
  }
  // Everything in it: kinds, modes and bytes.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> all;
    for (const auto& each : fs::recursive_directory_iterator(path)) {
      struct stat info {};
      REQUIRE(::lstat(each.path().c_str(), &info) == 0);
      all[each.path()] = std::to_string(info.st_mode) + (S_ISREG(info.st_mode) ? slurp_file(each.path()) : "");
    }
    return all;
  }
};

std::string found(const SessionRepair& repair, const std::string& path) {
  for (const SessionFinding& each : repair.findings)
    if (each.path == path) return each.what + ": " + each.remedy;
  return "";
}
bool says(const SessionRepair& repair, const std::string& path, const std::string& words) {
  INFO(path << ": " << found(repair, path));
  CHECK(found(repair, path).find(words) != std::string::npos);
  return found(repair, path).find(words) != std::string::npos;
}

TEST_CASE("a directory in which nothing is wrong is left as it is") {
  const Directory directory;
  const auto before = directory.everything();
  const SessionRepair repair = directory.repair();
  CHECK(repair.findings.empty());
  CHECK(repair.num_sessions == 4);
  CHECK(repair.num_tenants == 2);
  CHECK(directory.everything() == before);
}

TEST_CASE("what cannot be used is moved, what can be is kept, and a dry run says so and changes nothing") {
  const Directory directory;
  const std::string good = slurp_file(directory.at("good.tokens"));
  spill_file(directory.at("torn.tokens"), good.substr(0, 100));
  spill_file(directory.at("empty.tokens"), "");
  spill_file(directory.at("zeros.tokens"), std::string(400, '\0'));
  fs::create_symlink("good.tokens", directory.at("link.tokens"));
  REQUIRE(::mkfifo(directory.at("pipe.tokens").c_str(), 0600) == 0);
  fs::create_directories(directory.at("folder.tokens/inside"));
  spill_file(directory.at("good.kv"), "torn contents");
  spill_file(directory.at("alone.kv"), "contents without tokens");
  spill_file(directory.at(".good.tokens.tmp"), "half");
  spill_file(directory.at("no name.tokens"), good);
  spill_file(directory.at("notes.txt"), "someone's");
  std::string newer = good;
  newer[8] = 9;
  spill_file(directory.at("newer.tokens"), newer);
  fs::create_directory_symlink("1000", directory.path / "1002");
  spill_file(directory.path / "1003", "");
  fs::create_directories(directory.path / "01000");
  fs::permissions(directory.path / "1001", fs::perms(0755));

  const auto before = directory.everything();
  const SessionRepair dry = directory.repair(true);
  CHECK(directory.everything() == before);
  const SessionRepair repair = directory.repair();
  for (const SessionRepair* each : {&dry, &repair}) {
    CHECK(says(*each, "1000/torn.tokens", "truncated"));
    CHECK(says(*each, "1000/torn.tokens", "moved to damaged/1000/torn.tokens"));
    CHECK(says(*each, "1000/empty.tokens", "it has 0 bytes of 64"));
    CHECK(says(*each, "1000/zeros.tokens", "not a saved sequence"));
    CHECK(says(*each, "1000/link.tokens", "symbolic link"));
    CHECK(says(*each, "1000/pipe.tokens", "not a regular file"));
    CHECK(says(*each, "1000/folder.tokens", "not a regular file"));
    CHECK(says(*each, "1000/good.kv", "computed again"));
    CHECK(says(*each, "1000/alone.kv", "contents without tokens"));
    CHECK(says(*each, "1000/.good.tokens.tmp", "deleted"));
    CHECK(says(*each, "1000/no name.tokens", "not the name"));
    CHECK(says(*each, "1000/newer.tokens", "version 9"));
    CHECK(says(*each, "1001", "other users may enter it"));
    CHECK(says(*each, "1002", "a symbolic link"));
    CHECK(says(*each, "1003", "not a folder"));
    CHECK(says(*each, "01000", "no user has this number"));
    CHECK(each->findings.size() == 15);
    CHECK_FALSE(each->is_well());  // what it cannot decide is left to people
  }
  CHECK(repair.num_sessions == 2);
  CHECK(slurp_file(directory.path / "damaged/1000/torn.tokens") == good.substr(0, 100));
  CHECK(slurp_file(directory.path / "damaged/1000/good.kv") == "torn contents");
  CHECK(fs::exists(directory.path / "damaged/1000/folder.tokens/inside"));
  CHECK(fs::is_symlink(directory.path / "damaged/folder-1002"));
  CHECK(slurp_file(directory.at("good.tokens")) == good);
  CHECK(slurp_file(directory.at("newer.tokens")) == newer);
  CHECK(fs::exists(directory.at("notes.txt")));
  CHECK((fs::status(directory.path / "1001").permissions() & fs::perms::all) == fs::perms::owner_all);

  CHECK(directory.repair().findings.size() == 3);  // what was left
  std::vector<SessionProblem> problems;
  CHECK(SessionStore::open(directory.path)->scan(&problems)->size() == 3);
  CHECK(problems.empty());
}

TEST_CASE("damaged tokens are restored from contents whose header is whole") {
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.num_blocks = 8;
  options.context = 128;
  const auto model = engine::LoadedModel::load(std::string(TROUPE_TEST_DATA) + "/golden/llama.gguf", options);
  REQUIRE(model);
  const engine::SequenceImage image(**model, 3);
  const engine::SequenceRecord record{
      .numerics_id = (*model)->numerics_id(), .model_hash = (*model)->model().content_hash(), .tokens = {5, 6, 7, 8}};
  for (const bool is_torn : {false, true}) {
    const Directory directory;
    REQUIRE(SessionStore::open(directory.path)->write_contents({kAlice, "torn"}, record, image));
    spill_file(directory.at("torn.tokens"), "");
    if (is_torn) {
      std::string bytes = slurp_file(directory.at("torn.kv"));
      bytes[bytes.size() - 10] ^= 1;
      spill_file(directory.at("torn.kv"), bytes);
    }
    const auto before = directory.everything();
    CHECK(says(directory.repair(true), "1000/torn.tokens", "the session would get 4 tokens from torn.kv"));
    CHECK(directory.everything() == before);
    const SessionRepair repair = directory.repair();
    CHECK(repair.is_well());
    CHECK(repair.num_sessions == 4);
    CHECK(fs::exists(directory.at("torn.kv")) == !is_torn);
    const SessionStore store = std::move(*SessionStore::open(directory.path));
    const auto file = store.open_tokens({kAlice, "torn"});
    REQUIRE(file);
    CHECK(file->record().tokens == record.tokens);
  }
}

TEST_CASE("tokens that are missing are restored from contents, whose file stays") {
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.num_blocks = 8;
  options.context = 128;
  const auto model = engine::LoadedModel::load(std::string(TROUPE_TEST_DATA) + "/golden/llama.gguf", options);
  REQUIRE(model);
  const engine::SequenceImage image(**model, 3);
  const Directory directory;
  REQUIRE(SessionStore::open(directory.path)
              ->write_contents({kAlice, "lone"}, {.numerics_id = "x", .model_hash = 1, .tokens = {5, 6, 7, 8}}, image));
  const auto before = directory.everything();
  CHECK(
      says(directory.repair(true), "1000/lone.kv", "lone.tokens is missing: the session would get 4 tokens from here"));
  CHECK(directory.everything() == before);
  const SessionRepair repair = directory.repair();
  CHECK(repair.is_well());
  CHECK(repair.num_sessions == 5);
  CHECK(directory.repair().findings.empty());
  CHECK(SessionStore::open(directory.path)->open_tokens({kAlice, "lone"})->record().tokens.size() == 4);
}

TEST_CASE("contents of other tokens than the session's are moved") {
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.num_blocks = 8;
  options.context = 128;
  const auto model = engine::LoadedModel::load(std::string(TROUPE_TEST_DATA) + "/golden/llama.gguf", options);
  REQUIRE(model);
  const engine::SequenceImage image(**model, 3);
  const Directory directory;
  REQUIRE(SessionStore::open(directory.path)
              ->write_contents({kAlice, "good"}, {.numerics_id = "x", .model_hash = 1, .tokens = {5, 6, 7, 8}}, image));
  CHECK(says(directory.repair(), "1000/good.kv", "its tokens are not those of good.tokens: moved"));
  CHECK(directory.repair().findings.empty());
}

TEST_CASE("what is moved never replaces what was moved before") {
  const Directory directory;
  for (const char* bytes : {"first", "second", "third"}) {
    spill_file(directory.at("torn.tokens"), bytes);
    CHECK(directory.repair().is_well());
  }
  CHECK(slurp_file(directory.path / "damaged/1000/torn.tokens") == "first");
  CHECK(slurp_file(directory.path / "damaged/1000/torn.tokens.2") == "second");
  CHECK(slurp_file(directory.path / "damaged/1000/torn.tokens.3") == "third");
}

TEST_CASE("a directory that a server uses, or that is not there, is not touched") {
  const Directory directory;
  const SessionStore server = std::move(*SessionStore::open(directory.path));
  for (const bool dry_run : {false, true}) {
    const auto refused = repair_sessions(directory.path, dry_run);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ErrorCode::busy);
    CHECK(refused.error().message.find("stop it first") != std::string::npos);
    const std::string none = directory.folder.path("none");
    CHECK_FALSE(repair_sessions(none, dry_run));
    CHECK_FALSE(fs::exists(none));
  }
}

}  // namespace
}  // namespace troupe::actors
