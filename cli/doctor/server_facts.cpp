#include "cli/doctor/server_facts.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/client/client_options.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/text.h"
#include "config/file_descriptor.h"
#include "config/system_error.h"
#include "ipc/client/client.h"
#include "ipc/sockets/peer_facts.h"

namespace troupe::cli {
namespace {

constexpr std::string_view kSocketTopic = "socket";

// What a command of the shell writes to stdout; empty if it fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe) {
    const std::size_t count = std::fread(part.data(), 1, part.size(), pipe.get());
    if (count == 0) break;
    text.append(part.data(), count);
  }
  return text;
}

std::string_view value_of(const UnitProperties& unit, std::string_view name) {
  const auto found = unit.find(name);
  return found == unit.end() ? std::string_view() : std::string_view(found->second);
}

bool is_loaded(const UnitProperties& unit) { return value_of(unit, "LoadState") == "loaded"; }

std::string state_of(const UnitProperties& unit) {
  std::string text = fmt::format("{} ({})", value_of(unit, "ActiveState"), value_of(unit, "SubState"));
  if (const auto file = value_of(unit, "UnitFileState"); !file.empty()) text += fmt::format(", {}", file);
  return text;
}

// Group and membership of the file.
void add_group(SocketFacts& facts, const struct stat& file) {
  if (const group* const known = ::getgrgid(file.st_gid)) facts.group = known->gr_name;
  const auto of_user = ipc::groups_of_user(::geteuid());
  facts.is_member = std::ranges::find(of_user, file.st_gid) != of_user.end();
  std::array<gid_t, 256> own;
  const int count = ::getgroups(static_cast<int>(own.size()), own.data());
  facts.has_group = ::getegid() == file.st_gid || std::find(own.begin(), own.begin() + std::max(count, 0),
                                                            file.st_gid) != own.begin() + std::max(count, 0);
}

// Whether the program of the process behind the connection was replaced since it started.
bool is_replaced(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 1) return false;
  std::array<char, 4096> target;
  const ssize_t length = ::readlink(fmt::format("/proc/{}/exe", peer.pid).c_str(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).ends_with(" (deleted)");
}

// The error of connecting, 0: it worked. The connection says what process listens, and ends.
int try_connect(SocketFacts& facts) {
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd.get() < 0 || facts.path.size() >= sizeof address.sun_path) return EINVAL;
  std::memcpy(address.sun_path, facts.path.data(), facts.path.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return errno;
  facts.is_replaced = is_replaced(fd.get());
  return 0;
}

void ask(SocketFacts& facts) {
  config::SocketOptions options;
  options.socket = facts.path;
  const auto client = connect_quietly(options, "troupe doctor");
  if (!client) {
    facts.state = SocketFacts::State::refused;
    facts.problem = client.error().message;
    return;
  }
  const client::ServerInfo& server = (*client)->server();
  facts.state = SocketFacts::State::answers;
  facts.server = server.server;
  facts.health = name_of(server.health);
  facts.is_healthy = !server.health.stalled && server.health.readiness != client::Readiness::failed;
}

}  // namespace

std::map<std::string, UnitProperties, std::less<>> parse_units(std::string_view text) {
  std::map<std::string, UnitProperties, std::less<>> units;
  UnitProperties unit;
  const auto close = [&] {
    if (const auto id = unit.find("Id"); id != unit.end()) units[std::string(id->second)] = unit;
    unit.clear();
  };
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) close();
    if (const auto equals = line.find('='); equals != std::string_view::npos)
      unit.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  close();
  return units;
}

std::vector<UnitFacts> unit_facts(const std::filesystem::path& root) {
  std::vector<UnitFacts> all;
  std::error_code ignored;
  if (!std::filesystem::exists(root / "run/systemd/system", ignored)) return all;
  for (const bool is_user : {false, true}) {
    const auto units = parse_units(output_of(
        fmt::format("timeout 5 systemctl {} show troupe.socket troupe.service --property=Id,LoadState,ActiveState,"
                    "SubState,UnitFileState,Result,NRestarts 2>/dev/null",
                    is_user ? "--user" : "--system")));
    UnitFacts facts{.is_user = is_user, .socket = {}, .service = {}};
    if (const auto found = units.find("troupe.socket"); found != units.end()) facts.socket = found->second;
    if (const auto found = units.find("troupe.service"); found != units.end()) facts.service = found->second;
    if (is_user)
      facts.lingers = std::filesystem::exists(root / "var/lib/systemd/linger" / user_name(::geteuid()), ignored);
    all.push_back(std::move(facts));
  }
  return all;
}

bool waits_for_connections(const UnitFacts& facts) {
  return value_of(facts.socket, "ActiveState") == "active" && value_of(facts.service, "ActiveState") != "active";
}

std::vector<Finding> judge_units(const UnitFacts& facts) {
  std::vector<Finding> all;
  if (!is_loaded(facts.socket) && !is_loaded(facts.service)) return all;
  const std::string_view topic = facts.is_user ? "your unit" : "system's unit";
  const std::string systemctl = facts.is_user ? "systemctl --user" : "sudo systemctl";
  const std::string journal = facts.is_user ? "journalctl --user -u troupe" : "sudo journalctl -u troupe";
  Finding finding{
      .topic = topic,
      .found = fmt::format("troupe.socket {}; troupe.service {}", state_of(facts.socket), state_of(facts.service))};
  const auto is_failed = [](const UnitProperties& unit) { return value_of(unit, "ActiveState") == "failed"; };
  if (is_failed(facts.socket) || is_failed(facts.service)) {
    const UnitProperties& failed = is_failed(facts.service) ? facts.service : facts.socket;
    finding.grade = Grade::broken;
    finding.found += fmt::format(": {}", value_of(failed, "Result"));
    finding.remedy = fmt::format("`{} -n 30` says why; then `{} restart troupe.socket`", journal, systemctl);
  } else if (const auto restarts = value_of(facts.service, "NRestarts"); !restarts.empty() && restarts != "0") {
    finding.grade = Grade::advice;
    finding.found += fmt::format("; restarted {} times", restarts);
    finding.remedy = fmt::format("`{} -n 100` says why it ended", journal);
  } else if (value_of(facts.socket, "ActiveState") != "active") {
    finding.remedy = fmt::format("`{} enable --now troupe.socket` has it start with the first request", systemctl);
  } else if (!facts.lingers) {
    finding.grade = Grade::advice;
    finding.found += "; it ends when you log out";
    finding.remedy = "`loginctl enable-linger` keeps it";
  }
  all.push_back(std::move(finding));
  return all;
}

SocketFacts socket_facts(const std::string& path, bool may_connect) {
  SocketFacts facts{.path = path};
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) {
    if (errno == EACCES) facts.state = SocketFacts::State::forbidden;
    return facts;
  }
  add_group(facts, file);
  if (!may_connect) {
    facts.state = SocketFacts::State::waiting;
    return facts;
  }
  switch (const int error = try_connect(facts)) {
    case 0:
      ask(facts);
      break;
    case EACCES:
    case EPERM:
      facts.state = SocketFacts::State::forbidden;
      break;
    case ECONNREFUSED:
      facts.state = SocketFacts::State::nobody_listens;
      break;
    default:
      facts.state = SocketFacts::State::refused;
      facts.problem = system_error(path, error).message;
  }
  return facts;
}

std::vector<Finding> judge_socket(const SocketFacts& facts, const std::string& user, std::string_view program) {
  using State = SocketFacts::State;
  // Servers that are for others may be found where nothing was named.
  const Grade closed = facts.is_named ? Grade::broken : Grade::advice;
  switch (facts.state) {
    case State::absent:
      return {};
    case State::waiting:
      return {{kSocketTopic, Grade::fine, facts.path + ": the first request starts the server"}};
    case State::nobody_listens:
      return {{kSocketTopic, Grade::advice, facts.path + ": no server listens; one that ended left it",
               "the next `troupe serve` replaces it"}};
    case State::forbidden:
      if (facts.group.empty() || facts.has_group)
        return {{kSocketTopic, closed, facts.path + ": its mode, or its folder's, does not let you connect",
                 "ask its owner for --allow-user or --allow-group (operations.md, \"Users that may connect\")"}};
      if (facts.is_member)
        return {{kSocketTopic, closed,
                 fmt::format("{}: is for the group {}, which you joined after this login", facts.path, facts.group),
                 fmt::format("log in again, or `newgrp {}`", facts.group)}};
      return {{kSocketTopic, closed, fmt::format("{}: is for the group {}", facts.path, facts.group),
               fmt::format("`sudo adduser {} {}`, and log in again", user, facts.group)}};
    case State::refused:
      return {{kSocketTopic, closed, facts.problem}};
    case State::answers:
      break;
  }
  std::vector<Finding> all{
      {kSocketTopic, Grade::fine, fmt::format("{}: {}, {}", facts.path, facts.server, facts.health)}};
  if (!facts.is_healthy) {
    all[0].grade = Grade::broken;
    all[0].remedy = "its log says why; `troupe status` has more";
  }
  if (facts.is_replaced || facts.server != program)
    all.push_back({"old program", Grade::advice,
                   fmt::format("the server at {} is {}{}; this is {}", facts.path, facts.server,
                               facts.is_replaced ? ", whose file was replaced" : "", program),
                   "restart it: `systemctl --user restart troupe`, `sudo systemctl restart troupe`, or SIGTERM and "
                   "`troupe serve`; running answers are finished first"});
  return all;
}

}  // namespace troupe::cli
