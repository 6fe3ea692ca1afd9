// Every metadata key that is read, in every type of GGUF: what docs/models.md says of it is what happens.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>

#include "tests/engine/gguf_copy.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/metadata_cases.h"

namespace troupe::test {
namespace {

using engine::MetadataValue;

// A scalar type of GGUF: its number, and a value in its bytes if it holds exactly that (float32: nearly).
struct Type {
  const char* name;
  std::uint32_t number;
  std::function<std::optional<std::string>(double)> bytes_of;  // empty: text
};

template <class T>
Type number_type(const char* name, std::uint32_t number) {
  return {name, number, [](double value) -> std::optional<std::string> {
            if constexpr (std::is_integral_v<T>) {
              const bool fits = value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                                value < std::ldexp(1.0, std::numeric_limits<T>::digits);
              if (!fits || value != std::floor(value)) return std::nullopt;
            }
            const T typed = static_cast<T>(value);
            std::string bytes(sizeof typed, '\0');
            std::memcpy(bytes.data(), &typed, sizeof typed);
            return bytes;
          }};
}

const std::vector<Type>& number_types() {
  static const std::vector<Type> all{number_type<std::uint8_t>("UINT8", 0),   number_type<std::int8_t>("INT8", 1),
                                     number_type<std::uint16_t>("UINT16", 2), number_type<std::int16_t>("INT16", 3),
                                     number_type<std::uint32_t>("UINT32", 4), number_type<std::int32_t>("INT32", 5),
                                     number_type<float>("FLOAT32", 6),        number_type<std::uint64_t>("UINT64", 10),
                                     number_type<std::int64_t>("INT64", 11),  number_type<double>("FLOAT64", 12)};
  return all;
}
constexpr std::uint32_t kBool = 7, kString = 8, kArray = 9;

std::string array_of(std::uint32_t type, const std::vector<std::string>& elements) {
  std::string bytes = GgufWriter::number(type, 4) + GgufWriter::number(elements.size(), 8);
  for (const std::string& each : elements) bytes += each;
  return bytes;
}

// One way to write a value in the file, and whether it is taken as the value, or refused (of a name: noted).
struct Written {
  std::string what;
  std::uint32_t type;
  std::string payload;
  bool is_taken;
};

class Samples {
 public:
  Samples(std::string takes, const MetadataValue& value) : takes_(std::move(takes)), value_(value) {
    add_nested();
    if (takes_ == "a text") {
      add_text();
    } else if (takes_ == "a list of texts") {
      add_texts_alone();
    } else if (takes_ == "a list of numbers" || takes_ == "a list of whole numbers") {
      add_list();
    } else {
      REQUIRE((takes_ == "a whole number" || takes_ == "a number" || takes_ == "true or false"));
      add_one();
    }
  }

  const std::vector<Written>& all() const { return all_; }

 private:
  void add(std::string what, std::uint32_t type, std::string payload, bool is_taken) {
    all_.push_back({std::move(what), type, std::move(payload), is_taken});
  }
  void add_array(const std::string& what, std::uint32_t type, const std::vector<std::string>& elements, bool is_taken) {
    add("a list of " + what, kArray, array_of(type, elements), is_taken);
  }
  void add_nested() {
    const std::string inner = array_of(4, {GgufWriter::number(1, 4)});
    add_array("lists", kArray, {inner, inner}, false);
  }
  void refuse_texts() {
    add("STRING", kString, GgufWriter::text("4"), false);
    add_array("STRING", kString, {GgufWriter::text("4"), GgufWriter::text("4")}, false);
  }
  void refuse_numbers() {
    for (const Type& type : number_types()) {
      add(type.name, type.number, *type.bytes_of(1), false);
      add_array(type.name, type.number, {*type.bytes_of(1), *type.bytes_of(1)}, false);
    }
    add("BOOL", kBool, std::string(1, '\1'), false);
    add_array("BOOL", kBool, {std::string(1, '\1')}, false);
  }

  void add_text() {
    const std::string text = GgufWriter::text(std::get<std::string>(value_));
    refuse_numbers();
    add("STRING", kString, text, true);
    add_array("one STRING", kString, {text}, true);
    add_array("equal STRINGs", kString, {text, text}, true);
    add_array("STRINGs that differ", kString, {text, GgufWriter::text("?")}, false);
    add_array("no STRING", kString, {}, false);
  }
  void add_texts_alone() {
    std::vector<std::string> texts;
    for (const std::string& each : std::get<std::vector<std::string>>(value_)) texts.push_back(GgufWriter::text(each));
    refuse_numbers();
    add("STRING", kString, texts.front(), false);
    add_array("STRING", kString, texts, true);
  }

  double number() const {
    if (const auto* integer = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*integer);
    if (const auto* flag = std::get_if<bool>(&value_)) return *flag ? 1 : 0;
    return std::get<double>(value_);
  }
  void add_one() {
    refuse_texts();
    const double value = number();
    const bool is_flag = takes_ == "true or false";
    for (const Type& type : number_types()) {
      const auto bytes = type.bytes_of(value);
      if (!bytes) continue;
      add(type.name, type.number, *bytes, true);
      add_array("one " + std::string(type.name), type.number, {*bytes}, true);
      add_array("equal " + std::string(type.name), type.number, {*bytes, *bytes, *bytes}, true);
      if (const auto other = type.bytes_of(value + 1))
        add_array(type.name + std::string(" that differ"), type.number, {*bytes, *other}, false);
      add_array("no " + std::string(type.name), type.number, {}, false);
      if (is_flag) add(type.name + std::string(" 2"), type.number, *type.bytes_of(2), false);
      const auto half = type.bytes_of(0.5), nothing = type.bytes_of(std::nan(""));
      if (half && takes_ != "a number") add(type.name + std::string(" 0.5"), type.number, *half, false);
      if (nothing) add(type.name + std::string(" nan"), type.number, *nothing, false);
    }
    if (takes_ == "a whole number") add("UINT64 2^64 - 1", 10, std::string(8, '\xff'), false);
    add("BOOL", kBool, std::string(1, is_flag && value == 0 ? '\0' : '\1'), is_flag);
  }

  // Of numbers; a model's value may be one that stands alone.
  void add_list() {
    refuse_texts();
    add("BOOL", kBool, std::string(1, '\1'), false);
    std::vector<double> values;
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value_))
      values.assign(integers->begin(), integers->end());
    else if (const auto* numbers = std::get_if<std::vector<double>>(&value_))
      values = *numbers;
    else
      values = {number()};
    for (const Type& type : number_types()) {
      std::vector<std::string> elements;
      for (const double each : values)
        if (const auto bytes = type.bytes_of(each)) elements.push_back(*bytes);
      if (elements.size() != values.size()) continue;
      add_array(type.name, type.number, elements, true);
      if (values.size() == 1) add(type.name, type.number, elements.front(), true);
      const auto half = type.bytes_of(0.5);
      if (!half || takes_ == "a list of numbers") continue;
      elements.front() = *half;
      add_array(std::string(type.name) + " with 0.5", type.number, elements, false);
    }
  }

  std::string takes_;
  MetadataValue value_;
  std::vector<Written> all_;
};

std::string family_of(const MetadataFile& file) { return std::get<std::string>(*file.find("general.architecture")); }

// The model of a case, with all that the key needs, but without the key.
MetadataFile model_without_key(const MetadataCase& each) {
  MetadataFile file = metadata_model(each.model);
  const std::string family = family_of(file);
  for (const auto& [key, value] : each.with) file[key_in(key, family)] = value;
  file.remove(key_in(each.key, family));
  return file;
}

std::string verdict_of(const MetadataFile& file, const std::string& key, const Written& written) {
  GgufWriter w;
  copy_metadata(file, w);
  w.add_raw(key, written.type, written.payload);
  w.add_tensor("other", {1}, 0, std::string(4, '\0'));
  const TemporaryFile on_disk(w.bytes());
  const auto opened = engine::open_gguf(on_disk.path());
  return opened ? metadata_verdict(**opened) : "refused: " + opened.error().message;
}

const std::map<std::string, std::string>& table() {
  static const auto all = read_metadata_table(TROUPE_DOCS "/models.md");
  return all;
}

}  // namespace

TEST_CASE("a metadata key of any type of GGUF is taken or refused as docs/models.md says") {
  for (const MetadataCase& each : metadata_cases()) {
    INFO(each.key << " of " << each.model);
    REQUIRE(table().contains(each.key));
    const MetadataFile without = model_without_key(each);
    const std::string key = key_in(each.key, family_of(metadata_model(each.model)));
    MetadataFile with = without;
    with[key] = each.value;
    const std::string expected = metadata_verdict(with);
    CHECK(expected.find(key) == std::string::npos);
    const Samples samples(table().at(each.key), each.value);
    for (const Written& written : samples.all()) {
      const std::string verdict = verdict_of(without, key, written);
      INFO(written.what << ": " << verdict);
      INFO("the value itself: " << expected);
      if (written.is_taken) {
        CHECK(verdict == expected);
      } else {
        CHECK(verdict.find(key) != std::string::npos);
        CHECK(verdict.starts_with("refused") == (each.key != "general.name"));
      }
    }
  }
}

TEST_CASE("the table of metadata keys in docs/models.md has those that are read, and no others") {
  std::set<std::string> read;
  const auto note = [&](const MetadataFile& file) {
    const std::string prefix = family_of(file) + ".";
    const RecordedFile recorded(file);
    (void)metadata_verdict(recorded);
    for (const std::string& key : recorded.asked())
      read.insert(key.starts_with(prefix) ? std::string(kArchitecturePrefix) + key.substr(prefix.size()) : key);
  };
  for (const std::string& model : metadata_model_names()) {
    const MetadataFile file = metadata_model(model);
    INFO(model << ": " << metadata_verdict(file));
    CHECK(metadata_verdict(file).starts_with("taken"));
    note(file);
  }
  std::set<std::string> listed, tried;
  for (const MetadataCase& each : metadata_cases()) {
    MetadataFile file = model_without_key(each);
    file[key_in(each.key, family_of(metadata_model(each.model)))] = each.value;
    note(file);
    tried.insert(each.key);
  }
  read.insert("general.alignment");  // when a file is opened
  for (const auto& [key, takes] : table()) listed.insert(key);
  CHECK(read == listed);
  CHECK(tried == listed);
}

}  // namespace troupe::test
