#include "ipc/sockets/peer_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <vector>

#include "config/file_descriptor.h"

namespace troupe::ipc {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD: newer than Debian 12's headers
// A path has at most 4096 bytes; with cgroup v1 there are a dozen lines beside the one of v2.
constexpr std::size_t kMaxProcFileBytes = 64u << 10;

std::string read_proc_file(int process, const char* name) {
  const FileDescriptor file(::openat(process, name, O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 4096> part{};
  while (file.get() >= 0 && content.size() < kMaxProcFileBytes) {
    const ssize_t size = ::read(file.get(), part.data(), part.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return {};
    if (size == 0) return content;
    content.append(part.data(), static_cast<std::size_t>(size));
  }
  return {};
}

// The effective uid in a /proc/PID/status: "Uid:\t1000\t1000\t1000\t1000".
std::optional<std::uint32_t> effective_uid(const std::string& status) {
  const std::size_t line = status.find("\nUid:\t");
  const std::size_t second = line == std::string::npos ? line : status.find('\t', line + 6);
  if (second == std::string::npos) return std::nullopt;
  return static_cast<std::uint32_t>(std::strtoul(status.c_str() + second + 1, nullptr, 10));
}

// Whether the process that has connected lives, as far as the kernel can say: while it does, its pid is no other's.
bool may_live(int fd) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (::getsockopt(fd, SOL_SOCKET, kPeerPidfd, &pidfd, &size) != 0) return errno == ENOPROTOOPT;
  const FileDescriptor process(pidfd);
  pollfd entry{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 0;
}

}  // namespace

std::string cgroup_path(std::string_view proc_file) {
  constexpr std::string_view kSystemd = ":name=systemd:";
  std::string_view unified, of_systemd;
  while (!proc_file.empty()) {
    const std::string_view line = proc_file.substr(0, proc_file.find('\n'));
    const std::size_t systemd = line.find(kSystemd);
    if (line.starts_with("0::/"))
      unified = line.substr(3);
    else if (systemd == line.find(':') &&
             line.substr(std::min(line.size(), systemd + kSystemd.size())).starts_with('/'))
      of_systemd = line.substr(systemd + kSystemd.size());
    proc_file.remove_prefix(std::min(line.size() + 1, proc_file.size()));
  }
  return std::string(unified.size() > 1 || of_systemd.empty() ? unified : of_systemd);
}

// The directory stays that of the process which had the pid when it was opened, so a process that ends meanwhile is not
// mistaken for the next one.
std::string cgroup_of(const Peer& peer, int fd) {
  if (peer.pid <= 0) return {};  // of another pid namespace
  const FileDescriptor process(::open(fmt::format("/proc/{}", peer.pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (process.get() < 0 || !may_live(fd)) return {};
  if (effective_uid(read_proc_file(process.get(), "status")) != peer.uid) return {};
  return cgroup_path(read_proc_file(process.get(), "cgroup"));
}

bool sees_other_processes() { return ::access("/proc/1/cgroup", R_OK) == 0; }

std::vector<std::uint32_t> groups_of_user(std::uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16 << 10);
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  if (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) return {};
  }
  return {groups.begin(), groups.begin() + count};
}

PeerFacts facts_of(const Peer& peer, int fd, const TenantRules& rules) {
  PeerFacts facts{.uid = peer.uid, .gids = {peer.gid}};
  const std::vector<std::uint32_t> more = supplementary_groups(fd);
  facts.gids.insert(facts.gids.end(), more.begin(), more.end());
  if (rules.need_cgroup()) facts.cgroup = cgroup_of(peer, fd);
  return facts;
}

}  // namespace troupe::ipc
