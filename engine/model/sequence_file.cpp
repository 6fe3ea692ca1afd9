#include "engine/model/sequence_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cache/group.h"
#include "config/assert.h"
#include "config/file_descriptor.h"
#include "engine/model/sequence_view.h"

namespace troupe::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'t', 'r', 'o', 'u', 'p', 'e', 'K', 'V'};
constexpr std::uint32_t kMaxIdBytes = 256;
constexpr std::uint32_t kMaxTokens = 1u << 24;
constexpr std::size_t kAnchorBytes = 12;
constexpr std::size_t kChecksumBytes = 4;

std::uint32_t extend_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib returns the initial CRC for a null pointer
  return static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t number_of(kernels::KvType type) {
  return type == kernels::KvType::f32 ? 0 : type == kernels::KvType::f16 ? 1 : 2;
}

Error error(ErrorCode code, const std::string& path, const std::string& what) {
  return {code, fmt::format("{}: {}", path, what)};
}

// `what` failed in a system call.
Error failed(const std::string& path, const char* what) {
  return error(ErrorCode::io, path, fmt::format("{}: {}", what, std::strerror(errno)));
}

Error damaged(const std::string& path, const std::string& what) {
  return error(ErrorCode::io, path, fmt::format("damaged: {}; export the sequence again", what));
}

Error truncated(const std::string& path, std::uint64_t has, std::uint64_t needs) {
  return error(ErrorCode::io, path,
               fmt::format("truncated: it has {} bytes of {}; copy or export it again", has, needs));
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

// The fixed-size part of the header, as in the file.
struct Fixed {
  std::array<char, 8> magic;
  std::uint32_t version, id_bytes;
  std::uint64_t model_hash;
  std::uint32_t kv_type, block_size;
  std::uint64_t block_bytes;
  std::uint32_t num_tokens, num_prompt, num_computed, num_anchors;

  std::uint64_t header_bytes() const {
    return sizeof(Fixed) + id_bytes + std::uint64_t{num_tokens} * sizeof(TokenId) +
           std::uint64_t{num_anchors} * kAnchorBytes + kChecksumBytes;
  }
};
static_assert(sizeof(Fixed) == 56 && std::has_unique_object_representations_v<Fixed>);  // no padding

template <class T>
void append(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Takes `count` values from the front of `from`, whose length was checked before.
template <class T>
std::vector<T> take(std::span<const std::byte>& from, std::size_t count) {
  TROUPE_ASSERT(count * sizeof(T) <= from.size());
  std::vector<T> values(count);
  std::copy_n(from.begin(), count * sizeof(T), std::as_writable_bytes(std::span(values)).begin());
  from = from.subspan(count * sizeof(T));
  return values;
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
  const Fixed fixed{.magic = kMagic,
                    .version = kSequenceFileVersion,
                    .id_bytes = static_cast<std::uint32_t>(model.numerics_id().size()),
                    .model_hash = model.model().content_hash(),
                    .kv_type = number_of(model.cache_spec().kv_type),
                    .block_size = kBlockSize,
                    .block_bytes = model.arena()->bytes_per_block(),
                    .num_tokens = static_cast<std::uint32_t>(tokens.size()),
                    .num_prompt = executor.num_prompt_tokens(id),
                    .num_computed = computed_in_file(model, executor, id),
                    .num_anchors = static_cast<std::uint32_t>(anchors.size())};
  std::vector<std::byte> header;
  append<Fixed>(header, {&fixed, 1});
  append<char>(header, model.numerics_id());
  append<TokenId>(header, tokens);
  for (const cache::Anchor& anchor : anchors) {
    append<std::uint32_t>(header, {&anchor.position, 1});
    append<std::uint64_t>(header, {&anchor.hash, 1});
  }
  const std::uint32_t crc = extend_crc(0, header);
  append<std::uint32_t>(header, {&crc, 1});
  return header;
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
  const auto other_version = [&](const char* age, const char* remedy) {
    return error(ErrorCode::unsupported, path,
                 fmt::format("version {} of the format is {} than this program, which reads version {}; {}",
                             fixed.version, age, kSequenceFileVersion, remedy));
  };
  if (fixed.magic != kMagic)
    return error(ErrorCode::unsupported, path, "not an exported sequence: it does not begin with troupeKV");
  if (fixed.version > kSequenceFileVersion) return other_version("newer", "use the newer troupe");
  if (fixed.version == 0) return damaged(path, "its version is 0");
  if (fixed.version < kSequenceFileVersion) return other_version("older", "compute the sequence anew");
  if (fixed.num_tokens == 0) return damaged(path, "it has no tokens");
  const struct {
    const char* what;
    std::uint32_t is, most;
  } bounds[] = {{"the length of numerics_id", fixed.id_bytes, kMaxIdBytes},
                {"the number of tokens", fixed.num_tokens, kMaxTokens},
                {"the prompt's length", fixed.num_prompt, fixed.num_tokens},
                {"the number of computed tokens", fixed.num_computed, fixed.num_tokens}};
  for (const auto& [what, is, most] : bounds)
    if (is > most) return damaged(path, fmt::format("{} is {}, and can be {} at most", what, is, most));
  if (fixed.num_anchors != fixed.num_tokens / kBlockSize)
    return damaged(path, fmt::format("{} anchors do not fit {} tokens", fixed.num_anchors, fixed.num_tokens));
  return std::nullopt;
}

// Checks that the file was made with the same model, variant and KV type.
std::optional<Error> check_origin(const std::string& path, const Fixed& fixed, std::string_view numerics_id,
                                  const LoadedModel& model) {
  if (numerics_id != model.numerics_id())
    return error(ErrorCode::unsupported, path,
                 fmt::format("foreign: it was made under numerics {}, and this is {}; use the same model, kernel "
                             "variant and KV type, or compute it anew",
                             numerics_id, model.numerics_id()));
  // If the context is not longer than the window, the K and V of window layers are in these blocks too.
  const std::uint64_t block_bytes = model.arena()->bytes_per_block(), layer_bytes = kv_shape_of(model).layer_bytes();
  const bool other_window = fixed.block_bytes != block_bytes && layer_bytes != 0 &&
                            fixed.block_bytes % layer_bytes == 0 &&
                            fixed.block_bytes / layer_bytes <= model.info().num_layers;
  if (fixed.model_hash != model.model().content_hash() || fixed.kv_type != number_of(model.cache_spec().kv_type) ||
      fixed.block_size != kBlockSize || (fixed.block_bytes != block_bytes && !other_window))
    return damaged(path, fmt::format("its model hash, KV type or block size contradict its numerics {}", numerics_id));
  if (other_window)
    return error(ErrorCode::unsupported, path,
                 fmt::format("foreign: its blocks hold {} layers, and here they hold {}: it was made under a -c on the "
                             "other side of the window of the model's layers; use that -c, or compute it anew",
                             fixed.block_bytes / layer_bytes, block_bytes / layer_bytes));
  if (fixed.num_tokens > model.info().context)
    return error(ErrorCode::invalid_argument, path,
                 fmt::format("{} tokens are more than the context of {}; use a larger -c", fixed.num_tokens,
                             model.info().context));
  return std::nullopt;
}

}  // namespace

Status export_sequence(const std::string& path, const LoadedModel& model, const Executor& executor, SequenceId id) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(::mkstemp(temporary.data()));
  if (file.get() < 0) return failed(path, "cannot be written");
  const bool written = write_all(file, pack_header(model, executor, id)) && write_contents(file, model, executor, id) &&
                       ::fsync(file.get()) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!written) {
    Error failure = failed(path, "cannot be written");
    failure.message += "; what was there is unchanged";
    ::unlink(temporary.c_str());
    return failure;
  }
  if (!sync_directory_of(path)) return failed(path, "written, but not synced");
  return Ok{};
}

Result<SequenceFile> SequenceFile::open(const std::string& path, const LoadedModel& model) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return failed(path, "cannot be read");
  if (!S_ISREG(info.st_mode)) return error(ErrorCode::io, path, "cannot be read: it is not a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);

  Fixed fixed{};
  if (!read_all(file, std::as_writable_bytes(std::span(&fixed, 1)))) return truncated(path, size, sizeof fixed);
  if (auto wrong = check_numbers(path, fixed)) return *wrong;
  if (size < fixed.header_bytes()) return truncated(path, size, fixed.header_bytes());
  std::vector<std::byte> more(fixed.header_bytes() - sizeof fixed);
  if (!read_all(file, more)) return truncated(path, size, fixed.header_bytes());

  std::uint32_t crc = extend_crc(0, std::as_bytes(std::span(&fixed, 1)));
  crc = extend_crc(crc, std::span(more).first(more.size() - kChecksumBytes));
  std::span<const std::byte> left(more);
  const std::vector<char> id = take<char>(left, fixed.id_bytes);
  SequenceFile out;
  out.tokens_ = take<TokenId>(left, fixed.num_tokens);
  for (std::uint32_t i = 0; i < fixed.num_anchors; ++i) {
    const std::uint32_t position = take<std::uint32_t>(left, 1)[0];
    out.anchors_.push_back({position, take<std::uint64_t>(left, 1)[0]});
  }
  if (take<std::uint32_t>(left, 1)[0] != crc) return damaged(path, "the checksum of its header is wrong");
  if (auto wrong = check_origin(path, fixed, {id.data(), id.size()}, model)) return *wrong;
  if (model.snapshots() && fixed.num_computed == fixed.num_tokens)
    return damaged(path, "its state is that of its last token, which must be computed again");
  for (const TokenId token : out.tokens_) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= model.info().vocab_size)
      return damaged(path, fmt::format("token {} is not in the vocabulary", token));
  }
  if (out.anchors_ != cache::anchors_of(out.tokens_)) return damaged(path, "its anchors are not those of its tokens");
  const std::uint64_t whole = fixed.header_bytes() + block_bytes_in_file(model, fixed.num_tokens, fixed.num_computed) +
                              state_bytes_in_file(model, fixed.num_computed) + kChecksumBytes;
  if (size < whole) return truncated(path, size, whole);
  if (size > whole) return damaged(path, fmt::format("{} bytes follow its end", size - whole));
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
  if (::lseek(file_.get(), static_cast<off_t>(header_bytes_), SEEK_SET) < 0) return failed(path_, "cannot be read");
  std::vector<std::byte> skipped;
  std::uint32_t crc = 0, expected = 0;
  const auto read = [&](std::span<std::byte> bytes) -> Status {
    if (read_all(file_, bytes)) return Ok{};
    return errno == 0 ? damaged(path_, "it became shorter while it was read") : failed(path_, "cannot be read");
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
  return {.id = id,
          .tokens = tokens_,
          .num_prompt_tokens = num_prompt_tokens_,
          .num_cached = next_position(),
          .tables = std::move(tables),
          .state = state_,
          .sampling = std::move(sampling)};
}

}  // namespace troupe::engine
