// Where tests put files and sockets.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace troupe::test {

// Whether other users can enter the folder, named by an absolute path.
inline bool others_can_enter(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path part;
  for (const fs::path& name : folder) {
    part /= name;
    if ((fs::status(part, error).permissions() & fs::perms::others_exec) == fs::perms::none) return false;
  }
  return true;
}

// Whether tests can work in a folder, named by an absolute path: other users can reach it, as tests by root need it;
// lists of paths can name it (LD_PRELOAD, split at spaces and colons); the address of a socket in a test's folder (107
// bytes at most) has room for it; and a cache of weights leaves 256 MiB free.
inline bool can_hold_tests(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  constexpr std::size_t kMaxLength = 60;
  constexpr std::uintmax_t kMinFree = 512u << 20;
  std::error_code error;
  if (!others_can_enter(root) || root.native().find_first_of(" :") != std::string::npos) return false;
  const fs::space_info space = fs::space(root, error);
  return !error && space.available >= kMinFree && root.native().size() <= kMaxLength;
}

// TMPDIR where it can hold tests, else /tmp, else /var/tmp; an absolute path.
inline std::filesystem::path temp_root() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path wanted = fs::canonical(fs::temp_directory_path(error), error);
  for (const fs::path& root : {error ? fs::path("/tmp") : wanted, fs::path("/tmp"), fs::path("/var/tmp")})
    if (can_hold_tests(root)) return root;
  return "/tmp";
}

// A folder of its own (0700), removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (temp_root() / "troupe-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + pattern);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name = "") const { return (path_ / name).string(); }
  // Makes the folders that `name` needs. The path of the file.
  std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

// A path by which other users can run `program`: its own, or, where the build lies below a folder of mode 0700, that of
// a copy which lives as long as this process.
inline std::string runnable_by_others(const std::string& program) {
  namespace fs = std::filesystem;
  const fs::path own = fs::absolute(program);
  if (others_can_enter(own.parent_path()) &&
      (fs::status(own).permissions() & fs::perms::others_exec) != fs::perms::none)
    return program;
  static const TempFolder folder;
  const fs::path copy = folder.path(own.filename().string());
  if (!fs::exists(copy)) {
    fs::permissions(folder.path(), fs::perms(0755));
    fs::copy_file(own, copy);
    fs::permissions(copy, fs::perms(0755));
  }
  return copy.string();
}

}  // namespace troupe::test
