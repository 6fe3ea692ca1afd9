// What `troupe doctor` looks up of servers: their sockets, and systemd's units; and what it makes of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/finding.h"

namespace troupe::cli {

// What systemd says of a unit, by property: {"ActiveState", "active"}.
using UnitProperties = std::map<std::string, std::string, std::less<>>;

// Reads what `systemctl show` prints of several units: lines "NAME=VALUE", between units an empty one. By Id.
[[nodiscard]] std::map<std::string, UnitProperties, std::less<>> parse_units(std::string_view text);

// The units troupe.socket and troupe.service, of the system or of this user.
struct UnitFacts {
  bool is_user = false;
  UnitProperties socket, service;  // empty: systemd does not know it
  bool lingers = true;             // the user's units run while nobody is logged in
};

// root: "/" except in tests. Asks systemctl, for at most five seconds; nothing where systemd does not run.
[[nodiscard]] std::vector<UnitFacts> unit_facts(const std::filesystem::path& root = "/");
[[nodiscard]] std::vector<Finding> judge_units(const UnitFacts& facts);

// Whether a connection would start a server that does not run now.
[[nodiscard]] bool waits_for_connections(const UnitFacts& facts);

struct SocketFacts {
  enum class State : std::uint8_t {
    absent,
    waiting,         // a socket unit's, whose server starts with the first connection
    forbidden,       // the file's mode, or its folder's, does not let us
    nobody_listens,  // left by a server that has ended
    refused,         // by the server, or by a client's own checks: `problem`
    answers,
  };
  std::string path;
  State state = State::absent;
  bool is_named = false;   // by --socket, so that it has to work
  std::string group{};     // of the file, by name; empty: not known
  bool is_member = false;  // of the group, by the database of users
  bool has_group = false;  // this process has it: a login has the groups that the user had then
  std::string problem{};
  std::string server{};      // "troupe 0.1.0 (adf5cc8)"
  std::string health{};      // "ready"
  bool is_healthy = true;    // it neither failed nor stands still
  bool is_replaced = false;  // the file of its program is not there any more
};

// Looks at a socket, and where `may_connect` at the server behind it.
[[nodiscard]] SocketFacts socket_facts(const std::string& path, bool may_connect);
// `user`: to name in a command. `program`: this one, as it names itself as a server.
[[nodiscard]] std::vector<Finding> judge_socket(const SocketFacts& facts, const std::string& user,
                                                std::string_view program);

}  // namespace troupe::cli
