// Checks that no other user could replace a socket: by a server, of the directory it listens in; by a client, of the
// server that it has connected to. Plain POSIX.
#pragma once

#include <string>

#include "config/result.h"

namespace troupe::ipc {

// Checks every directory from / to `directory`, and every symbolic link on the way: each must belong to us or to root,
// and be writable by its owner only unless it is sticky (as /tmp is, where only the owner of an entry can replace it).
// As sshd checks its files. Errors: permission, naming the directory, its owner and mode and what to do; io.
[[nodiscard]] Status check_way_to(const std::string& directory);

// Whether we own `directory`, and only we and root can write to it and the directories above it. Unlike check_way_to()
// it accepts no sticky directory, so nothing under /tmp is private.
[[nodiscard]] bool is_private(const std::string& directory);

// Whether the server at the other end of `fd`, connected to `path`, is the one that belongs there: it was started by
// us or by root, or by the owner of the socket's directory where no other user but root and us can write to it and to
// those above. Errors: permission, naming the server's uid and what is wrong; io.
[[nodiscard]] Status check_server(int fd, const std::string& path);

}  // namespace troupe::ipc
