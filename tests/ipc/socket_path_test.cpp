#include "ipc/sockets/socket_path.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace troupe::ipc {
namespace {

using Paths = std::vector<std::string>;

SocketEnvironment environment(std::optional<std::string> host, std::optional<std::string> xdg, std::string run_user,
                              bool is_root = false, std::string home = "") {
  return {.troupe_host = std::move(host),
          .xdg_runtime_dir = std::move(xdg),
          .user_runtime_dir = std::move(run_user),
          .home_socket = std::move(home),
          .is_root = is_root};
}

TEST_CASE("a server listens in XDG_RUNTIME_DIR, else in /run/user/UID, else for root in /run/troupe, never in /tmp") {
  REQUIRE(*server_socket_path(environment({}, "/xdg", "/run/user/7", false, "/h")) == "/xdg/troupe/troupe.sock");
  REQUIRE(*server_socket_path(environment({}, {}, "/run/user/7", false, "/h")) == "/run/user/7/troupe/troupe.sock");
  REQUIRE(*server_socket_path(environment({}, {}, "", true)) == "/run/troupe/troupe.sock");
  const auto none = server_socket_path(environment({}, {}, ""));
  REQUIRE_FALSE(none);
  REQUIRE(none.error().code == ErrorCode::permission);
  REQUIRE(none.error().message.find("--socket") != std::string::npos);
}

TEST_CASE("without a runtime directory a server of a user listens in the home, where that is private") {
  REQUIRE(*server_socket_path(environment({}, {}, "", false, "/home/u/.troupe/host.sock")) ==
          "/home/u/.troupe/host.sock");
}

TEST_CASE("a client tries TROUPE_HOST alone, else the user's sockets, then the system's") {
  REQUIRE(*client_socket_paths(environment("unix:///a/b.sock", "/xdg", "/run/user/7", false, "/h")) ==
          Paths{"/a/b.sock"});
  REQUIRE(*client_socket_paths(environment("/a/b.sock", "/xdg", "")) == Paths{"/a/b.sock"});
  REQUIRE(*client_socket_paths(environment({}, "/xdg", "/run/user/7", false, "/h")) ==
          Paths{"/xdg/troupe/troupe.sock", "/h", "/run/troupe/troupe.sock"});
  REQUIRE(*client_socket_paths(environment({}, {}, "")) == Paths{"/run/troupe/troupe.sock"});
}

TEST_CASE("a TROUPE_HOST that is no Unix socket is refused, TCP by name") {
  const auto tcp = client_socket_paths(environment("tcp://localhost:80", {}, ""));
  REQUIRE_FALSE(tcp);
  REQUIRE(tcp.error().code == ErrorCode::unsupported);
  for (const std::string bad : {"localhost", "unix:relative", "unix://relative", "http://x"}) {
    const auto paths = client_socket_paths(environment(bad, {}, ""));
    REQUIRE_FALSE(paths);
    REQUIRE(paths.error().code == ErrorCode::invalid_argument);
    REQUIRE(paths.error().message.find(bad) != std::string::npos);
  }
}

TEST_CASE("a path of 107 bytes is the longest, an empty or abstract one is refused") {
  REQUIRE(check_socket_path("/" + std::string(106, 'x')));
  const Status too_long = check_socket_path("/" + std::string(107, 'x'));
  REQUIRE_FALSE(too_long);
  REQUIRE(too_long.error().code == ErrorCode::invalid_argument);
  REQUIRE(too_long.error().message.find("108") != std::string::npos);
  REQUIRE(too_long.error().message.find("107") != std::string::npos);
  REQUIRE_FALSE(check_socket_path(""));
  REQUIRE_FALSE(check_socket_path(std::string("\0troupe", 7)));
}

}  // namespace
}  // namespace troupe::ipc
