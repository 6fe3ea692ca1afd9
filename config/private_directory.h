// A directory for one user's data: made with mode 0700, opened without following a symbolic link.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/file_descriptor.h"
#include "config/result.h"

namespace troupe {

class PrivateDirectory {
 public:
  // Makes the directory if it is not there, with those above it, and syncs where each was made. Errors: io; permission
  // if the directory is another user's, can be entered by others, or is a symbolic link.
  static Result<PrivateDirectory> open(const std::string& path);
  // The same below this one. `name` has no slash.
  [[nodiscard]] Result<PrivateDirectory> sub(const std::string& name) const;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path_of(const std::string& name) const { return path_ + "/" + name; }  // for messages
  [[nodiscard]] Result<std::vector<std::string>> names() const;  // sorted, without "." and ".."

 private:
  PrivateDirectory(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  static Result<PrivateDirectory> open_at(int parent, const std::string& name, std::string path);
  std::string path_;
  FileDescriptor fd_;
};

}  // namespace troupe
