#include "engine/weights/weights_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "config/assert.h"
#include "config/printable.h"
#include "engine/compute/team.h"

namespace troupe::engine {
namespace {

constexpr std::string_view kEnding = ".weights";
constexpr std::string_view kTemporaryEnding = ".weights.tmp";
constexpr std::size_t kSampledTensors = 16;
constexpr std::size_t kSampleBytes = 4096;
constexpr std::uint64_t kLeftFree = 256u << 20;  // of the file system, for its other users
constexpr std::int64_t kAbandonedAfter_s = 3600;
constexpr std::uint64_t kWritePiece = 16u << 20;  // written, and later waited for, between two checks of is_stopped()

std::string system_says() { return std::strerror(errno); }

bool write_at(int file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

std::string gigabytes(std::uint64_t bytes) { return fmt::format("{:.2f} GB", 1e-9 * static_cast<double>(bytes)); }

// Hashes the beginnings of tensors all over the file, to distinguish models with the same metadata and shapes, such as
// two trainings of one.
std::uint64_t sample(const ModelFile& model) {
  const auto& tensors = model.tensors();
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < std::min(kSampledTensors, tensors.size()); ++i) {
    const auto bytes = tensors[i * tensors.size() / std::min(kSampledTensors, tensors.size())].bytes;
    hash = XXH3_64bits_withSeed(bytes.data(), std::min(kSampleBytes, bytes.size()), hash);
  }
  return hash;
}

// Whether a name is of this cache's form; other files are left alone.
bool is_ours(std::string_view name, std::string_view ending) {
  return name.size() > 17 && name[16] == '-' && name.ends_with(ending) &&
         name.substr(0, 16).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct CachedFile {
  std::string name;
  std::uint64_t bytes;
  timespec used;
};

// Lists the cache's files; removes temporary files of killed writers.
std::vector<CachedFile> list(int directory) {
  std::vector<CachedFile> files;
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* opened = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!opened) {
    if (copy >= 0) ::close(copy);
    return files;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opened, ::closedir);
  const std::int64_t now = std::time(nullptr);
  while (const dirent* entry = ::readdir(entries.get())) {
    struct stat status {};
    const bool temporary = is_ours(entry->d_name, kTemporaryEnding);
    if (!temporary && !is_ours(entry->d_name, kEnding)) continue;
    if (::fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    if (temporary && status.st_mtim.tv_sec < now - kAbandonedAfter_s) {
      ::unlinkat(directory, entry->d_name, 0);
      continue;
    }
    files.push_back({entry->d_name, static_cast<std::uint64_t>(status.st_size), status.st_mtim});
  }
  return files;
}

std::string file_name(const ModelFile& model, std::string_view variant, kernels::Layout ternary) {
  std::uint64_t key = combine_hashes(model.content_hash(), sample(model));
  key = combine_hashes(key, kernels::kRecipeVersion);
  key = combine_hashes(key, kWeightsFileVersion);
  if (ternary != kernels::Layout::panels) key = combine_hashes(key, static_cast<std::uint64_t>(ternary));
  return fmt::format("{:016x}-{}{}", key, variant, kEnding);
}

}  // namespace

std::uint64_t tensor_hash(Team& team, const TensorInfo& tensor) {
  return combine_hashes(WeightsCache::hash_of_name(tensor.name), checksum(team, tensor.bytes));
}

std::uint64_t WeightsCache::hash_of_name(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

bool WeightsCache::has_file(const WeightsCacheOptions& options, const ModelFile& file, std::string_view variant,
                            kernels::Layout ternary) {
  return !options.directory.empty() &&
         ::access((options.directory + "/" + file_name(file, variant, ternary)).c_str(), R_OK) == 0;
}

WeightsCache::WeightsCache(const WeightsCacheOptions& options, const ModelFile& file, std::string_view variant,
                           kernels::Layout ternary, Team& team, LoadNotes notes)
    : options_(options), model_(file), variant_(variant), team_(team), notes_(std::move(notes)) {
  if (options_.directory.empty()) return;
  name_ = file_name(model_, variant_, ternary);
  path_ = options_.directory + "/" + name_;
  open_directory();
  if (is_used()) open_file();
}

void WeightsCache::note(const std::string& what) const {
  if (notes_) notes_({.warning = false, .text = "weights cache: " + what});
}
void WeightsCache::warn(const std::string& what) const {
  if (notes_) notes_({.warning = true, .text = "weights cache: " + what});
}

void WeightsCache::open_directory() {
  const std::string& path = options_.directory;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path + "/").parent_path().parent_path(), ignored);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return warn(fmt::format("{}: cannot be made: {}; weights are not kept", path, system_says()));
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (directory.get() < 0 || ::fstat(directory.get(), &status) != 0)
    return warn(fmt::format("{}: cannot be opened: {}; weights are not kept", path, system_says()));
  if (status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return warn(path + ": others may write to it; weights are not kept there (chown it to this user, and chmod 700)");
  directory_ = std::move(directory);
}

void WeightsCache::open_file() {
  FileDescriptor file(::openat(directory_.get(), name_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0 && errno == ENOENT) return;
  const auto unusable = [&](const std::string& why) {
    warn(fmt::format("{}: {}; the model is packed again", path_, why));
  };
  if (file.get() < 0) return unusable("cannot be opened: " + system_says());
  auto header = read_header(file.get());
  if (!header) return unusable(header.error().message);
  if (options_.distrusted) {
    distrusted_ = std::move(*header);
    return note(path_ + ": its weights are not trusted; the model is packed again");
  }
  if (const Status same = check_source(file.get(), *header); !same) return unusable(same.error().message);
  ::futimens(file.get(), nullptr);  // marks it as used; if this fails it is only evicted earlier
  header_ = std::move(*header);
  for (std::size_t i = 0; i < header_->entries.size(); ++i) places_.emplace(header_->entries[i].name_hash, i);
  file_ = std::move(file);
}

Result<WeightsHeader> WeightsCache::read_header(int file) const {
  struct stat status {};
  if (::fstat(file, &status) != 0) return Error{ErrorCode::io, "cannot be read: " + system_says()};
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::io, "not a plain file"};
  if (status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return Error{ErrorCode::permission, "others may have written to it"};
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::vector<std::byte> bytes(kWeightsFixedBytes);
  bool complete = read_at(file, 0, bytes);
  if (complete) {
    const auto count = parse_weights_count(bytes);
    if (!count) return count.error();
    bytes.resize(weights_header_bytes(*count));
    complete = read_at(file, 0, bytes);
  }
  if (!complete) return Error{ErrorCode::io, fmt::format("damaged: cut off after {} bytes", size)};
  auto header = parse_weights_header(bytes, size);
  if (!header) return header.error();
  if (header->recipe != kernels::kRecipeVersion || header->variant != variant_ ||
      header->model_hash != model_.content_hash())
    return Error{ErrorCode::unsupported, fmt::format("made for another model, variant or version ({}-{}-{:016x})",
                                                     header->recipe, Printable(header->variant), header->model_hash)};
  return header;
}

// Checks that the model is the one that was packed.
Status WeightsCache::check_source(int file, const WeightsHeader& header) {
  if (header.stamp == model_.stamp()) return Ok{};
  std::uint64_t hash = 0;
  for (const TensorInfo& tensor : model_.tensors()) {
    hash += tensor_hash(team_, tensor);
    model_.drop_pages(tensor.bytes);
  }
  if (hash != header.source_hash) return Error{ErrorCode::io, "the model has changed since it was packed"};
  note(model_.path() + " was copied or touched, and is what was packed (compared by its hash)");
  // Opened through the descriptor, because the name may refer to another writer's file by now.
  const FileDescriptor writable(::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_WRONLY | O_CLOEXEC));
  if (writable.get() >= 0) write_at(writable.get(), kWeightsStampAt, write_weights_stamp(model_.stamp()));
  return Ok{};
}

Result<PackedMatrix> WeightsCache::read(std::string_view name, const MatrixForm& form,
                                        const std::shared_ptr<MemoryPolicy>& policy) {
  TROUPE_ASSERT(has_model());
  const auto fits = [&](const PackedHeader& h) {
    const bool layout_fits =
        h.layout == form.layout ||
        (form.layout != kernels::Layout::file && kernels::is_ternary(form.type) && h.layout == kernels::Layout::panels);
    return h.type == form.type && layout_fits && h.rows == form.rows && h.k == form.k;
  };
  PackedMatrix matrix;
  if (const auto place = places_.find(hash_of_name(name)); place != places_.end()) {
    const WeightsEntry& entry = header_->entries[place->second];
    if (fits(entry.header)) {
      auto read = PackedMatrix::read(team_, entry.header, file_.get(), entry.offset, form.scale, policy);
      if (!read) return read.error();
      matrix = std::move(*read);
    }
  }
  if (!matrix) {
    warn(fmt::format("{}: damaged: {} is not what was written; the model is packed again", path_, Printable(name)));
    header_.reset();
  }
  return matrix;
}

// Whether the file that is not read has the same weights in it, by their checksums.
bool WeightsCache::is_distrusted_file(const WeightsHeader& header) const {
  return std::ranges::equal(header.entries, distrusted_->entries, [](const WeightsEntry& a, const WeightsEntry& b) {
    return a.name_hash == b.name_hash && a.header == b.header;
  });
}

// Evicts files to make room for `bytes`. False, with a warning: there is not enough room.
bool WeightsCache::make_room(std::uint64_t bytes) {
  if (options_.max_bytes != 0 && bytes > options_.max_bytes) {
    warn(fmt::format("{}: {} are more than the limit of {}; they are not kept (raise --weights-cache-size)", path_,
                     gigabytes(bytes), gigabytes(options_.max_bytes)));
    return false;
  }
  std::vector<CachedFile> files = list(directory_.get());
  std::erase_if(files, [&](const CachedFile& file) { return file.name == name_; });  // will be replaced
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  std::uint64_t total = bytes;
  for (const CachedFile& file : files) total += file.bytes;
  const auto has_room = [&] {
    struct statvfs space {};
    return ::fstatvfs(directory_.get(), &space) != 0 ||
           std::uint64_t{space.f_bavail} * space.f_frsize >= bytes + kLeftFree;
  };
  for (const CachedFile& file : files) {
    if ((options_.max_bytes == 0 || total <= options_.max_bytes) && has_room()) break;
    if (file.name.ends_with(kTemporaryEnding)) continue;  // being written by another process
    if (::unlinkat(directory_.get(), file.name.c_str(), 0) != 0) continue;
    total -= file.bytes;
    note(fmt::format("evicted {}/{}, {}", options_.directory, file.name, gigabytes(file.bytes)));
  }
  if (has_room()) return true;
  warn(fmt::format("{}: the file system has no room for {}; they are not kept", options_.directory, gigabytes(bytes)));
  return false;
}

void WeightsCache::keep(std::span<const Matrix> matrices, std::uint64_t source_hash) {
  TROUPE_ASSERT(is_used());
  if (matrices.size() > kMaxWeightsEntries)
    return warn(fmt::format("{}: {} matrices are more than the {} that a file can hold; they are not kept", path_,
                            matrices.size(), kMaxWeightsEntries));
  WeightsHeader header{.recipe = kernels::kRecipeVersion,
                       .model_hash = model_.content_hash(),
                       .source_hash = source_hash,
                       .variant = variant_,
                       .file_bytes = 0,
                       .stamp = model_.stamp(),
                       .entries = {}};
  std::uint64_t end = weights_header_bytes(matrices.size());
  for (const Matrix& matrix : matrices) {
    WeightsEntry entry;
    entry.name_hash = matrix.name_hash;
    std::memcpy(&entry.header, matrix.bytes.data(), sizeof entry.header);
    entry.offset = (end + kWeightsBodyAlignment - 1) / kWeightsBodyAlignment * kWeightsBodyAlignment;
    end = entry.offset + entry.header.body_bytes;
    header.entries.push_back(entry);
  }
  header.file_bytes = end;
  if (distrusted_) {
    if (is_distrusted_file(header)) return note(path_ + ": stays, as it has the weights that the model was packed to");
    if (::unlinkat(directory_.get(), name_.c_str(), 0) != 0)
      warn(fmt::format("{}: has other weights than the model, and cannot be removed: {}", path_, system_says()));
    else
      note(path_ + ": removed, as it had other weights than the model is packed to");
  }
  if (!make_room(end)) return;
  const auto begin = std::chrono::steady_clock::now();
  if (const Status written = write_file(matrices, std::move(header)); !written)
    return warn(fmt::format("{}: cannot be written: {}; the weights are not kept", path_, written.error().message));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  note(fmt::format("{}: kept {} in {:.1f} s", path_, gigabytes(end), seconds));
}

// False: a write failed, or the team is stopped.
bool WeightsCache::write_body(int file, std::uint64_t offset, std::span<const std::byte> body) const {
  while (!body.empty() && !team_.is_stopped()) {
    const auto piece = body.first(std::min<std::uint64_t>(kWritePiece, body.size()));
    if (!write_at(file, offset, piece)) return false;
    // Starts writeback, so that the disk works while the next piece is copied.
    ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(piece.size()), SYNC_FILE_RANGE_WRITE);
    body = body.subspan(piece.size());
    offset += piece.size();
  }
  return body.empty();
}

// Waits for writeback piece by piece, so that the following fsync() has little to do and a stop does not wait for the
// whole file. False: the team is stopped. Disk errors are left to fsync().
bool WeightsCache::wait_for_disk(int file, std::uint64_t bytes) const {
  for (std::uint64_t offset = 0; offset < bytes && !team_.is_stopped(); offset += kWritePiece)
    ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(kWritePiece),
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  return !team_.is_stopped();
}

Status WeightsCache::write_file(std::span<const Matrix> matrices, WeightsHeader header) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) return Error{ErrorCode::io, system_says()};
  const std::string temporary = fmt::format("{}-{:016x}{}", name_.substr(0, 16), random, kTemporaryEnding);
  const FileDescriptor file(
      ::openat(directory_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) return Error{ErrorCode::io, system_says()};
  bool written = write_at(file.get(), 0, write_weights_header(header));
  for (std::size_t i = 0; i < matrices.size() && written; ++i)
    written = write_body(file.get(), header.entries[i].offset, matrices[i].bytes.subspan(kPackedHeaderBytes));
  written = written && wait_for_disk(file.get(), header.file_bytes) && ::fsync(file.get()) == 0 &&
            ::renameat(directory_.get(), temporary.c_str(), directory_.get(), name_.c_str()) == 0;
  if (!written) {
    const Error error{ErrorCode::io, system_says()};
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
    team_.throw_if_stopped();
    return error;
  }
  ::fsync(directory_.get());  // if this fails, a crash may lose the file; then it is written again
  return Ok{};
}

}  // namespace troupe::engine
