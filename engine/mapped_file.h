// A file mapped read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "config/result.h"

namespace troupe::engine {

class MappedFile {
 public:
  // Error: model_missing, permission, or io; a folder, device or empty file is bad_model.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {base_, size_}; }
  // The whole pages inside `part` leave this process; a later read fetches them again from the file.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::byte* base, std::size_t size) : base_(base), size_(size) {}
  std::byte* base_;
  std::size_t size_;
};

}  // namespace troupe::engine
