// Whether another user could put a socket in a socket's place: what a server asks of the directory it listens in, and a
// client of the server that it has reached. Plain POSIX.
#pragma once

#include <string>

#include "config/result.h"

namespace troupe::ipc {

// Looks at every directory from / to `directory`, and at every symbolic link on the way: each must belong to us or to
// root, and be writable by its owner alone unless it is sticky (as /tmp is: there only the owner of an entry replaces
// it). As sshd does with its files. Errors: permission, naming the directory, its owner and mode and what to do; io.
[[nodiscard]] Status check_way_to(const std::string& directory);

// Whether the server at the other end of `fd`, connected to `path`, is the one that belongs there: it was started by
// us or by root, or else by the user to whom the socket's directory belongs and who, with root and us, is the only one
// who can write to it and to those above. Errors: permission, naming the server's uid and what is wrong; io.
[[nodiscard]] Status check_server(int fd, const std::string& path);

}  // namespace troupe::ipc
