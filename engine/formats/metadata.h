// Metadata of a model file, read and checked: every key that the engine uses goes through here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/result.h"
#include "engine/formats/model_file.h"

namespace troupe::engine {

// Reads keys with a prefix: a family's ("llama."), that of a vocabulary ("tokenizer.ggml."), or another. The first
// error is kept, and later calls return harmless values.
//
// A value of another type than requested is taken if it is exactly a value of that type: whole floats for integers,
// integers for floats, 0 and 1 for flags; and a list whose entries are all the same for one value, as some converters
// write one for each layer. Any other value is an error that names the key, what was found and what is wanted; it is
// never read as an absent key.
class Metadata {
 public:
  Metadata(const ModelFile& file, const std::string& prefix)
      : file_(file), prefix_(prefix + "."), place_(prefix.starts_with("tokenizer") ? "at index" : "in layer") {}

  bool failed() const { return error_.has_value(); }
  Error error() const { return {error_->code, file_.path() + ": " + error_->message}; }
  // The message of error() without the file's name.
  const std::string& what() const { return error_->message; }
  void fail(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error{code, what};
  }
  // Puts the key before the message, too.
  void fail_key(ErrorCode code, const std::string& key, const std::string& what);

  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  // These return the file's value, or `absent` if the key is absent.
  std::optional<std::int64_t> integer(const std::string& key);
  bool boolean(const std::string& key, bool absent);
  std::string string(const std::string& key, const std::string& absent = {});
  // Lists; nothing if the key is absent. One value is a list of one.
  std::optional<std::vector<std::int64_t>> integers(const std::string& key);
  std::optional<std::vector<double>> numbers(const std::string& key);
  // As numbers(), of which integers are those that float32 has exactly.
  std::optional<std::vector<double>> floats(const std::string& key);
  // Borrowed from the file; null if the key is absent.
  const std::vector<std::string>* strings(const std::string& key);
  // One number for each layer; nothing if the key is absent or has one value for all, also as a list of equal ones. A
  // list that differs must have `num_layers` entries.
  std::optional<std::vector<double>> by_layer(const std::string& key, std::uint32_t num_layers);
  std::optional<std::vector<double>> floats_by_layer(const std::string& key, std::uint32_t num_layers);
  // One count for each layer: as count() for all of them, or from 0 to `max` in a list of values that differ.
  std::vector<std::uint32_t> counts_by_layer(const std::string& key, std::uint32_t num_layers, std::int64_t max,
                                             std::optional<std::int64_t> absent = std::nullopt);
  // One flag for each layer, also if all are equal; nothing if the key is absent or a number for all.
  std::optional<std::vector<bool>> flags_by_layer(const std::string& key, std::uint32_t num_layers);
  // From 1 to `max`; without `absent` the key must exist, also for positive().
  std::uint32_t count(const std::string& key, std::int64_t max, std::optional<std::int64_t> absent = std::nullopt);
  // Numbers in the range of normal float32 values, so that they can be divided by after rounding to float32; integers
  // only those that float32 has exactly.
  double positive(const std::string& key, std::optional<double> absent = std::nullopt);
  double require_positive(const std::string& key, double value);  // a value of the key, if it is such a number
  double not_negative(const std::string& key, double absent);     // or 0; below 2^32

  // For a key that changes the model's computation in a way that is not implemented: it may be absent or have one of
  // the `harmless` values. Else fails as unsupported, with the key, its value and `what_is`: what is supported.
  void refuse_unless(const std::string& key, std::initializer_list<MetadataValue> harmless, const std::string& what_is);

 private:
  void fail_type(const std::string& key, const char* expected);
  bool require_float32(const std::string& key, const MetadataValue& value);
  std::optional<double> number(const std::string& key);
  bool has_one_for_each(const std::string& key, std::size_t size, std::uint32_t num_layers);
  // The value as Convert takes it, from one value or a list of equal ones; nothing, and an error, if it is none.
  template <class Convert>
  auto one(const std::string& key, const char* expected, Convert convert)
      -> decltype(convert(std::declval<const MetadataValue&>()));

  const ModelFile& file_;
  std::string prefix_;
  const char* place_;  // what the index of an entry is: lists of families are for their layers
  std::optional<Error> error_;
};

}  // namespace troupe::engine
