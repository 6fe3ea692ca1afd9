// GGUF, versions 2 and 3: header, metadata, tensor directory, then aligned tensor data.
// Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "config/printable.h"
#include "engine/formats/gguf_part.h"
#include "engine/formats/mapped_file.h"
#include "engine/formats/metadata.h"
#include "engine/formats/model_file.h"
#include "engine/formats/split_gguf.h"

namespace troupe::engine {
namespace {

// Limits on a file's sizes, as kMaxTensors. Values beyond those of strings, arrays and all metadata are passed over
// (SkippedValue).
constexpr std::uint64_t kMaxKeyBytes = 1u << 16;
constexpr std::uint64_t kMaxTensorNameBytes = 256;
constexpr std::uint64_t kMaxStringBytes = 16u << 20;
constexpr std::uint64_t kMaxArrayElements = 16u << 20;
constexpr int kMaxArrayDepth = 8;
constexpr std::uint64_t kMaxMetadataMiB = 256;  // of all metadata in memory
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxAlignment = 1u << 20;
constexpr std::uint64_t kDefaultAlignment = 32;

enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
// Bytes of a value in the file, by type; of a string or array the minimum.
constexpr std::uint8_t kMinBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr std::uint32_t kNumValueTypes = std::size(kMinBytes);

std::size_t min_bytes(ValueType type) { return kMinBytes[static_cast<std::uint32_t>(type)]; }

std::string in_quotes(std::string_view text) { return fmt::format("'{}'", Printable(text)); }

// Reads little-endian values one after another; the first error is kept, with its offset.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

  void fail(const std::string& what) {
    if (!failed()) failure_ = fmt::format("at byte {}: {}", offset_, what);
  }

  template <class T>
  T number(const char* what) {
    T value{};
    read(&value, sizeof value, what);
    return value;
  }
  // An integer of `bytes` bytes, without its sign.
  std::uint64_t bits(std::size_t bytes, const char* what) {
    std::uint64_t value = 0;
    read(&value, bytes, what);
    return value;
  }

  // Charges `count` values against the limit for all metadata, before they are allocated: a sparse file can claim any
  // count. False: they are beyond it, and are not kept.
  bool charge(std::uint64_t count, std::uint64_t bytes_each) {
    const std::uint64_t bytes = count * bytes_each;  // both far below 2^32
    if (bytes > (kMaxMetadataMiB << 20) - charged_) return false;
    charged_ += bytes;
    return true;
  }
  // Passes over `count` values of this many bytes each.
  void skip(std::uint64_t count, std::uint64_t bytes_each, const char* what) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, bytes_each, &bytes)) bytes = std::numeric_limits<std::uint64_t>::max();
    if (has(bytes, what)) offset_ += bytes;
  }

  std::string string(const char* what, std::uint64_t max_bytes) {
    const auto length = number<std::uint64_t>(what);
    if (failed()) return {};
    if (length > max_bytes) {
      fail(fmt::format("{} is {} bytes long, at most {} are allowed", what, length, max_bytes));
      return {};
    }
    if (!has(length, what)) return {};
    if (!charge(1, length + sizeof(std::string))) {
      fail(fmt::format("{} is beyond the {} MiB that all metadata may take", what, kMaxMetadataMiB));
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data() + offset_), length);
    offset_ += length;
    return text;
  }

 private:
  void read(void* to, std::size_t count, const char* what) {
    if (!has(count, what)) return;
    std::memcpy(to, bytes_.data() + offset_, count);
    offset_ += count;
  }
  bool has(std::uint64_t count, const char* what) {
    if (failed()) return false;
    if (count <= remaining()) return true;
    fail(fmt::format("{} needs {} bytes, but the file ends after {} more", what, count, remaining()));
    return false;
  }

  std::span<const std::byte> bytes_;
  std::uint64_t offset_ = 0;
  std::uint64_t charged_ = 0;
  std::string failure_;
};

// Reads an integer of any width; for a boolean 0 or 1.
std::int64_t read_integer(Reader& in, ValueType type) {
  const std::uint64_t bits = in.bits(min_bytes(type), "a metadata value");
  const int unused = 64 - 8 * static_cast<int>(min_bytes(type));
  if (type == ValueType::i8 || type == ValueType::i16 || type == ValueType::i32 || type == ValueType::i64)
    return static_cast<std::int64_t>(bits << unused) >> unused;  // extends the sign
  if (type == ValueType::boolean && bits > 1) in.fail(fmt::format("a boolean holds {}; it must be 0 or 1", bits));
  return static_cast<std::int64_t>(bits);
}

// Integers; floats if one is above what int64 has.
MetadataValue read_unsigned(Reader& in, std::uint64_t count) {
  std::vector<std::uint64_t> values;
  values.reserve(count);
  while (values.size() < count && !in.failed()) values.push_back(in.number<std::uint64_t>("a metadata value"));
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (std::any_of(values.begin(), values.end(), [](std::uint64_t value) { return value > kMax; }))
    return std::vector<double>(values.begin(), values.end());
  return std::vector<std::int64_t>(values.begin(), values.end());
}

bool is_float(ValueType type) { return type == ValueType::f32 || type == ValueType::f64; }

double read_float(Reader& in, ValueType type) {
  return type == ValueType::f32 ? in.number<float>("a metadata value") : in.number<double>("a metadata value");
}

ValueType read_value_type(Reader& in) {
  const auto number = in.number<std::uint32_t>("a metadata type");
  if (!in.failed() && number >= kNumValueTypes)
    in.fail(fmt::format("metadata type {} does not exist (0 to {} do)", number, kNumValueTypes - 1));
  return static_cast<ValueType>(number);
}

// Reads `count` values with read().
template <class Read>
auto read_elements(Reader& in, std::uint64_t count, Read read) {
  std::vector<decltype(read())> values;
  values.reserve(count);
  while (values.size() < count && !in.failed()) values.push_back(read());
  return values;
}

void skip_value(Reader& in, ValueType type, int depth);

// Passes over the elements of an array.
void skip_elements(Reader& in, ValueType type, std::uint64_t count, int depth) {
  if (type != ValueType::string && type != ValueType::array) return in.skip(count, min_bytes(type), "an array");
  for (std::uint64_t i = 0; i < count && !in.failed(); ++i) skip_value(in, type, depth);
}

struct ArrayHead {
  ValueType type = ValueType::u8;
  std::uint64_t count = 0;
};

// A count that the rest of the file has no room for is an error.
ArrayHead read_array_head(Reader& in) {
  const ArrayHead head{read_value_type(in), in.number<std::uint64_t>("an array's length")};
  if (!in.failed() && head.count > in.remaining() / min_bytes(head.type))
    in.fail(fmt::format("an array of {} elements does not fit the {} bytes left", head.count, in.remaining()));
  return head;
}

void skip_value(Reader& in, ValueType type, int depth) {
  if (type == ValueType::array) {
    if (depth == kMaxArrayDepth) return in.fail(fmt::format("arrays within arrays, more than {} deep", kMaxArrayDepth));
    const ArrayHead head = read_array_head(in);
    if (!in.failed()) skip_elements(in, head.type, head.count, depth + 1);
  } else if (type == ValueType::string) {
    const auto length = in.number<std::uint64_t>("a string's length");
    if (!in.failed()) in.skip(length, 1, "a string");
  } else {
    in.skip(1, min_bytes(type), "a metadata value");
  }
}

// The strings; nothing, with the reader where it was, if they are not to be kept.
std::optional<std::vector<std::string>> read_strings(Reader& in, std::uint64_t count) {
  const Reader before = in;
  std::vector<std::string> values;  // not reserved: they are charged one by one
  while (values.size() < count && !in.failed()) values.push_back(in.string("a string in an array", kMaxStringBytes));
  if (!in.failed()) return values;
  in = before;
  return std::nullopt;
}

MetadataValue read_array(Reader& in) {
  const ArrayHead head = read_array_head(in);
  const ValueType type = head.type;
  const std::uint64_t count = head.count;
  if (in.failed()) return {};
  if (type == ValueType::string && count <= kMaxArrayElements)
    if (auto strings = read_strings(in, count)) return *std::move(strings);
  if (type == ValueType::array || type == ValueType::string || count > kMaxArrayElements ||
      !in.charge(count, sizeof(std::int64_t))) {
    skip_elements(in, type, count, 1);
    return SkippedValue{fmt::format("an array of {} {}, which is not kept", count,
                                    type == ValueType::array    ? "arrays"
                                    : type == ValueType::string ? "strings"
                                                                : "numbers")};
  }
  if (is_float(type)) return read_elements(in, count, [&] { return read_float(in, type); });
  if (type == ValueType::u64) return read_unsigned(in, count);
  return read_elements(in, count, [&] { return read_integer(in, type); });
}

MetadataValue read_value(Reader& in) {
  const ValueType type = read_value_type(in);
  if (in.failed()) return {};
  if (type == ValueType::array) return read_array(in);
  if (type == ValueType::string) {
    const Reader before = in;
    std::string text = in.string("a metadata string", kMaxStringBytes);
    if (!in.failed()) return text;
    in = before;
    skip_value(in, type, 0);
    return SkippedValue{"a string that is too long to be kept"};
  }
  if (type == ValueType::boolean) return read_integer(in, type) != 0;
  if (is_float(type)) return read_float(in, type);
  if (type == ValueType::u64) {
    const auto value = in.number<std::uint64_t>("a metadata value");
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return static_cast<std::int64_t>(value);
    return static_cast<double>(value);
  }
  return read_integer(in, type);
}

// A tensor's entry in the directory, before its offset in the file is known.
struct Entry {
  TensorInfo info;
  std::uint64_t offset = 0;  // from the beginning of the tensor data
  std::uint64_t size = 0;    // bytes, with the type's tail
};

// The size of the tensor in bytes (0: it has no elements), or nothing after in.fail().
std::optional<std::uint64_t> checked_size(Reader& in, const TensorInfo& tensor) {
  const kernels::WeightTypeInfo& type = tensor.file_type();
  std::uint64_t size = 1;  // in elements, then bytes
  bool overflow = false;
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const std::uint64_t extent : tensor.shape) {
    overflow |= __builtin_mul_overflow(size, extent, &size);
  }
  if (tensor.columns() % type.group_size != 0) {
    in.fail(fmt::format("tensor {}: its rows of {} are not a multiple of {}'s group of {}", in_quotes(tensor.name),
                        tensor.columns(), type.name, type.group_size));
  }
  overflow |= __builtin_mul_overflow(size / type.group_size, type.group_bytes, &size);
  overflow |= __builtin_add_overflow(size, type.tail_bytes, &size);
  if (overflow) in.fail(fmt::format("tensor {} is larger than any file", in_quotes(tensor.name)));
  return in.failed() ? std::nullopt : std::optional(size);
}

std::string known_types() {
  std::string names;
  for (const auto& type : kernels::weight_types()) names.append(names.empty() ? "" : " ").append(type.name);
  for (const auto* type : kernels::converted_types()) names.append(" ").append(type->info.name);
  return names;
}

class GgufFile final : public GgufPart {
 public:
  GgufFile(std::string path, std::unique_ptr<MappedFile> mapping)
      : path_(std::move(path)), mapping_(std::move(mapping)), in_(mapping_->bytes()) {}

  // Reads everything up to the directory of tensors.
  Status read_head();
  Status read_tensors(std::uint64_t num_layers) override { return unless_changed(read_directory(num_layers)); }

  const GgufHeader& header() const override { return header_; }
  std::span<const std::byte> bytes() const override { return mapping_->bytes(); }
  void forget_metadata() override { metadata_.clear(); }
  const std::string& path() const override { return path_; }
  std::uint64_t file_bytes() const override { return mapping_->bytes().size(); }
  std::uint64_t content_hash() const override { return content_hash_; }
  FileStamp stamp() const override { return mapping_->stamp(); }
  Status check_unchanged() const override {
    const Status unchanged = mapping_->check_unchanged();
    return unchanged ? unchanged : bad(unchanged.error().message);
  }
  const std::map<std::string, MetadataValue, std::less<>>& metadata() const override { return metadata_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::vector<std::string>& unread_tensors() const override { return unread_; }
  const TensorInfo* find_tensor(std::string_view name) const override {
    const auto it = tensor_index_.find(name);
    return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
  }
  void drop_pages(std::span<const std::byte> bytes) const override { mapping_->drop_pages(bytes); }

 private:
  Error bad(const std::string& what) const { return {ErrorCode::bad_model, path_ + ": " + what}; }
  // What was read, unless the file was cut off meanwhile: then it may be anything.
  Status unless_changed(Status read) const {
    const Status unchanged = check_unchanged();
    return unchanged ? read : unchanged;
  }
  Status read_all_of_head();
  Status read_counts(Reader& in);
  Status read_metadata(Reader& in);
  Status read_directory(std::uint64_t num_layers);
  Result<std::optional<Entry>> read_entry(Reader& in);
  Result<Entry> check_entry(Reader in, Entry entry, std::uint32_t type_number) const;
  Result<std::uint64_t> alignment() const;
  Status place_tensors(std::vector<Entry> entries);
  Status split_tail(TensorInfo& tensor) const;

  std::string path_;
  std::unique_ptr<MappedFile> mapping_;
  Reader in_;
  GgufHeader header_;
  std::map<std::string, MetadataValue, std::less<>> metadata_;
  std::uint64_t num_layers_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> unread_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
  std::uint64_t content_hash_ = 0;
};

Status GgufFile::read_head() { return unless_changed(read_all_of_head()); }

Status GgufFile::read_all_of_head() {
  if (Status read = read_counts(in_); !read) return read;
  header_.metadata_begin = in_.offset();
  if (Status read = read_metadata(in_); !read) return read;
  header_.metadata_end = in_.offset();
  const auto align = alignment();
  if (!align) return align.error();
  header_.alignment = *align;
  return Ok{};
}

Status GgufFile::read_directory(std::uint64_t num_layers) {
  num_layers_ = num_layers;
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < header_.num_tensors; ++i) {
    auto entry = read_entry(in_);
    if (!entry) return entry.error();
    header_.entry_ends.push_back(in_.offset());
    if (!*entry) continue;
    if ((*entry)->info.converted_from) header_.converted_types.push_back((*entry)->info.converted_from);
    entries.push_back(std::move(**entry));
  }
  content_hash_ = join_types(XXH3_64bits_withSeed(bytes().data(), in_.offset(), file_bytes()), header_.converted_types);
  header_.data_begin = (in_.offset() + header_.alignment - 1) / header_.alignment * header_.alignment;
  return place_tensors(std::move(entries));
}

Status GgufFile::read_counts(Reader& in) {
  const auto magic = in.number<std::array<char, 4>>("the magic number");
  if (in.failed()) return bad(fmt::format("is not a GGUF file: it has {} bytes", file_bytes()));
  if (std::string_view(magic.data(), magic.size()) != "GGUF") {
    return bad(fmt::format("is not a GGUF file: it begins with {} instead of 'GGUF'",
                           in_quotes({magic.data(), magic.size()})));
  }
  const auto version = in.number<std::uint32_t>("the version");
  if (!in.failed() && (version == 0x02000000u || version == 0x03000000u))
    return Error{ErrorCode::unsupported, path_ + ": is a big-endian GGUF file; convert it to little-endian"};
  if (!in.failed() && version != 2 && version != 3) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: is GGUF version {}; versions 2 and 3 are supported", path_, version)};
  }
  header_.num_tensors = in.number<std::uint64_t>("the number of tensors");
  header_.num_metadata = in.number<std::uint64_t>("the number of metadata entries");
  if (in.failed()) return bad(in.failure());
  if (header_.num_tensors > kMaxTensors)
    return bad(fmt::format("claims {} tensors; at most {} are allowed", header_.num_tensors, kMaxTensors));
  if (header_.num_metadata > kMaxMetadata)
    return bad(fmt::format("claims {} metadata entries; at most {} are allowed", header_.num_metadata, kMaxMetadata));
  return Ok{};
}

Status GgufFile::read_metadata(Reader& in) {
  const std::uint64_t count = header_.num_metadata;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = in.offset();
    std::string key = in.string("a metadata key", kMaxKeyBytes);
    if (!in.failed() && key.empty()) in.fail(fmt::format("metadata entry {} has an empty key", i));
    MetadataValue value = in.failed() ? MetadataValue{} : read_value(in);
    if (in.failed())
      return bad(fmt::format("metadata entry {} of {} {}: {}", i + 1, count, in_quotes(key), in.failure()));
    if (key.starts_with("split.")) header_.split_keys.push_back({begin, in.offset()});
    if (!metadata_.emplace(key, std::move(value)).second)
      return bad("has two metadata entries named " + in_quotes(key));
  }
  return Ok{};
}

Result<std::uint64_t> GgufFile::alignment() const {
  if (!find("general.alignment")) return kDefaultAlignment;
  Metadata keys(*this, "general");
  const auto value = keys.integer("alignment");
  if (keys.failed()) return keys.error();
  if (*value < 1 || static_cast<std::uint64_t>(*value) > kMaxAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(*value)))
    return bad(fmt::format("general.alignment must be a power of two up to {}", kMaxAlignment));
  return static_cast<std::uint64_t>(*value);
}

// Nothing: it cannot be read, and need not be.
Result<std::optional<Entry>> GgufFile::read_entry(Reader& in) {
  Entry entry;
  entry.info.name = in.string("a tensor name", kMaxTensorNameBytes);
  const auto num_dimensions = in.number<std::uint32_t>("a tensor's number of dimensions");
  if (!in.failed() && (num_dimensions == 0 || num_dimensions > kMaxDimensions)) {
    in.fail(fmt::format("tensor {} has {} dimensions; 1 to {} are allowed", in_quotes(entry.info.name), num_dimensions,
                        kMaxDimensions));
  }
  for (std::uint32_t i = 0; i < num_dimensions && !in.failed(); ++i)
    entry.info.shape.push_back(in.number<std::uint64_t>("a tensor's dimension"));
  const auto type_number = in.number<std::uint32_t>("a tensor's type");
  entry.offset = in.number<std::uint64_t>("a tensor's offset");
  if (in.failed()) return bad(in.failure());
  const std::string name = entry.info.name;
  auto checked = check_entry(in, std::move(entry), type_number);
  if (checked) return std::optional(*std::move(checked));
  if (may_be_computed(name, num_layers_)) return checked.error();
  unread_.push_back(name);
  return std::optional<Entry>();
}

// in: as it is behind the entry.
Result<Entry> GgufFile::check_entry(Reader in, Entry entry, std::uint32_t type_number) const {
  const auto type = kernels::weight_type_of_gguf(type_number);
  entry.info.converted_from = type ? nullptr : kernels::converted_type_of_gguf(type_number);
  if (!type && !entry.info.converted_from) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: tensor {} has weight type {}, which is not supported; use one of {}", path_,
                             in_quotes(entry.info.name), type_number, known_types())};
  }
  entry.info.type = type ? *type : entry.info.converted_from->info.type;
  if (entry.offset % header_.alignment != 0) {
    in.fail(fmt::format("tensor {} begins at {}, which is not a multiple of {}", in_quotes(entry.info.name),
                        entry.offset, header_.alignment));
  }
  const auto size = checked_size(in, entry.info);
  if (!size) return bad(in.failure());
  entry.size = *size;
  return entry;
}

// Reads the scale of all weights from the bytes after them, if the type has such a tail.
Status GgufFile::split_tail(TensorInfo& tensor) const {
  const std::uint32_t tail_bytes = tensor.file_type().tail_bytes;
  if (tail_bytes == 0) return Ok{};
  const auto tail = tensor.bytes.last(tail_bytes);
  std::memcpy(&tensor.scale, tail.data(), sizeof tensor.scale);
  if (!std::isfinite(tensor.scale))
    return bad(fmt::format("tensor {} has a scale that is not finite", in_quotes(tensor.name)));
  tensor.bytes = tensor.bytes.first(tensor.bytes.size() - tail_bytes);
  return Ok{};
}

Status GgufFile::place_tensors(std::vector<Entry> entries) {
  const std::uint64_t data_begin = header_.data_begin;
  const std::uint64_t data_bytes = data_begin <= file_bytes() ? file_bytes() - data_begin : 0;
  // A tensor without elements is as if it were not there.
  std::erase_if(entries, [](const Entry& entry) { return entry.size == 0; });
  std::erase_if(entries, [&](const Entry& entry) {
    const bool is_cut_off = entry.size > data_bytes || entry.offset > data_bytes - entry.size;
    const bool is_unread = is_cut_off && !may_be_computed(entry.info.name, num_layers_);
    if (is_unread) unread_.push_back(entry.info.name);
    return is_unread;
  });
  for (Entry& entry : entries) {
    if (entry.size > data_bytes || entry.offset > data_bytes - entry.size) {
      return bad(fmt::format(
          "tensor {} needs bytes {} to {} of the tensor data, but the file has {}; is the download complete?",
          in_quotes(entry.info.name), entry.offset, entry.offset + entry.size, data_bytes));
    }
    entry.info.bytes = mapping_->bytes().subspan(data_begin + entry.offset, entry.size);
    if (auto split = split_tail(entry.info); !split) {
      if (may_be_computed(entry.info.name, num_layers_)) return split;
      unread_.push_back(entry.info.name);
      continue;
    }
    if (!tensor_index_.emplace(entry.info.name, tensors_.size()).second)
      return bad("has two tensors named " + in_quotes(entry.info.name));
    tensors_.push_back(entry.info);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i - 1].offset + entries[i - 1].size > entries[i].offset) {
      return bad(fmt::format("tensors {} and {} lie over each other", in_quotes(entries[i - 1].info.name),
                             in_quotes(entries[i].info.name)));
    }
  }
  return Ok{};
}

}  // namespace

bool may_be_computed(std::string_view name, std::uint64_t num_layers) {
  constexpr std::string_view kLayer = "blk.";
  if (name.starts_with(kLayer)) {
    name.remove_prefix(kLayer.size());
    std::uint64_t layer = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const bool is_number = problem == std::errc() && end != name.data() + name.size() && *end == '.';
    return is_number && layer < num_layers;
  }
  constexpr std::string_view kBesideLayers[] = {
      "token_embd.",  "token_embd_norm.", "token_types.",       "position_embd.",     "output.",
      "output_norm.", "rope_freqs.",      "rope_factors_long.", "rope_factors_short."};
  return std::any_of(std::begin(kBesideLayers), std::end(kBesideLayers),
                     [&](std::string_view each) { return name.starts_with(each); });
}

std::uint64_t num_layers_of(const ModelFile& file) {
  const auto* const architecture = file.find("general.architecture");
  const auto* const name = architecture ? std::get_if<std::string>(architecture) : nullptr;
  if (!name) return std::numeric_limits<std::uint64_t>::max();
  Metadata meta(file, *name);
  const std::int64_t layers = meta.integer("block_count").value_or(0);
  const std::int64_t further = meta.integer("nextn_predict_layers").value_or(0);
  if (layers <= 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(further > 0 && further < layers ? layers - further : layers);
}

std::uint64_t join_types(std::uint64_t hash, std::span<const kernels::ConvertedType* const> types) {
  for (const kernels::ConvertedType* const type : types) {
    const std::string meaning =
        fmt::format("{}{}{}{}{}", type->info.name, '\0', type->version, '\0', kernels::info(type->info.type).name);
    hash = XXH3_64bits_withSeed(meaning.data(), meaning.size(), hash);
  }
  return hash;
}

Result<std::shared_ptr<GgufPart>> open_gguf_part(const std::string& path) {
  auto mapping = MappedFile::open(path);
  if (!mapping) return mapping.error();
  auto file = std::make_shared<GgufFile>(path, std::move(*mapping));
  if (const Status read = file->read_head(); !read) return read.error();
  return std::shared_ptr<GgufPart>(std::move(file));
}

Result<std::shared_ptr<const ModelFile>> open_gguf(const std::string& path) {
  auto file = open_gguf_part(path);
  if (!file) return file.error();
  const auto place = split_place(**file);
  if (!place) return place.error();
  if (place->count > 1) return open_split(*std::move(file), *place);
  if (const Status read = (*file)->read_tensors(num_layers_of(**file)); !read) return read.error();
  return std::shared_ptr<const ModelFile>(*std::move(file));
}

}  // namespace troupe::engine
