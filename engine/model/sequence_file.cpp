#include "engine/model/sequence_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/group.h"
#include "config/assert.h"
#include "config/file_descriptor.h"
#include "engine/model/sequence_view.h"

namespace troupe::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'t', 'r', 'o', 'u', 'p', 'e', 'K', 'V'};
constexpr std::size_t kFixedBytes = 56;  // up to the number of anchors, inclusive
constexpr std::uint32_t kMaxIdBytes = 256;
constexpr std::uint32_t kMaxTokens = 1u << 24;
constexpr std::size_t kAnchorBytes = 12;
constexpr std::size_t kChecksumBytes = 4;

std::uint32_t extend_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib returns the initial CRC for a null pointer
  return static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t number_of(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::f32:
      return 0;
    case kernels::KvType::f16:
      return 1;
    case kernels::KvType::i8:
      return 2;
  }
  return 0;
}

std::string system_says() { return std::strerror(errno); }

Error damaged(const std::string& path, const std::string& what) {
  return {ErrorCode::io, path + ": damaged: " + what + "; export the sequence again"};
}

Error truncated(const std::string& path, std::uint64_t has, std::uint64_t needs) {
  return {ErrorCode::io, path + ": truncated: it has " + std::to_string(has) + " bytes of " + std::to_string(needs) +
                             "; copy or export it again"};
}

bool write_all(const FileDescriptor& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// False: the file is too short (errno 0), or read() failed.
bool read_all(const FileDescriptor& file, std::span<std::byte> bytes) {
  errno = 0;
  while (!bytes.empty()) {
    const ssize_t count = ::read(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// Serialises integers.
class Packer {
 public:
  template <class T>
  void put(T value) {
    put(std::as_bytes(std::span(&value, 1)));
  }
  void put(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(std::size_t count) {
    TROUPE_ASSERT(count <= left_.size());  // lengths were checked before
    const auto bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }

 private:
  std::span<const std::byte> left_;
};

// The fixed-size part of the header, in file order.
struct Fixed {
  std::array<char, 8> magic;
  std::uint32_t version, id_bytes;
  std::uint64_t model_hash;
  std::uint32_t kv_type, block_size;
  std::uint64_t block_bytes;
  std::uint32_t num_tokens, num_prompt, num_computed, num_anchors;

  std::uint64_t header_bytes() const {
    return kFixedBytes + id_bytes + std::uint64_t{num_tokens} * sizeof(TokenId) +
           std::uint64_t{num_anchors} * kAnchorBytes + kChecksumBytes;
  }
};

Fixed unpack_fixed(std::span<const std::byte> bytes) {
  Unpacker from(bytes);
  Fixed fixed{};
  fixed.magic = from.take<std::array<char, 8>>();
  fixed.version = from.take<std::uint32_t>();
  fixed.id_bytes = from.take<std::uint32_t>();
  fixed.model_hash = from.take<std::uint64_t>();
  fixed.kv_type = from.take<std::uint32_t>();
  fixed.block_size = from.take<std::uint32_t>();
  fixed.block_bytes = from.take<std::uint64_t>();
  fixed.num_tokens = from.take<std::uint32_t>();
  fixed.num_prompt = from.take<std::uint32_t>();
  fixed.num_computed = from.take<std::uint32_t>();
  fixed.num_anchors = from.take<std::uint32_t>();
  return fixed;
}

// The number of computed tokens to write to a file. With a recurrent state and all tokens computed it is 0: after a
// resume the last token is computed again for its logits, and the state cannot be rolled back by one token.
std::uint32_t computed_in_file(const LoadedModel& model, const Executor& executor, SequenceId id) {
  const std::uint32_t num_computed = executor.num_computed(id);
  const bool is_over = model.snapshots() && num_computed == executor.num_known(id);
  return is_over ? 0 : num_computed;
}

std::vector<std::byte> pack_header(const LoadedModel& model, const Executor& executor, SequenceId id) {
  const std::span<const TokenId> tokens = executor.tokens(id);
  const std::vector<cache::Anchor> anchors = cache::anchors_of(tokens);
  Packer header;
  header.put(kMagic);
  header.put(kSequenceFileVersion);
  header.put(static_cast<std::uint32_t>(model.numerics_id().size()));
  header.put(model.model().content_hash());
  header.put(number_of(model.cache_spec().kv_type));
  header.put(kBlockSize);
  header.put(model.arena()->bytes_per_block());
  header.put(static_cast<std::uint32_t>(tokens.size()));
  header.put(executor.num_prompt_tokens(id));
  header.put(computed_in_file(model, executor, id));
  header.put(static_cast<std::uint32_t>(anchors.size()));
  TROUPE_ASSERT(header.bytes().size() == kFixedBytes);
  header.put(std::as_bytes(std::span(model.numerics_id())));
  header.put(std::as_bytes(tokens));
  for (const cache::Anchor& anchor : anchors) {
    header.put(anchor.position);
    header.put(anchor.hash);
  }
  header.put(extend_crc(0, header.bytes()));
  return header.bytes();
}

// If all tokens were computed, the last one is computed again for its logits.
std::uint32_t next_position_of(std::uint32_t num_tokens, std::uint32_t num_computed) {
  return std::min(num_computed, num_tokens - 1);
}

// The first of the group's blocks that the token at `position` attends to.
std::uint32_t first_block_in_file(const LoadedModel& model, GroupId group, std::uint32_t position) {
  return cache::first_window_block(position, model.cache_spec().groups[group].window);
}

std::uint64_t block_bytes_in_file(const LoadedModel& model, std::uint32_t num_tokens, std::uint32_t num_computed) {
  const std::uint32_t position = next_position_of(num_tokens, num_computed);
  std::uint64_t bytes = 0;
  for (GroupId group = 0; group < model.arenas().size(); ++group)
    bytes += (blocks_for(num_computed) - first_block_in_file(model, group, position)) *
             model.arena(group)->bytes_per_block();
  return bytes;
}

std::uint64_t state_bytes_in_file(const LoadedModel& model, std::uint32_t num_computed) {
  return num_computed != 0 ? model.cache_spec().state.bytes() : 0;
}

// Zeros in all slots of a block of `num_layers` layers from `used` on.
void clear_slots(const LoadedModel& model, std::uint32_t num_layers, std::uint32_t used, std::span<std::byte> block) {
  const kernels::KvShape shape = kv_shape_of(model);
  for (std::uint32_t layer = 0; layer < num_layers; ++layer)
    kernels::clear_kv(shape, block.data() + layer * shape.layer_bytes(), used);
}

bool write_contents(const FileDescriptor& file, const LoadedModel& model, const Executor& executor, SequenceId id) {
  const std::uint32_t num_computed = computed_in_file(model, executor, id);
  std::uint32_t crc = 0;
  const auto put = [&](std::span<const std::byte> bytes) {
    crc = extend_crc(crc, bytes);
    return write_all(file, bytes);
  };
  const std::uint32_t position = next_position_of(executor.num_known(id), num_computed);
  const auto put_blocks = [&](GroupId group) {
    KvArena& arena = *model.arena(group);
    const BlockTable& table = executor.block_table(id, group);
    const std::uint32_t num_full = num_computed / kBlockSize;
    for (std::uint32_t i = first_block_in_file(model, group, position); i < num_full; ++i)
      if (!put({arena.block(table[i]), arena.bytes_per_block()})) return false;
    if (num_computed % kBlockSize == 0) return true;
    const std::byte* last = arena.block(table[num_full]);
    std::vector<std::byte> copy(last, last + arena.bytes_per_block());
    clear_slots(model, model.cache_spec().groups[group].num_layers, num_computed % kBlockSize, copy);
    return put(copy);
  };
  for (GroupId group = 0; group < model.arenas().size(); ++group)
    if (!put_blocks(group)) return false;
  if (state_bytes_in_file(model, num_computed) != 0 && !put(std::as_bytes(executor.state(id)))) return false;
  return write_all(file, std::as_bytes(std::span(&crc, 1)));
}

// A rename lasts once its directory is synced.
bool sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.get() >= 0 && ::fsync(opened.get()) == 0;
}

// Checks the numbers against each other and the limits of the format, without a model.
std::optional<Error> check_numbers(const std::string& path, const Fixed& fixed) {
  if (fixed.magic != kMagic)
    return Error{ErrorCode::unsupported, path + ": not an exported sequence: it does not begin with troupeKV"};
  if (fixed.version > kSequenceFileVersion)
    return Error{ErrorCode::unsupported, path + ": version " + std::to_string(fixed.version) +
                                             " of the format is newer than this program, which reads version " +
                                             std::to_string(kSequenceFileVersion) + "; use the newer troupe"};
  const auto above = [&](const char* what, std::uint64_t is, std::uint64_t most) {
    return damaged(
        path, std::string(what) + " is " + std::to_string(is) + ", and can be " + std::to_string(most) + " at most");
  };
  if (fixed.version == 0) return damaged(path, "its version is 0");
  if (fixed.version < kSequenceFileVersion)
    return Error{ErrorCode::unsupported, path + ": version " + std::to_string(fixed.version) +
                                             " of the format is older than this program, which reads version " +
                                             std::to_string(kSequenceFileVersion) + "; compute the sequence anew"};
  if (fixed.id_bytes > kMaxIdBytes) return above("the length of numerics_id", fixed.id_bytes, kMaxIdBytes);
  if (fixed.num_tokens > kMaxTokens) return above("the number of tokens", fixed.num_tokens, kMaxTokens);
  if (fixed.num_tokens == 0) return damaged(path, "it has no tokens");
  if (fixed.num_prompt > fixed.num_tokens) return above("the prompt's length", fixed.num_prompt, fixed.num_tokens);
  if (fixed.num_computed > fixed.num_tokens)
    return above("the number of computed tokens", fixed.num_computed, fixed.num_tokens);
  if (fixed.num_anchors != fixed.num_tokens / kBlockSize)
    return damaged(path, std::to_string(fixed.num_anchors) + " anchors do not fit " + std::to_string(fixed.num_tokens) +
                             " tokens");
  return std::nullopt;
}

// Checks that the file was made with the same model, variant and KV type.
std::optional<Error> check_origin(const std::string& path, const Fixed& fixed, std::string_view numerics_id,
                                  const LoadedModel& model) {
  if (numerics_id != model.numerics_id())
    return Error{ErrorCode::unsupported, path + ": foreign: it was made under numerics " + std::string(numerics_id) +
                                             ", and this is " + model.numerics_id() +
                                             "; use the same model, kernel variant and KV type, or compute it anew"};
  // If the context is not longer than the window, the K and V of window layers are in these blocks too.
  const std::uint64_t block_bytes = model.arena()->bytes_per_block(), layer_bytes = kv_shape_of(model).layer_bytes();
  const bool other_window = fixed.block_bytes != block_bytes && layer_bytes != 0 &&
                            fixed.block_bytes % layer_bytes == 0 &&
                            fixed.block_bytes / layer_bytes <= model.info().num_layers;
  if (fixed.model_hash != model.model().content_hash() || fixed.kv_type != number_of(model.cache_spec().kv_type) ||
      fixed.block_size != kBlockSize || (fixed.block_bytes != block_bytes && !other_window))
    return damaged(path, "its model hash, KV type or block size contradict its numerics " + std::string(numerics_id));
  if (other_window)
    return Error{ErrorCode::unsupported,
                 path + ": foreign: its blocks hold " + std::to_string(fixed.block_bytes / layer_bytes) +
                     " layers, and here they hold " + std::to_string(block_bytes / layer_bytes) +
                     ": it was made under a -c on the other side of the window of the model's layers; use that -c, or "
                     "compute it anew"};
  if (fixed.num_tokens > model.info().context)
    return Error{ErrorCode::invalid_argument, path + ": " + std::to_string(fixed.num_tokens) +
                                                  " tokens are more than the context of " +
                                                  std::to_string(model.info().context) + "; use a larger -c"};
  return std::nullopt;
}

}  // namespace

Status export_sequence(const std::string& path, const LoadedModel& model, const Executor& executor, SequenceId id) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkstemp(temporary.data()));
  if (file.get() < 0) return Error{ErrorCode::io, path + ": cannot be written: " + system_says()};
  const bool written = write_all(file, pack_header(model, executor, id)) && write_contents(file, model, executor, id) &&
                       ::fsync(file.get()) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written) {
    const Error error{ErrorCode::io, path + ": cannot be written: " + system_says() + "; what was there is unchanged"};
    ::unlink(temporary.c_str());
    return error;
  }
  if (!sync_directory_of(path)) return Error{ErrorCode::io, path + ": written, but not synced: " + system_says()};
  return Ok{};
}

Result<SequenceFile> SequenceFile::open(const std::string& path, const LoadedModel& model) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0)
    return Error{ErrorCode::io, path + ": cannot be read: " + system_says()};
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::io, path + ": cannot be read: it is not a regular file"};
  const auto size = static_cast<std::uint64_t>(info.st_size);

  std::vector<std::byte> header(kFixedBytes);
  if (!read_all(file, header)) return truncated(path, size, kFixedBytes);
  const Fixed fixed = unpack_fixed(header);
  if (auto wrong = check_numbers(path, fixed)) return *wrong;
  if (size < fixed.header_bytes()) return truncated(path, size, fixed.header_bytes());
  header.resize(fixed.header_bytes());
  if (!read_all(file, std::span(header).subspan(kFixedBytes))) return truncated(path, size, fixed.header_bytes());

  const auto checked = std::span<const std::byte>(header).first(header.size() - kChecksumBytes);
  Unpacker from(std::span<const std::byte>(header).subspan(kFixedBytes));
  const auto id = from.take(fixed.id_bytes);
  SequenceFile out;
  out.tokens_.resize(fixed.num_tokens);
  std::memcpy(out.tokens_.data(), from.take(fixed.num_tokens * sizeof(TokenId)).data(),
              fixed.num_tokens * sizeof(TokenId));
  for (std::uint32_t i = 0; i < fixed.num_anchors; ++i) {
    const auto position = from.take<std::uint32_t>();
    out.anchors_.push_back({position, from.take<std::uint64_t>()});
  }
  if (from.take<std::uint32_t>() != extend_crc(0, checked)) return damaged(path, "the checksum of its header is wrong");
  if (auto wrong = check_origin(path, fixed, {reinterpret_cast<const char*>(id.data()), id.size()}, model))
    return *wrong;
  if (model.snapshots() && fixed.num_computed == fixed.num_tokens)
    return damaged(path, "its state is that of its last token, which must be computed again");
  for (const TokenId token : out.tokens_) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= model.info().vocab_size)
      return damaged(path, "token " + std::to_string(token) + " is not in the vocabulary");
  }
  if (out.anchors_ != cache::anchors_of(out.tokens_)) return damaged(path, "its anchors are not those of its tokens");
  const std::uint64_t whole = fixed.header_bytes() + block_bytes_in_file(model, fixed.num_tokens, fixed.num_computed) +
                              state_bytes_in_file(model, fixed.num_computed) + kChecksumBytes;
  if (size < whole) return truncated(path, size, whole);
  if (size > whole) return damaged(path, std::to_string(size - whole) + " bytes follow its end");
  out.path_ = path;
  out.file_ = std::move(file);
  out.header_bytes_ = fixed.header_bytes();
  out.num_prompt_tokens_ = fixed.num_prompt;
  out.num_computed_ = fixed.num_computed;
  return out;
}

std::uint32_t SequenceFile::next_position() const {
  return next_position_of(static_cast<std::uint32_t>(tokens_.size()), num_computed_);
}

Status SequenceFile::read_blocks(const LoadedModel& model, const BlockTables& tables) {
  TROUPE_ASSERT(tables.size() == model.arenas().size());
  if (::lseek(file_.get(), static_cast<off_t>(header_bytes_), SEEK_SET) < 0)
    return Error{ErrorCode::io, path_ + ": cannot be read: " + system_says()};
  std::vector<std::byte> skipped;
  std::uint32_t crc = 0, expected = 0;
  const auto read = [&](std::span<std::byte> bytes) -> Status {
    if (read_all(file_, bytes)) return Ok{};
    return errno == 0 ? damaged(path_, "it became shorter while it was read")
                      : Error{ErrorCode::io, path_ + ": cannot be read: " + system_says()};
  };
  const auto read_checked = [&](std::span<std::byte> bytes) -> Status {
    if (auto done = read(bytes); !done) return done;
    crc = extend_crc(crc, bytes);
    return Ok{};
  };
  for (GroupId group = 0; group < tables.size(); ++group) {
    KvArena& arena = *model.arena(group);
    const BlockTable& table = tables[group];
    TROUPE_ASSERT(table.size() >= num_blocks());
    for (std::uint32_t i = first_block_in_file(model, group, next_position()); i < num_blocks(); ++i) {
      if (table[i] == kNoBlock) skipped.resize(arena.bytes_per_block());
      std::byte* to = table[i] == kNoBlock ? skipped.data() : arena.block(table[i]);
      if (auto done = read_checked({to, arena.bytes_per_block()}); !done) return done;
    }
  }
  state_.resize(state_bytes_in_file(model, num_computed_) / sizeof(float));
  if (auto done = read_checked(std::as_writable_bytes(std::span(state_))); !done) return done;
  if (auto done = read(std::as_writable_bytes(std::span(&expected, 1))); !done) return done;
  if (crc != expected) return damaged(path_, "the checksum of its blocks is wrong");
  return Ok{};
}

SequenceSpec SequenceFile::spec(SequenceId id, BlockTables tables, SamplingParams sampling) const {
  SequenceSpec spec;
  spec.id = id;
  spec.tokens = tokens_;
  spec.num_prompt_tokens = num_prompt_tokens_;
  spec.num_cached = next_position();
  spec.tables = std::move(tables);
  spec.state = state_;
  spec.sampling = std::move(sampling);
  return spec;
}

}  // namespace troupe::engine
