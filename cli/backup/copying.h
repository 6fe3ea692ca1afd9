// Copies files with their checksums, shows how far it is, and stops at Ctrl-C.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "config/file_descriptor.h"
#include "config/result.h"

namespace troupe::cli {

struct CopiedFile {
  std::uint64_t size = 0;
  std::string sha256;
};

// One per process. SIGINT, SIGTERM and SIGHUP do not end the process while it exists: copies fail then, and what was
// begun can be undone.
class Copying {
 public:
  Copying();

  // Begins to count to so many bytes. what: "copying"
  void begin(const std::string& what, std::uint64_t total_bytes);
  void end() { progress_.finish(); }
  // Copies from an open file, from its beginning, to another one, which is synced with the first one's time of
  // modification; to < 0: reads it only. `from_path`, `to_path`: for messages. Errors: io; of a full disk, too.
  [[nodiscard]] Result<CopiedFile> copy(int from, const std::string& from_path, int to, const std::string& to_path);
  // The signal that came; 0: none.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  std::atomic<int> signal_{0};
  SignalThread signals_;
  Progress progress_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::vector<std::byte> buffer_;
};

// Opens a regular file to read, without following a symbolic link. Error: io, or permission; `number`, if it is given,
// gets the errno.
[[nodiscard]] Result<FileDescriptor> open_regular(int directory, const std::string& name, const std::string& path,
                                                  int* number = nullptr);
// Makes a new file of mode 0600.
[[nodiscard]] Result<FileDescriptor> make_file_in(int directory, const std::string& name, const std::string& path);
// Sets the time of modification, in seconds since 1970.
void set_modified(int file, std::int64_t seconds);
// What a file that was made or renamed in the directory needs to last.
[[nodiscard]] Status sync_folder(const std::string& path);

}  // namespace troupe::cli
