// A file mapped read-only, for as long as the object lives.
//
// A mapped page that the file no longer has, because the file was cut off, or that its disk cannot read, raises SIGBUS,
// which would end the process. The first open() therefore sets a handler for that signal: a fault inside of a
// MappedFile replaces the rest of its mapping by zeros, and is_whole() is false from then on. Other faults go to the
// handler that was there before. (systemd's src/basic/sigbus.c treats its journal files the same way.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/file_descriptor.h"
#include "config/result.h"

namespace troupe::engine {

// Identifies a file's contents without reading them: a write to the file changes one of these. Unlike mtime, ctime
// cannot be set back. The device number is left out, because it may differ from boot to boot.
struct FileStamp {
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Any thread may read it.
class MappedFile {
 public:
  // How many may be open at once in a process, each part of a split model being one: the signal handler finds them in a
  // table.
  static constexpr std::size_t kMaxOpen = 512;

  // Error: model_missing, permission, or io (also: kMaxOpen are open); a folder, device or empty file is bad_model.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {base_, size_}; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  // Whether every byte that was read so far was the file's.
  [[nodiscard]] bool is_whole() const;
  // Ok while the file has the size and the time of its last write that it had when it was opened, and is_whole().
  // Error: bad_model, which says what happened to the file, without its path.
  [[nodiscard]] Status check_unchanged() const;
  // Drops the whole pages inside `part` from this process's memory; a later read loads them from the file again.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(FileDescriptor file, std::byte* base, const FileStamp& stamp, std::size_t place);

  FileDescriptor file_;
  std::byte* base_;
  std::size_t size_;
  FileStamp stamp_;
  std::size_t place_;  // in the table of the signal handler
};

}  // namespace troupe::engine
