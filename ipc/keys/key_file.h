// The file of keys on disk: found, checked, read, and replaced in one piece. Its text: key_rows.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/file_descriptor.h"
#include "config/result.h"
#include "ipc/keys/key_rows.h"

namespace troupe::ipc {

// Reads the file. It must be a regular file of ours or root's that no other user can read; inside
// $CREDENTIALS_DIRECTORY, where systemd decides, a group may. Errors: as parse_keys(); bad_config if there is none;
// permission, with the remedy; io.
// wrong: as of parse_keys().
[[nodiscard]] Result<std::vector<KeyRow>> read_keys(const std::string& path, std::vector<std::string>* wrong = nullptr);

// "auto": $CREDENTIALS_DIRECTORY/troupe-keys if it is there, else `keys` in the directory of state_path(). Anything
// else is a path. Error: as there.
[[nodiscard]] Result<std::string> keys_path(const std::string& option);

// The file while it is changed: other processes that change it wait. One that is not there is made, with its directory
// (mode 0700).
class KeyFile {
 public:
  // Errors as of read_keys(). Root may change the file of another user, whose it stays.
  static Result<KeyFile> open(const std::string& path);

  [[nodiscard]] const std::vector<KeyRow>& rows() const { return rows_; }
  // Replaces the file at once, mode 0600: a reader sees the old or the new one. Errors: io, permission.
  [[nodiscard]] Status replace(std::vector<KeyRow> rows);

 private:
  KeyFile(std::string path, FileDescriptor locked) : path_(std::move(path)), locked_(std::move(locked)) {}
  std::string path_;
  FileDescriptor locked_;  // the file as it was opened, with an exclusive flock()
  std::vector<KeyRow> rows_;
};

}  // namespace troupe::ipc
