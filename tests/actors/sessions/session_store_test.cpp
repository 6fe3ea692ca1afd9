// The files of sessions: where they lie, their modes, what a killed server leaves.
#include "actors/sessions/session_store.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using troupe::test::TempFolder;

const SessionKey kTalk{TenantId{1000}, "talk"}, kAside{TenantId{1000}, "aside"}, kOther{TenantId{1ull << 33}, "talk"};

engine::SequenceRecord record_of(std::size_t num_tokens) {
  engine::SequenceRecord record{.numerics_id = "5-scalar-f16-1", .model_hash = 1, .tokens = {}, .created = 7};
  while (record.tokens.size() < num_tokens) record.tokens.push_back(static_cast<TokenId>(record.tokens.size()));
  return record;
}

SessionStore opened(const std::string& path) {
  auto store = SessionStore::open(path);
  if (!store) FAIL(store.error().message);
  return std::move(*store);
}

std::string refusal(const std::string& path) {
  const auto store = SessionStore::open(path);
  return store ? "" : store.error().message;
}

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

TEST_CASE("what was written is found again, by tenant and name, and is its owner's alone") {
  const TempFolder folder;
  const fs::path path = folder.path("state/troupe/sessions");
  {
    const SessionStore store = opened(path);
    REQUIRE(store.write_tokens(kTalk, record_of(70)));
    REQUIRE(store.write_tokens(kOther, record_of(5)));
    REQUIRE(store.write_tokens(kTalk, record_of(80)));
  }
  CHECK(mode_of(path) == 0700);
  CHECK(mode_of(path / "1000") == 0700);
  CHECK(mode_of(path / "1000" / "talk.tokens") == 0600);
  const SessionStore store = opened(path);
  const auto found = store.scan();
  REQUIRE(found);
  REQUIRE(found->size() == 2);
  CHECK((*found)[0].key == kTalk);
  CHECK((*found)[0].token_bytes == fs::file_size(path / "1000" / "talk.tokens"));
  CHECK((*found)[0].content_bytes == 0);
  CHECK((*found)[0].last_used > 1'600'000'000);
  CHECK((*found)[1].key == kOther);
  const auto file = store.open_tokens(kTalk);
  REQUIRE(file);
  CHECK(file->record().tokens == record_of(80).tokens);
  CHECK_FALSE(store.open_contents(kTalk));
  store.remove(kTalk);
  CHECK_FALSE(store.open_tokens(kTalk));
  CHECK(store.open_tokens(kOther));
}

TEST_CASE("one server at a time keeps its sessions in a directory") {
  const TempFolder folder;
  {
    const SessionStore store = opened(folder.path("sessions"));
    CHECK(refusal(folder.path("sessions")).find("another server keeps its sessions here") != std::string::npos);
  }
  CHECK(refusal(folder.path("sessions")).empty());
}

TEST_CASE("a directory that others may enter, or that is a link, is refused") {
  const TempFolder folder;
  fs::create_directories(folder.path("open"));
  fs::permissions(folder.path("open"), fs::perms::others_read, fs::perm_options::add);
  CHECK(refusal(folder.path("open")).find("chmod 700") != std::string::npos);
  fs::permissions(folder.path("open"), fs::perms::owner_all);
  CHECK(refusal(folder.path("open")).empty());
  fs::create_directory_symlink(folder.path("open"), folder.path("link"));
  CHECK(refusal(folder.path("link")).find("symbolic link") != std::string::npos);
  spill(folder.path("file"), "");
  CHECK(refusal(folder.path("file")).find("not a directory") != std::string::npos);
}

TEST_CASE("links in the place of a tenant's folder or a file are not followed") {
  const TempFolder folder;
  const fs::path path = folder.path("sessions");
  const SessionStore store = opened(path);
  REQUIRE(store.write_tokens(kTalk, record_of(70)));
  fs::create_directory_symlink("1000", path / "8589934592");
  CHECK_FALSE(store.open_tokens(kOther));
  CHECK_FALSE(store.write_tokens(kOther, record_of(3)));
  std::vector<SessionProblem> problems;
  CHECK(store.scan(&problems)->size() == 1);  // the others' are there
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].tenant == kOther.tenant);
  CHECK(problems[0].session.empty());
  CHECK(problems[0].message.find("8589934592") != std::string::npos);
  fs::remove(path / "8589934592");
  spill(folder.path("elsewhere"), "kept");
  fs::create_symlink(folder.path("elsewhere"), path / "1000" / "aside.tokens");
  CHECK_FALSE(store.open_tokens(kAside));
  CHECK(store.scan()->size() == 1);
  REQUIRE(store.write_tokens(kAside, record_of(3)));  // replaces the link
  CHECK(slurp(folder.path("elsewhere")) == "kept");
}

TEST_CASE("what a killed server left is deleted, and strange files are left alone") {
  const TempFolder folder;
  const fs::path path = folder.path("sessions"), files = path / "1000";
  const SessionStore store = opened(path);
  REQUIRE(store.write_tokens(kTalk, record_of(70)));
  spill(files / ".talk.tokens.tmp", "half");
  spill(files / "talk.kv", "contents");
  REQUIRE(store.link_contents(kTalk, {kTalk.tenant, "gone"}));  // a fork that was cut off
  spill(files / "notes.txt", "someone's");
  spill(path / "README", "");
  std::vector<SessionProblem> problems;
  const auto found = store.scan(&problems);
  REQUIRE(found);
  CHECK(problems.empty());
  CHECK(found->size() == 1);
  CHECK_FALSE(fs::exists(files / ".talk.tokens.tmp"));
  CHECK_FALSE(fs::exists(files / "gone.kv"));
  CHECK(fs::exists(files / "notes.txt"));
}

TEST_CASE("contents whose tokens are lost are kept by another name, which is said once") {
  const TempFolder folder;
  const fs::path files = fs::path(folder.path("sessions")) / "1000";
  const SessionStore store = opened(folder.path("sessions"));
  REQUIRE(store.write_tokens(kTalk, record_of(70)));
  spill(files / "lone.kv", "contents without tokens");
  std::vector<SessionProblem> problems;
  CHECK(store.scan(&problems)->size() == 1);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].part == SessionPart::contents);  // the name is free
  CHECK(
      problems[0].message ==
      (files / "lone.kv").string() +
          ": has no tokens beside it; it is kept as lone.kv.lost. To have the session again, stop the server, give the "
          "file its name back and run `troupe session repair`; else delete it");
  CHECK(slurp(files / "lone.kv.lost") == "contents without tokens");
  problems.clear();
  CHECK(store.scan(&problems)->size() == 1);
  CHECK(problems.empty());
}

TEST_CASE("a fork shares the contents without a copy, and keeps them when the other one changes") {
  const TempFolder folder;
  const fs::path files = fs::path(folder.path("sessions")) / "1000";
  const SessionStore store = opened(folder.path("sessions"));
  REQUIRE(store.write_tokens(kTalk, record_of(70)));
  spill(files / "talk.kv", "contents");
  REQUIRE(store.link_contents(kTalk, kAside));
  CHECK(slurp(files / "aside.kv") == "contents");
  store.remove_contents(kTalk);
  CHECK(slurp(files / "aside.kv") == "contents");
  CHECK_FALSE(store.link_contents(kTalk, kAside));
}

// Killed at any moment, the writer leaves the file that was there or the new one, whole.
TEST_CASE("a writer that is killed leaves the old tokens or the new ones, never a part") {
  const TempFolder folder;
  const std::string path = folder.path("sessions");
  {
    const SessionStore store = opened(path);
    REQUIRE(store.write_tokens(kTalk, record_of(1)));
  }
  for (int round = 0; round < 12; ++round) {
    int to_parent[2];
    REQUIRE(::pipe(to_parent) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto store = SessionStore::open(path);
      for (std::size_t count = 1; store; count = count % 5000 + 700) {
        const bool written = static_cast<bool>(store->write_tokens(kTalk, record_of(count)));
        if (!written || ::write(to_parent[1], "w", 1) != 1) ::_exit(1);
      }
      ::_exit(1);
    }
    char written = 0;
    for (int i = 0; i <= round; ++i) REQUIRE(::read(to_parent[0], &written, 1) == 1);
    REQUIRE(::kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ::close(to_parent[0]);
    ::close(to_parent[1]);
    const SessionStore store = opened(path);
    REQUIRE(store.scan()->size() == 1);
    const auto file = store.open_tokens(kTalk);
    if (!file) FAIL(file.error().message);
    const std::size_t count = file->record().tokens.size();
    CHECK(file->record().tokens == record_of(count).tokens);
    CHECK(std::distance(fs::directory_iterator(fs::path(path) / "1000"), {}) == 1);
  }
}

}  // namespace
}  // namespace troupe::actors
