// A family's part of a file's metadata, read and checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/formats/model_file.h"

namespace troupe::engine {

// Reads keys below the family's prefix ("llama."); the first failure sticks, later calls return something harmless.
// A key whose value has another type than asked for is a failure, not an absence.
class Metadata {
 public:
  Metadata(const ModelFile& file, const std::string& prefix) : file_(file), prefix_(prefix + ".") {}

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  // With the file's name in front.
  void fail(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error{code, file_.path() + ": " + what};
  }

  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  // These are what the file says, or `absent` where it says nothing.
  std::optional<std::int64_t> integer(const std::string& key);
  bool boolean(const std::string& key, bool absent);
  std::string string(const std::string& key, const std::string& absent = {});
  // From 1 to `max`; without `absent` there must be one, as below.
  std::uint32_t count(const std::string& key, std::int64_t max, std::optional<std::int64_t> absent = std::nullopt);
  // Numbers that stay what they are in float32: finite, and from its smallest normal one on, so that what divides by
  // one of them never divides by 0.
  double positive(const std::string& key, std::optional<double> absent = std::nullopt);
  double not_negative(const std::string& key, double absent);  // or 0; below 2^32

  // For a key that changes what a model computes, and that nothing here computes with: the file may leave it out or
  // hold one of these values. unsupported otherwise, with the key, its value and `what_is`: what is supported.
  void refuse_unless(const std::string& key, std::initializer_list<MetadataValue> harmless, const std::string& what_is);

 private:
  void fail_type(const std::string& key, const char* expected);

  const ModelFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

}  // namespace troupe::engine
