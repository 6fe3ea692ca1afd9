// A file mapped read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/result.h"

namespace troupe::engine {

// What the operating system says of a file's contents without reading them: whoever writes to it changes one of these.
// The time of change (ctime) cannot be set back, as that of modification can. Devices are left out: their numbers
// differ from boot to boot.
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
  // The whole pages inside `part` leave this process; a later read fetches them again from the file.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::byte* base, const FileStamp& stamp) : base_(base), size_(stamp.bytes), stamp_(stamp) {}
  std::byte* base_;
  std::size_t size_;
  FileStamp stamp_;
};

}  // namespace troupe::engine
