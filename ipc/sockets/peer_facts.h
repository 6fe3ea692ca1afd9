// Reads what the kernel says of the process at the other end of a connection, beyond Peer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/sockets/listening_socket.h"
#include "ipc/tenant_rules.h"

namespace troupe::ipc {

// The path that a /proc/PID/cgroup names: of cgroup v2, or where that is empty or all processes are at its root, as on
// a machine with v1, of the hierarchy of systemd, which has the same paths. Empty: there is neither.
[[nodiscard]] std::string cgroup_path(std::string_view proc_file);

// The cgroup of the process that has connected, now; empty if it is not certain. The pid is only a hint: its process
// must have the peer's effective uid, and, where the kernel can say it (SO_PEERPIDFD, Linux 6.5), be the one that
// called connect(). Before that another process of the same uid may have taken the pid of one that has ended.
[[nodiscard]] std::string cgroup_of(const Peer& peer, int fd);

// Whether /proc shows processes of other users: hidepid= of proc(5) and ProtectProc= of a unit hide them, and with them
// their cgroups.
[[nodiscard]] bool sees_other_processes();

// The groups of a user by the system's database of users, the primary one first; empty: it does not know the user. May
// read files or ask a directory service.
[[nodiscard]] std::vector<std::uint32_t> groups_of_user(std::uint32_t uid);

// Uid and groups; the cgroup if `rules` need it. Reads two small files at most.
[[nodiscard]] PeerFacts facts_of(const Peer& peer, int fd, const TenantRules& rules);

}  // namespace troupe::ipc
