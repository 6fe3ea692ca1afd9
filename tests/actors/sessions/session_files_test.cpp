// Decisions about files that are carried out in another order than they were made: the last decision holds.
#include "actors/sessions/session_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using troupe::test::TempFolder;

const SessionKey kTalk{TenantId{1000}, "talk"}, kAside{TenantId{1000}, "aside"};

engine::SequenceRecord tokens_of(std::uint64_t number) {
  return {.numerics_id = "5-scalar-f16-1", .model_hash = 1, .tokens = {1, static_cast<TokenId>(number)}};
}

struct Files {
  const TempFolder folder;
  SessionFiles files{std::move(*SessionStore::open(folder.path("sessions")))};

  bool has(const SessionKey& key, SessionPart part) const {
    return fs::exists(fs::path(files.store().path()) / session_folder_name(key.tenant) /
                      session_file_name(key.name, part));
  }
  // Contents without an image: their file is what matters here.
  void write_contents(const SessionKey& key, std::uint64_t number) {
    REQUIRE(files.write_tokens(kAside, number, tokens_of(number)).status);
    fs::rename(path_of(kAside, SessionPart::tokens), path_of(kAside, SessionPart::contents));
    REQUIRE(files.link_contents(kAside, key, number));
    fs::remove(path_of(kAside, SessionPart::contents));
  }
  fs::path path_of(const SessionKey& key, SessionPart part) const {
    return fs::path(files.store().path()) / session_folder_name(key.tenant) / session_file_name(key.name, part);
  }
};

TEST_CASE("a deletion that comes late leaves what a later decision has written") {
  Files f;
  REQUIRE(f.files.write_tokens(kTalk, 1, tokens_of(1)).status);
  f.write_contents(kTalk, 2);
  REQUIRE(f.files.write_tokens(kTalk, 5, tokens_of(5)).status);
  REQUIRE(f.files.remove({.key = kTalk, .whole = true, .number = 3}));
  REQUIRE(f.files.store().open_tokens(kTalk));
  CHECK(f.files.store().open_tokens(kTalk)->record().tokens.back() == 5);
  CHECK_FALSE(f.has(kTalk, SessionPart::contents));  // they were the earlier session's
  f.write_contents(kTalk, 7);
  REQUIRE(f.files.remove({.key = kTalk, .number = 6}));
  CHECK(f.has(kTalk, SessionPart::contents));
  REQUIRE(f.files.remove({.key = kTalk, .number = 8}));
  CHECK_FALSE(f.has(kTalk, SessionPart::contents));
  CHECK(f.has(kTalk, SessionPart::tokens));
  REQUIRE(f.files.remove({.key = kTalk, .whole = true, .number = 9}));
  CHECK_FALSE(f.has(kTalk, SessionPart::tokens));
}

TEST_CASE("files of an earlier server are older than any decision") {
  Files f;
  REQUIRE(f.files.store().write_tokens(kTalk, tokens_of(0)));
  REQUIRE(f.files.remove({.key = kTalk, .whole = true, .number = 1}));
  CHECK_FALSE(f.has(kTalk, SessionPart::tokens));
  CHECK(f.files.remove({.key = kTalk, .whole = true, .number = 2}));  // nothing to delete is no error
}

TEST_CASE("tokens that cannot be deleted stay a session without contents, and it is said") {
  Files f;
  f.write_contents(kTalk, 2);
  fs::create_directories(f.path_of(kTalk, SessionPart::tokens));
  const Status removed = f.files.remove({.key = kTalk, .whole = true, .number = 3});
  REQUIRE_FALSE(removed);
  CHECK(removed.error().message.find("talk.tokens") != std::string::npos);
  CHECK(f.has(kTalk, SessionPart::tokens));
  CHECK_FALSE(f.has(kTalk, SessionPart::contents));
}

// Decisions to write and to delete, carried out in any order that keeps writes of one file in theirs.
TEST_CASE("at random: whatever the order, the tokens are those of the last decision") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Files f;
    std::vector<std::uint64_t> writes, removals;
    for (std::uint64_t number = 1; number <= 6; ++number) (random() % 2 ? writes : removals).push_back(number);
    std::shuffle(removals.begin(), removals.end(), random);
    const bool ends_with_write = !writes.empty() && writes.back() == 6;
    const std::uint64_t last = writes.empty() ? 0 : writes.back();
    while (!writes.empty() || !removals.empty()) {
      const bool is_write = removals.empty() || (!writes.empty() && random() % 2 == 0);
      if (is_write) {
        REQUIRE(f.files.write_tokens(kTalk, writes.front(), tokens_of(writes.front())).status);
        writes.erase(writes.begin());
      } else {
        REQUIRE(f.files.remove({.key = kTalk, .whole = true, .number = removals.back()}));
        removals.pop_back();
      }
    }
    // A write that comes after a later deletion does not happen: tokens are written by a use that excludes deletions.
    if (!ends_with_write) continue;
    const auto file = f.files.store().open_tokens(kTalk);
    REQUIRE(file);
    CHECK(file->record().tokens.back() == static_cast<TokenId>(last));
  }
}

}  // namespace
}  // namespace troupe::actors
