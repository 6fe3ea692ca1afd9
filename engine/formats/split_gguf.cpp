#include "engine/formats/split_gguf.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "config/printable.h"
#include "engine/formats/metadata.h"
#include "engine/formats/split_name.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kOffsetBytes = sizeof(std::uint64_t);  // of a tensor, at the end of its entry
constexpr std::size_t kVersionEnd = 8;                       // magic number and version; then come the counts

Error bad_part(const ModelFile& file, const std::string& what) {
  return {ErrorCode::bad_model, fmt::format("{}: {}", file.path(), what)};
}

std::string part_file(const ModelFile& file) { return std::filesystem::path(file.path()).filename().string(); }

std::uint64_t padded_to(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// The name that a part has, if it says what the metadata say.
Result<SplitName> name_of_part(const ModelFile& file, const SplitPlace& place) {
  auto name = parse_split_name(file.path());
  if (name && name->number == place.index + 1 && name->count == place.count) return *std::move(name);
  return bad_part(file,
                  fmt::format("is part {0} of {1} of a split model, and must be called NAME-{0:05}-of-{1:05}.gguf; "
                              "give all parts the names that they had",
                              place.index + 1, place.count));
}

class SplitFile final : public ModelFile {
 public:
  explicit SplitFile(std::shared_ptr<GgufPart> first) { parts_.push_back(std::move(first)); }

  Status open(const SplitName& name);

  const std::string& path() const override { return first().path(); }
  std::uint64_t file_bytes() const override { return file_bytes_; }
  std::size_t num_files() const override { return parts_.size(); }
  const std::string& path_of(std::span<const std::byte> bytes) const override { return part_with(bytes).path(); }
  std::uint64_t content_hash() const override { return content_hash_; }
  FileStamp stamp() const override;
  Status check_unchanged() const override;
  const std::map<std::string, MetadataValue, std::less<>>& metadata() const override { return first().metadata(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::vector<std::string>& unread_tensors() const override { return unread_; }
  const TensorInfo* find_tensor(std::string_view name) const override {
    const auto it = tensor_index_.find(name);
    return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
  }
  void drop_pages(std::span<const std::byte> bytes) const override { part_with(bytes).drop_pages(bytes); }

 private:
  const GgufPart& first() const { return *parts_.front(); }
  const GgufPart& part_with(std::span<const std::byte> bytes) const;
  Status open_parts(const SplitName& name);
  Status check_part(const GgufPart& part, const SplitName& name) const;
  Result<std::uint64_t> num_tensors_in_all() const;
  Status check_count(std::uint64_t expected) const;
  Status read_tensors();
  std::uint64_t hash_as_one_file() const;

  std::vector<std::shared_ptr<GgufPart>> parts_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> unread_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t content_hash_ = 0;
};

Status SplitFile::open(const SplitName& name) {
  const auto num_tensors = num_tensors_in_all();
  if (!num_tensors) return num_tensors.error();
  if (Status opened = open_parts(name); !opened) return opened;
  if (Status counted = check_count(*num_tensors); !counted) return counted;
  if (Status read = read_tensors(); !read) return read;
  content_hash_ = hash_as_one_file();
  return check_unchanged();  // since the parts were read one after another
}

Status SplitFile::open_parts(const SplitName& name) {
  std::vector<std::string> missing;
  for (std::uint32_t number = 2; number <= name.count; ++number) {
    const std::string path = name.path_of(number);
    auto part = open_gguf_part(path);
    if (!part && part.error().code == ErrorCode::model_missing) {
      missing.push_back(std::filesystem::path(path).filename().string());
      continue;
    }
    if (!part) return part.error();
    if (Status fits = check_part(**part, *parse_split_name(path)); !fits) return fits;
    (*part)->forget_metadata();
    parts_.push_back(*std::move(part));
  }
  // All parts are mapped at once, so that the sum of their sizes is one of addresses.
  for (const auto& part : parts_) file_bytes_ += part->file_bytes();
  if (missing.empty()) return Ok{};
  const bool one = missing.size() == 1;
  return Error{
      ErrorCode::model_missing,
      fmt::format("{}: {} of its {} parts {} missing{} {}; all lie in one folder, is the download complete?", path(),
                  missing.size(), name.count, one ? "is" : "are", one ? ":" : ", the first of them", missing.front())};
}

// name: of the part.
Status SplitFile::check_part(const GgufPart& part, const SplitName& name) const {
  const auto place = split_place(part);
  if (!place) return place.error();
  if (place->count == 1)
    return bad_part(part, fmt::format("is a model of its own by its metadata, and no part of {}", part_file(first())));
  if (place->count != name.count)
    return bad_part(part, fmt::format("is one of {} parts by its 'split.count', and {} one of {}; they are not of one "
                                      "split",
                                      place->count, part_file(first()), name.count));
  if (place->index + 1 != name.number)
    return bad_part(part, fmt::format("is part {} of {} by its 'split.no', and part {} by its name; give all parts the "
                                      "names that they had",
                                      place->index + 1, name.count, name.number));
  for (const auto& [key, value] : part.metadata()) {
    if (key == "split.no") continue;
    const MetadataValue* const of_first = first().find(key);
    if (!of_first || *of_first != value)
      return bad_part(part, fmt::format("'{}' is {} in {}; they are not parts of one model", Printable(key),
                                        of_first ? "another" : "absent", part_file(first())));
  }
  return Ok{};
}

Result<std::uint64_t> SplitFile::num_tensors_in_all() const {
  Metadata split(first(), "split");
  const auto count = split.integer("tensors.count");
  if (!split.failed() && !count)
    split.fail_key(ErrorCode::bad_model, "tensors.count", "is missing, which every part of a split model has");
  if (!split.failed() && *count < 0)
    split.fail_key(ErrorCode::bad_model, "tensors.count", fmt::format("is {}; no count is below 0", *count));
  if (split.failed()) return split.error();
  return static_cast<std::uint64_t>(*count);
}

Status SplitFile::check_count(std::uint64_t expected) const {
  std::uint64_t count = 0;
  for (const auto& part : parts_) count += part->header().num_tensors;
  if (count > kMaxTensors)
    return bad_part(first(), fmt::format("its {} parts claim {} tensors; at most {} are allowed", parts_.size(), count,
                                         kMaxTensors));
  if (count != expected)
    return bad_part(first(), fmt::format("its {} parts have {} tensors, and 'split.tensors.count' is {}; they are not "
                                         "all of one split",
                                         parts_.size(), count, expected));
  return Ok{};
}

Status SplitFile::read_tensors() {
  const std::uint64_t num_layers = num_layers_of(first());
  for (const auto& part : parts_) {
    if (Status read = part->read_tensors(num_layers); !read) return read;
    for (const TensorInfo& tensor : part->tensors()) {
      if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
        const auto other = std::find_if(parts_.begin(), parts_.end(),
                                        [&](const auto& each) { return each->find_tensor(tensor.name) != nullptr; });
        return bad_part(*part, fmt::format("tensor '{}' is in {}, too; they are not parts of one split",
                                           Printable(tensor.name), part_file(**other)));
      }
      tensors_.push_back(tensor);
    }
    unread_.insert(unread_.end(), part->unread_tensors().begin(), part->unread_tensors().end());
  }
  return Ok{};
}

// XXH3 of bytes that come piece by piece.
class PieceHash {
 public:
  explicit PieceHash(std::uint64_t seed) : state_(XXH3_createState(), XXH3_freeState) {
    if (!state_) throw std::bad_alloc();
    XXH3_64bits_reset_withSeed(state_.get(), seed);
  }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

// The directory of the one file whose data are those of all parts, one after another.
struct JoinedDirectory {
  std::vector<std::byte> bytes;
  std::uint64_t num_tensors = 0;
  std::uint64_t data_bytes = 0;

  void add(const GgufPart& part, std::uint64_t alignment) {
    const GgufHeader& header = part.header();
    std::uint64_t begin = header.metadata_end;
    for (const std::uint64_t end : header.entry_ends) {
      const auto entry = part.bytes().subspan(begin, end - begin);
      bytes.insert(bytes.end(), entry.begin(), entry.end());
      std::byte* const place = bytes.data() + bytes.size() - kOffsetBytes;
      std::uint64_t offset;
      std::memcpy(&offset, place, sizeof offset);
      offset += data_bytes;
      std::memcpy(place, &offset, sizeof offset);
      begin = end;
    }
    num_tensors += header.num_tensors;
    data_bytes += padded_to(part.file_bytes() - std::min(part.file_bytes(), header.data_begin), alignment);
  }
};

std::uint64_t SplitFile::hash_as_one_file() const {
  const GgufHeader& header = first().header();
  JoinedDirectory directory;
  std::vector<const kernels::ConvertedType*> converted;
  for (const auto& part : parts_) {
    directory.add(*part, header.alignment);
    const auto& types = part->header().converted_types;
    converted.insert(converted.end(), types.begin(), types.end());
  }
  std::uint64_t header_bytes = header.metadata_end + directory.bytes.size();
  for (const GgufHeader::Range& entry : header.split_keys) header_bytes -= entry.end - entry.begin;
  PieceHash hash(padded_to(header_bytes, header.alignment) + directory.data_bytes);
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    hash.add(first().bytes().subspan(begin, end - begin));
  };
  const std::uint64_t counts[] = {directory.num_tensors, header.num_metadata - header.split_keys.size()};
  add(0, kVersionEnd);
  hash.add(std::as_bytes(std::span(counts)));
  std::uint64_t at = header.metadata_begin;
  for (const GgufHeader::Range& entry : header.split_keys) {
    add(at, entry.begin);
    at = entry.end;
  }
  add(at, header.metadata_end);
  hash.add(directory.bytes);
  return join_types(hash.value(), converted);
}

FileStamp SplitFile::stamp() const {
  std::vector<FileStamp> all;
  for (const auto& part : parts_) all.push_back(part->stamp());
  FileStamp stamp = all.front();
  stamp.inode = XXH3_64bits(all.data(), all.size() * sizeof(FileStamp));  // so that a write to any part changes it
  stamp.bytes = file_bytes_;
  for (const FileStamp& part : all) {
    stamp.mtime_ns = std::max(stamp.mtime_ns, part.mtime_ns);
    stamp.ctime_ns = std::max(stamp.ctime_ns, part.ctime_ns);
  }
  return stamp;
}

Status SplitFile::check_unchanged() const {
  for (const auto& part : parts_)
    if (Status unchanged = part->check_unchanged(); !unchanged) return unchanged;
  return Ok{};
}

// bytes: of a tensor, so that some part has them.
const GgufPart& SplitFile::part_with(std::span<const std::byte> bytes) const {
  const auto has_them = [&](const auto& part) {
    const std::less_equal<const std::byte*> is_not_above;
    const std::byte* const begin = part->bytes().data();
    return is_not_above(begin, bytes.data()) && !is_not_above(begin + part->bytes().size(), bytes.data());
  };
  const auto part = std::find_if(parts_.begin(), parts_.end(), has_them);
  TROUPE_ASSERT(part != parts_.end());
  return **part;
}

}  // namespace

Result<SplitPlace> split_place(const ModelFile& file) {
  Metadata split(file, "split");
  const std::int64_t count = split.integer("count").value_or(1);
  if (split.failed()) return split.error();
  if (count <= 1) return SplitPlace{};
  const auto index = split.integer("no");
  if (count > kMaxSplitParts)
    split.fail_key(ErrorCode::bad_model, "count",
                   fmt::format("is {}; at most {} parts are allowed", count, kMaxSplitParts));
  else if (!split.failed() && !index)
    split.fail_key(ErrorCode::bad_model, "no", "is missing, which every part of a split model has");
  else if (!split.failed() && (*index < 0 || *index >= count))
    split.fail_key(ErrorCode::bad_model, "no",
                   fmt::format("is {}; of {} parts it is from 0 to {}", *index, count, count - 1));
  if (split.failed()) return split.error();
  return SplitPlace{static_cast<std::uint32_t>(*index), static_cast<std::uint32_t>(count)};
}

Result<std::shared_ptr<const ModelFile>> open_split(std::shared_ptr<GgufPart> first, const SplitPlace& place) {
  const auto name = name_of_part(*first, place);
  if (!name) return name.error();
  if (place.index != 0)
    return bad_part(*first, fmt::format("is part {} of {} of a split model; name the first part, {}", name->number,
                                        name->count, name->path_of(1)));
  auto file = std::make_shared<SplitFile>(std::move(first));
  if (const Status opened = file->open(*name); !opened) return opened.error();
  return std::shared_ptr<const ModelFile>(std::move(file));
}

}  // namespace troupe::engine
