// A family's part of a file's metadata, read and checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/model_file.h"

namespace troupe::engine {

// Reads keys below the family's prefix ("llama."); the first failure sticks, later calls return something harmless.
class Metadata {
 public:
  Metadata(const ModelFile& file, const std::string& prefix) : file_(file), prefix_(prefix + ".") {}

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  void fail(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error{code, file_.path() + ": " + what};
  }

  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  // Nothing where it is no whole number.
  std::optional<std::int64_t> integer(const std::string& key) const { return file_.integer(prefix_ + key); }

  std::uint32_t count(const std::string& key, std::int64_t max, std::optional<std::int64_t> absent = std::nullopt) {
    const std::string full = prefix_ + key;
    const auto value = has(key) ? file_.integer(full) : absent;
    if (!value) {
      const bool per_layer = file_.integers(full) != nullptr;
      fail(per_layer ? ErrorCode::unsupported : ErrorCode::bad_model,
           per_layer ? "'" + full + "' differs from layer to layer, which is not supported"
                     : "'" + full + "' is missing or not a whole number");
      return 1;
    }
    if (*value < 1 || *value > max) {
      fail(ErrorCode::bad_model,
           "'" + full + "' is " + std::to_string(*value) + "; it must be from 1 to " + std::to_string(max));
      return 1;
    }
    return static_cast<std::uint32_t>(*value);
  }

  double positive(const std::string& key, std::optional<double> absent = std::nullopt) {
    const auto value = has(key) ? file_.number(prefix_ + key) : absent;
    if (!value || !std::isfinite(*value) || *value <= 0) {
      fail(ErrorCode::bad_model, "'" + prefix_ + key + "' is " + (value ? std::to_string(*value) : "missing") +
                                     "; it must be a finite number above 0");
      return 1;
    }
    return *value;
  }

  double not_negative(const std::string& key, double absent) {
    const auto value = has(key) ? file_.number(prefix_ + key) : absent;
    if (!value || !std::isfinite(*value) || *value < 0 || *value > 0xffffffffu) {
      fail(ErrorCode::bad_model, "'" + prefix_ + key + "' must be a number from 0 on");
      return absent;
    }
    return *value;
  }

  std::string string(const std::string& key) const {
    const std::string* text = file_.string(prefix_ + key);
    return text ? *text : std::string();
  }

 private:
  const ModelFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

}  // namespace troupe::engine
