// A file mapped read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

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

class MappedFile {
 public:
  // Error: model_missing, permission, or io; a folder, device or empty file is bad_model.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {base_, size_}; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  // Drops the whole pages inside `part` from this process's memory; a later read loads them from the file again.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::byte* base, const FileStamp& stamp) : base_(base), size_(stamp.bytes), stamp_(stamp) {}
  std::byte* base_;
  std::size_t size_;
  FileStamp stamp_;
};

}  // namespace troupe::engine
