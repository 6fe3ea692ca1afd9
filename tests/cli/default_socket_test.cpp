// Where serve listens and clients connect without --socket.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <string_view>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kNobody = 65534;  // Spawn::as_nobody

// A user without a runtime directory: the user "nobody" if the tests run as root.
Spawn homeless_session(const std::string& home, std::vector<std::string> arguments) {
  return {.arguments = std::move(arguments), .environment = {{"HOME", home}}, .as_nobody = ::geteuid() == 0};
}

// In the build folder, which other users cannot write to, unlike the directory of TempFolder.
class Home {
 public:
  Home() {
    std::string pattern = TROUPE_BUILD_DIR "/home-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    if (::geteuid() == 0) REQUIRE(::chown(path_.c_str(), kNobody, kNobody) == 0);
  }
  ~Home() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  // Why these tests cannot use it; empty: they can.
  static std::string why_not() {
    if (::access(TROUPE_BUILD_DIR, W_OK) != 0) return TROUPE_BUILD_DIR " is read-only";
    if (::geteuid() != 0 && fs::exists("/run/user/" + std::to_string(::geteuid()))) return "this user has a session";
    if (std::string_view(TROUPE_BUILD_DIR).size() > 40) return "the path of the build is long";
    fs::path folder;
    for (const fs::path& name : fs::path(TROUPE_BUILD_DIR)) {
      folder /= name;
      struct stat status {};
      if (::stat(folder.c_str(), &status) != 0 || (status.st_mode & 0022) != 0 || (status.st_mode & 0001) == 0)
        return folder.string() + " is open to others, or closed to them";
    }
    return "";
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("without --socket, server and clients use XDG_RUNTIME_DIR; TROUPE_HOST names another socket") {
  const TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", folder.path()}};
  Process server(Spawn{.arguments = {"serve"}, .environment = environment});
  REQUIRE(server.wait_for_err("ready"));
  CHECK(std::filesystem::is_socket(folder.path("troupe/troupe.sock")));
  CHECK(run({.arguments = {"status"}, .environment = environment}).code == 0);
  CHECK(run({.arguments = {"status"}, .environment = {{"TROUPE_HOST", "unix://" + folder.path("troupe/troupe.sock")}}})
            .code == 0);
  CHECK(run({.arguments = {"status"}, .environment = {{"TROUPE_SOCKET", folder.path("troupe/troupe.sock")}}}).code ==
        0);
  CHECK(run({.arguments = {"status"},
             .environment = {{"XDG_RUNTIME_DIR", folder.path()}, {"TROUPE_HOST", "unix:///nonexistent.sock"}}})
            .code == 1);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("without a runtime directory, server and clients use a directory in the home that only that user can read") {
  if (const std::string reason = Home::why_not(); !reason.empty()) {
    WARN("skipped: " << reason);
    return;
  }
  const Home home;
  Process server(homeless_session(home.path(), {"serve"}));
  const bool ready = server.wait_for_err("ready");
  INFO((ready ? "" : server.wait().err));
  REQUIRE(ready);
  struct stat status {};
  REQUIRE(::stat((home.path() + "/.troupe").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  CHECK(run(homeless_session(home.path(), {"status"})).code == 0);
  // A session's runtime directory without a server does not hide it.
  const TempFolder folder;
  Spawn in_session = homeless_session(home.path(), {"status"});
  in_session.environment["XDG_RUNTIME_DIR"] = folder.path("none");
  CHECK(run(in_session).code == 0);
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains("listens on " + home.path() + "/.troupe/"));
  CHECK(fs::is_empty(home.path() + "/.troupe"));
}

TEST_CASE("a home that others can write to, or below such a directory, is refused for the socket") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become a user without a session");
    return;
  }
  const TempFolder folder;  // in a sticky directory
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chown(folder.path().c_str(), kNobody, kNobody) == 0);
  const Finished below = run(homeless_session(folder.path(), {"serve"}));
  if (below.code >= 126) {
    WARN("skipped: another user may not run " << TROUPE_BINARY);
    return;
  }
  CHECK(below.code == 77);
  CHECK_THAT(below.err, Contains("no private directory for the socket") && Contains("--socket"));
  CHECK_FALSE(fs::exists(folder.path(".troupe")));
}

TEST_CASE("the runtime directory of another user, as su leaves it, is not used") {
  if (const std::string reason = ::geteuid() != 0 ? "only root can become another user" : Home::why_not();
      !reason.empty()) {
    WARN("skipped: " << reason);
    return;
  }
  const Home home;
  const TempFolder theirs;
  REQUIRE(::chmod(theirs.path().c_str(), 0755) == 0);
  Spawn after_su = homeless_session(home.path(), {"serve"});
  after_su.environment["XDG_RUNTIME_DIR"] = theirs.path();
  Process server(after_su);
  CHECK(server.wait_for_err("listens on " + home.path() + "/.troupe/"));
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}
