// A running server does not depend on its model file.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/cli/process.h"

using namespace troupe::test;

namespace {

const std::vector<std::string> kStory{"run", "--temp", "0", "-n", "40", "Once upon a time"};
const std::vector<std::string> kOther{"run", "--temp", "0.8", "--seed", "7", "-n", "40", "One day, a little cat"};

}  // namespace

TEST_CASE("truncating, overwriting and deleting the model file under a running server changes nothing") {
  const TempFolder folder;
  const std::string path = folder.path("model.gguf");
  std::filesystem::copy_file(TROUPE_MODELS "/tales-5m-tq2_0.gguf", path);
  ServerProcess server({"-m", path, "--alias", "tales"});
  const Finished story = server.call(kStory);
  INFO(story.err);
  REQUIRE(story.code == 0);
  const Finished other = server.call(kOther);
  REQUIRE(other.code == 0);

  const auto unchanged = [&] {
    CHECK(server.call(kStory).out == story.out);  // its prefix is cached
    CHECK(server.call(kOther).out == other.out);
    CHECK(server.call({"status"}).code == 0);
  };
  std::filesystem::resize_file(path, 100);  // inside the header: every page of a mapping would be gone
  unchanged();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << std::string(3u << 20, '\xff');
  unchanged();
  std::filesystem::remove(path);
  unchanged();

  // Words that no request had before, in a prompt of several blocks.
  std::string words;
  for (int i = 0; i < 60; ++i) words += "the girl and the dog went home ";
  CHECK(server.call({"run", "-n", "4", words}).code == 0);
  CHECK(server.stop().code == 0);
}
