// Catch2's main(), compiled once for all test programs.
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>

#include <catch2/catch.hpp>

namespace {

// Where a program is started without standard input, output or error, a test's first pipe or socket would become it.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // takes the lowest number: fd
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  return Catch::Session().run(argc, argv);
}
