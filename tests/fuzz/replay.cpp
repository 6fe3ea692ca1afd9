// Runs a fuzz target over files and folders of inputs without libFuzzer, as a regression test.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> inputs_of(const fs::path& argument) {
  if (!fs::is_directory(argument)) return {argument};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(argument)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t num_inputs = 0;
  for (int i = 1; i < count; ++i) {
    // Git keeps no empty folders.
    if (!fs::exists(arguments[i])) continue;
    for (const fs::path& path : inputs_of(arguments[i])) {
      std::fprintf(stderr, "%s\n", path.c_str());  // before it runs: a failure is about the last one named
      std::ifstream file(path, std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++num_inputs;
    }
  }
  std::fprintf(stderr, "%zu inputs\n", num_inputs);
  return num_inputs == 0 ? 1 : 0;
}
