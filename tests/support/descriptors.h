// How many descriptors tests may open.
#pragma once

#include <sys/resource.h>

namespace troupe::test {

// Raises the soft limit to the hard one, as the server does, and returns it.
inline rlim_t take_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace troupe::test
