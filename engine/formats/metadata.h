// A family's part of a file's metadata, read and checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/formats/model_file.h"

namespace troupe::engine {

// Reads keys with the family's prefix ("llama."); the first error is kept, and later calls return harmless values. A
// value of another type than requested is an error, not an absent key.
class Metadata {
 public:
  Metadata(const ModelFile& file, const std::string& prefix) : file_(file), prefix_(prefix + ".") {}

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  // Puts the file's name before the message.
  void fail(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error{code, file_.path() + ": " + what};
  }

  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  // These return the file's value, or `absent` if the key is absent.
  std::optional<std::int64_t> integer(const std::string& key);
  bool boolean(const std::string& key, bool absent);
  std::string string(const std::string& key, const std::string& absent = {});
  // From 1 to `max`; without `absent` the key must exist, also for positive().
  std::uint32_t count(const std::string& key, std::int64_t max, std::optional<std::int64_t> absent = std::nullopt);
  // Numbers in the range of normal float32 values, so that they can be divided by after rounding to float32.
  double positive(const std::string& key, std::optional<double> absent = std::nullopt);
  double not_negative(const std::string& key, double absent);  // or 0; below 2^32

  // For a key that changes the model's computation in a way that is not implemented: it may be absent or have one of
  // the `harmless` values. Else fails as unsupported, with the key, its value and `what_is`: what is supported.
  void refuse_unless(const std::string& key, std::initializer_list<MetadataValue> harmless, const std::string& what_is);

 private:
  void fail_key(ErrorCode code, const std::string& key, const std::string& what);
  void fail_type(const std::string& key, const char* expected);

  const ModelFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

}  // namespace troupe::engine
