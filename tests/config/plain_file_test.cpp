#include "config/plain_file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace troupe {
namespace {

using test::TempFolder;

std::string reason(const std::string& path) {
  const auto read = read_plain_file(path, 4);
  return read ? "" : read.error().message;
}

TEST_CASE("a plain file is read to its end, or refused with its bound") {
  const TempFolder folder;
  CHECK(*read_plain_file(folder.write("four", "1234"), 4) == "1234");
  CHECK(read_plain_file(folder.write("empty", ""), 4)->empty());
  CHECK(read_plain_file("/dev/null", 4)->empty());
  std::filesystem::create_symlink("four", folder.path("link"));
  CHECK(*read_plain_file(folder.path("link"), 4) == "1234");
  CHECK(reason(folder.write("five", "12345")) == folder.path("five") + ": has more than 4 bytes");
  const std::string large(200'000, 'x');
  CHECK(*read_plain_file(folder.write("large", large), large.size()) == large);
}

TEST_CASE("what is no plain file is refused, and not waited for") {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/full")})
    CHECK(reason(path) == path + ": is a device, a pipe or a socket; name a plain file");
  CHECK(reason(folder.path()) == folder.path() + ": cannot be read: Is a directory");
  CHECK(reason(folder.path("none")) == folder.path("none") + ": cannot be read: No such file or directory");
}

}  // namespace
}  // namespace troupe
