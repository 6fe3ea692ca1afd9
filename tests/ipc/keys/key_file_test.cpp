// The file of keys on disk: whose it must be, and how it is replaced.
#include "ipc/keys/key_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::ipc;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

KeyRow row_named(const std::string& name, int number) {
  return {.name = name, .id = std::to_string(1'000'000'000 + number)};
}

Status add_row(const std::string& path, KeyRow row) {
  auto file = KeyFile::open(path);
  if (!file) return file.error();
  std::vector<KeyRow> rows = file->rows();
  rows.push_back(std::move(row));
  return file->replace(std::move(rows));
}

// The error of reading it; empty: none.
std::string error_of(const std::string& path, ErrorCode code) {
  const auto rows = read_keys(path);
  if (rows) return "";
  CHECK(rows.error().code == code);
  return rows.error().message;
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

// Sets a variable of the environment for as long as it exists.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("a file of keys is made with its folder, for its owner only, and nothing is left beside it") {
  const test::TempFolder folder;
  const mode_t before = ::umask(0);
  const std::string path = folder.path("state/troupe/keys");
  CHECK(add_row(path, row_named("a", 1)));
  CHECK(add_row(path, row_named("b", 2)));
  ::umask(before);
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(folder.path("state/troupe")) == 0700);
  const auto rows = read_keys(path);
  REQUIRE(rows);
  REQUIRE(rows->size() == 2);
  CHECK(rows->at(1).name == "b");
  CHECK(std::distance(fs::directory_iterator(folder.path("state/troupe")), {}) == 1);
}

TEST_CASE("changes at the same time wait for one another, and none is lost") {
  const test::TempFolder folder;
  const std::string path = folder.path("keys");
  constexpr int kThreads = 4, kEach = 16;
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        if (const Status added = add_row(path, row_named("k" + std::to_string(t * kEach + i), t * kEach + i)); !added)
          errors[static_cast<std::size_t>(t)] = added.error().message;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK(error.empty());
  const auto rows = read_keys(path);
  REQUIRE(rows);
  CHECK(rows->size() == kThreads * kEach);
}

TEST_CASE("a file that others could read or change, or that is none, is refused with the remedy") {
  const test::TempFolder folder;
  const std::string path = folder.path("keys");
  REQUIRE(add_row(path, row_named("a", 1)));
  for (const mode_t mode : {0640u, 0604u, 0620u, 0660u, 0601u}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    CHECK_THAT(error_of(path, ErrorCode::permission), Contains("chmod 600"));
    CHECK_FALSE(KeyFile::open(path));
  }
  REQUIRE(::chmod(path.c_str(), 0400) == 0);
  CHECK(error_of(path, ErrorCode::permission).empty());
  REQUIRE(::symlink(path.c_str(), folder.path("link").c_str()) == 0);
  CHECK_THAT(error_of(folder.path("link"), ErrorCode::permission), Contains("symbolic link"));
  CHECK_FALSE(KeyFile::open(folder.path("link")));
  CHECK_THAT(error_of(folder.path("none"), ErrorCode::bad_config), Contains("no such file"));
  CHECK_FALSE(fs::exists(folder.path("none")));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK_THAT(error_of(folder.path("pipe"), ErrorCode::bad_config), Contains("is no file"));
  CHECK_THAT(error_of(folder.path(""), ErrorCode::bad_config), Contains("is no file"));
  const std::string large = folder.path("large");
  std::ofstream(large).close();
  REQUIRE(::chmod(large.c_str(), 0600) == 0);
  REQUIRE(::truncate(large.c_str(), off_t{1} << 40) == 0);
  CHECK_THAT(error_of(large, ErrorCode::bad_config), Contains("1099511627776 bytes"));
}

TEST_CASE("what systemd gives a service may be readable by a group, and comes first") {
  const test::TempFolder folder;
  const std::string path = folder.path("troupe-keys");
  REQUIRE(add_row(path, row_named("a", 1)));
  REQUIRE(::chmod(path.c_str(), 0440) == 0);
  const Variable state("STATE_DIRECTORY", "/var/lib/troupe:/var/lib/other");
  CHECK(*keys_path("auto") == "/var/lib/troupe/keys");
  CHECK(*keys_path("/etc/keys") == "/etc/keys");
  CHECK_FALSE(read_keys(path));
  const Variable credentials("CREDENTIALS_DIRECTORY", folder.path("."));
  CHECK(*keys_path("auto") == folder.path(".") + "/troupe-keys");
  CHECK(read_keys(*keys_path("auto")));
  REQUIRE(::chmod(path.c_str(), 0444) == 0);
  CHECK_FALSE(read_keys(*keys_path("auto")));
}

TEST_CASE("root changes the file of the service's user, and makes one for the owner of the folder") {
  if (::geteuid() != 0) return test::skip("only root may give files away");
  constexpr uid_t kService = 12345;
  const test::TempFolder folder;
  REQUIRE(::chown(folder.path("").c_str(), kService, kService) == 0);
  const std::string path = folder.path("keys");
  REQUIRE(add_row(path, row_named("a", 1)));
  REQUIRE(add_row(path, row_named("b", 2)));
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK(info.st_uid == kService);
  CHECK(mode_of(path) == 0600);
  // A server that runs as root takes no keys from another user.
  CHECK_THAT(error_of(path, ErrorCode::permission), Contains("belongs to uid 12345"));
}
