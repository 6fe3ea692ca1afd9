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
#include <optional>
#include <type_traits>
#include <utility>

#include "config/assert.h"
#include "config/system_error.h"

namespace troupe::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'t', 'r', 'o', 'u', 'p', 'e', 'K', 'V'};
constexpr std::uint32_t kMaxIdBytes = 256;
constexpr std::uint32_t kMaxTokens = 1u << 24;
constexpr std::size_t kAnchorBytes = 12;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kBytesPerWrite = 1u << 20;

std::uint32_t extend_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib returns the initial CRC for a null pointer
  return static_cast<std::uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Error error(ErrorCode code, const std::string& path, const std::string& what) {
  return {code, fmt::format("{}: {}", path, what)};
}

// `what` failed in a system call.
Error failed(const std::string& path, const char* what) {
  return system_error(fmt::format("{}: {}", path, what), errno);
}

Error damaged(const std::string& path, const std::string& what) {
  return error(ErrorCode::io, path, fmt::format("damaged: {}", what));
}

Error truncated(const std::string& path, std::uint64_t has, std::uint64_t needs) {
  return error(ErrorCode::io, path, fmt::format("truncated: it has {} bytes of {}", has, needs));
}

bool write_all(const FileDescriptor& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), std::min(bytes.size(), kBytesPerWrite));
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

// Behind the fixed-size part of the header, since version 4.
struct Digests {
  std::uint64_t vocabulary = 0, chat_template = 0;
};

// The fixed-size part of the header, as in the file.
struct Fixed {
  std::array<char, 8> magic;
  std::uint32_t version, id_bytes;
  std::uint64_t model_hash, created, content_bytes;
  std::uint32_t block_size, num_tokens, num_computed, num_anchors, num_answers, layout;

  bool has_digests() const { return version >= 4; }
  std::uint64_t header_bytes() const {
    return sizeof(Fixed) + (has_digests() ? sizeof(Digests) : 0) + id_bytes +
           std::uint64_t{num_tokens} * sizeof(TokenId) + std::uint64_t{num_anchors} * kAnchorBytes + kChecksumBytes;
  }
};
static_assert(sizeof(Fixed) == 64 && std::has_unique_object_representations_v<Fixed>);  // no padding

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

std::vector<std::byte> pack_header(const SequenceRecord& record, const SequenceImage* image) {
  const std::vector<cache::Anchor> anchors = cache::anchors_of(record.tokens);
  const Fixed fixed{.magic = kMagic,
                    .version = kSequenceFileVersion,
                    .id_bytes = static_cast<std::uint32_t>(record.numerics_id.size()),
                    .model_hash = record.model_hash,
                    .created = record.created,
                    .content_bytes = image ? image->bytes().size() : 0,
                    .block_size = kBlockSize,
                    .num_tokens = static_cast<std::uint32_t>(record.tokens.size()),
                    .num_computed = image ? image->num_computed() : 0,
                    .num_anchors = static_cast<std::uint32_t>(anchors.size()),
                    .num_answers = record.num_answers,
                    .layout = image ? image->layout() : 0};
  TROUPE_ASSERT(fixed.num_tokens >= 1 && fixed.num_computed <= fixed.num_tokens && fixed.id_bytes <= kMaxIdBytes);
  std::vector<std::byte> header;
  append<Fixed>(header, {&fixed, 1});
  const Digests digests{.vocabulary = record.vocabulary_digest, .chat_template = record.template_digest};
  append<Digests>(header, {&digests, 1});
  append<char>(header, record.numerics_id);
  append<TokenId>(header, record.tokens);
  for (const cache::Anchor& anchor : anchors) {
    append<std::uint32_t>(header, {&anchor.position, 1});
    append<std::uint64_t>(header, {&anchor.hash, 1});
  }
  const std::uint32_t crc = extend_crc(0, header);
  append<std::uint32_t>(header, {&crc, 1});
  return header;
}

// Checks the numbers against each other and the limits of the format.
std::optional<Error> check_numbers(const std::string& path, const Fixed& fixed) {
  const auto other_version = [&](const char* age, const char* remedy) {
    return error(ErrorCode::unsupported, path,
                 fmt::format("version {} of the format is {} than this program, which reads versions {} and {}; {}",
                             fixed.version, age, kOldestSequenceFileVersion, kSequenceFileVersion, remedy));
  };
  if (fixed.magic != kMagic)
    return error(ErrorCode::unsupported, path, "not a saved sequence: it does not begin with troupeKV");
  if (fixed.version > kSequenceFileVersion) return other_version("newer", "use the newer troupe");
  if (fixed.version == 0) return damaged(path, "its version is 0");
  if (fixed.version < kOldestSequenceFileVersion) return other_version("older", "compute the sequence anew");
  if (fixed.num_tokens == 0) return damaged(path, "it has no tokens");
  if (fixed.block_size != kBlockSize)
    return damaged(path, fmt::format("its blocks have {} positions, not {}", fixed.block_size, kBlockSize));
  const struct {
    const char* what;
    std::uint32_t is, most;
  } bounds[] = {{"the length of numerics_id", fixed.id_bytes, kMaxIdBytes},
                {"the number of tokens", fixed.num_tokens, kMaxTokens},
                {"the number of computed tokens", fixed.num_computed, fixed.num_tokens}};
  for (const auto& [what, is, most] : bounds)
    if (is > most) return damaged(path, fmt::format("{} is {}, and can be {} at most", what, is, most));
  if (fixed.num_anchors != fixed.num_tokens / kBlockSize)
    return damaged(path, fmt::format("{} anchors do not fit {} tokens", fixed.num_anchors, fixed.num_tokens));
  if (fixed.num_computed == 0 && (fixed.content_bytes != 0 || fixed.layout != 0))
    return damaged(path, fmt::format("it has {} bytes of contents of no token", fixed.content_bytes));
  return std::nullopt;
}

}  // namespace

std::uint64_t sequence_file_bytes(const SequenceRecord& record, std::uint64_t content_bytes) {
  const std::uint64_t num_tokens = record.tokens.size();
  return sizeof(Fixed) + sizeof(Digests) + record.numerics_id.size() + num_tokens * sizeof(TokenId) +
         num_tokens / kBlockSize * kAnchorBytes + content_bytes + 2 * kChecksumBytes;
}

std::uint64_t max_token_file_bytes() {
  Fixed fixed{};
  fixed.version = kSequenceFileVersion;
  fixed.id_bytes = kMaxIdBytes;
  fixed.num_tokens = kMaxTokens;
  fixed.num_anchors = kMaxTokens / kBlockSize;
  return fixed.header_bytes() + kChecksumBytes;
}

Status write_sequence(const PrivateDirectory& directory, const std::string& name, const SequenceRecord& record,
                      const SequenceImage* image, const PublishSequence& publish) {
  const std::string temporary = "." + name + ".tmp";
  const auto not_written = [&] {
    Error failure = failed(directory.path_of(name), "cannot be written");
    ::unlinkat(directory.fd(), temporary.c_str(), 0);
    return failure;
  };
  ::unlinkat(directory.fd(), temporary.c_str(), 0);  // of a process that was killed
  const FileDescriptor file(
      ::openat(directory.fd(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return not_written();
  const std::span<const std::byte> contents = image ? image->bytes() : std::span<const std::byte>();
  const std::uint32_t crc = extend_crc(0, contents);
  const auto rename = [&] { return ::renameat(directory.fd(), temporary.c_str(), directory.fd(), name.c_str()) == 0; };
  const bool written = write_all(file, pack_header(record, image)) && write_all(file, contents) &&
                       write_all(file, std::as_bytes(std::span(&crc, 1))) && ::fsync(file.get()) == 0 &&
                       (publish ? publish(rename) : rename());
  if (!written) return not_written();
  if (::fsync(directory.fd()) != 0) return failed(directory.path_of(name), "written, but not synced");
  return Ok{};
}

Result<SequenceFile> SequenceFile::open(const PrivateDirectory& directory, const std::string& name) {
  const std::string path = directory.path_of(name);
  // Not to wait for a named pipe's other end.
  FileDescriptor file(::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 && errno == ELOOP) return error(ErrorCode::io, path, "cannot be read: it is a symbolic link");
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
  Digests digests;
  if (fixed.has_digests()) digests = take<Digests>(left, 1)[0];
  const std::vector<char> id = take<char>(left, fixed.id_bytes);
  SequenceFile out;
  out.record_ = {.numerics_id = {id.data(), id.size()},
                 .model_hash = fixed.model_hash,
                 .tokens = take<TokenId>(left, fixed.num_tokens),
                 .created = fixed.created,
                 .num_answers = fixed.num_answers,
                 .vocabulary_digest = digests.vocabulary,
                 .template_digest = digests.chat_template};
  for (std::uint32_t i = 0; i < fixed.num_anchors; ++i) {
    const std::uint32_t position = take<std::uint32_t>(left, 1)[0];
    out.anchors_.push_back({position, take<std::uint64_t>(left, 1)[0]});
  }
  if (take<std::uint32_t>(left, 1)[0] != crc) return damaged(path, "the checksum of its header is wrong");
  // It is part of messages and answers, which are UTF-8.
  if (std::ranges::any_of(id, [](char c) { return c < '!' || c > '~'; }))
    return damaged(path, "its numerics_id is not printable");
  if (std::ranges::any_of(out.record_.tokens, [](TokenId token) { return token < 0; }))
    return damaged(path, "a token is below 0");
  if (out.anchors_ != cache::anchors_of(out.record_.tokens))
    return damaged(path, "its anchors are not those of its tokens");
  const std::uint64_t beside = fixed.header_bytes() + kChecksumBytes;
  if (size < beside || size - beside < fixed.content_bytes)
    return error(ErrorCode::io, path,
                 fmt::format("truncated: it has {} bytes, of which {} are not contents; it should have {} of contents",
                             size, std::min(size, beside), fixed.content_bytes));
  if (size - beside > fixed.content_bytes)
    return damaged(path, fmt::format("{} bytes follow its end", size - beside - fixed.content_bytes));
  std::uint32_t none = 0;  // the checksum of no contents
  if (fixed.content_bytes == 0 && (!read_all(file, std::as_writable_bytes(std::span(&none, 1))) || none != 0))
    return damaged(path, "the checksum of its contents is wrong");
  out.path_ = path;
  out.file_ = std::move(file);
  out.header_bytes_ = fixed.header_bytes();
  out.content_bytes_ = fixed.content_bytes;
  out.file_bytes_ = size;
  out.version_ = fixed.version;
  out.num_computed_ = fixed.num_computed;
  out.layout_ = fixed.layout;
  return out;
}

Status SequenceFile::check(const LoadedModel& model) const {
  if (record_.numerics_id != model.numerics_id())
    return error(ErrorCode::unsupported, path_,
                 fmt::format("foreign: it was made under numerics {}, and this is {}; use the same model, kernel "
                             "variant and KV type, or compute it anew",
                             record_.numerics_id, model.numerics_id()));
  if (record_.model_hash != model.model().content_hash())
    return damaged(path_, fmt::format("its model hash contradicts its numerics {}", record_.numerics_id));
  if (Status known = check_vocabulary(model); !known) return known;
  if (record_.tokens.size() > model.info().context)
    return error(ErrorCode::invalid_argument, path_,
                 fmt::format("{} tokens are more than the context of {}; use a larger -c", record_.tokens.size(),
                             model.info().context));
  if (num_computed_ == 0) return Ok{};
  if (layout_ != SequenceImage::layout_of(model) || content_bytes_ != SequenceImage::bytes_for(model, num_computed_))
    return error(ErrorCode::unsupported, path_,
                 "foreign: its blocks have other layers in them than here: it was made under a -c on the other side of "
                 "the window of the model's layers; use that -c, or compute it anew");
  return Ok{};
}

Status SequenceFile::check_vocabulary(const LoadedModel& model) const {
  const auto unknown = std::ranges::find_if(
      record_.tokens, [&](TokenId token) { return static_cast<std::uint32_t>(token) >= model.info().vocab_size; });
  if (unknown == record_.tokens.end()) return Ok{};
  return damaged(path_, fmt::format("token {} is not in the vocabulary", *unknown));
}

Status SequenceFile::check_contents() const {
  if (::lseek(file_.get(), static_cast<off_t>(header_bytes_), SEEK_SET) < 0) return failed(path_, "cannot be read");
  std::vector<std::byte> part;
  std::uint32_t crc = 0, expected = 0;
  for (std::uint64_t left = content_bytes_; left > 0; left -= part.size()) {
    part.resize(std::min<std::uint64_t>(left, kBytesPerWrite));
    if (!read_all(file_, part)) return failed(path_, "cannot be read");
    crc = extend_crc(crc, part);
  }
  if (!read_all(file_, std::as_writable_bytes(std::span(&expected, 1)))) return failed(path_, "cannot be read");
  if (crc != expected) return damaged(path_, "the checksum of its contents is wrong");
  return Ok{};
}

bool is_other_version(const PrivateDirectory& directory, const std::string& name) {
  const FileDescriptor file(::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  Fixed fixed{};
  return file.get() >= 0 && read_all(file, std::as_writable_bytes(std::span(&fixed, 1))) && fixed.magic == kMagic &&
         fixed.version != 0 && (fixed.version < kOldestSequenceFileVersion || fixed.version > kSequenceFileVersion);
}

bool is_prefix(const SequenceFile& file, std::span<const TokenId> tokens) {
  const std::uint32_t count = file.num_computed();
  const std::vector<TokenId>& computed = file.record().tokens;
  return count > 0 && count <= tokens.size() && count <= computed.size() &&
         std::equal(tokens.begin(), tokens.begin() + count, computed.begin());
}

Status SequenceFile::read(SequenceImage& image) {
  TROUPE_ASSERT(image.num_computed() == num_computed_ && image.bytes().size() == content_bytes_);
  if (::lseek(file_.get(), static_cast<off_t>(header_bytes_), SEEK_SET) < 0) return failed(path_, "cannot be read");
  std::uint32_t expected = 0;
  if (!read_all(file_, image.bytes()) || !read_all(file_, std::as_writable_bytes(std::span(&expected, 1))))
    return errno == 0 ? damaged(path_, "it became shorter while it was read") : failed(path_, "cannot be read");
  if (extend_crc(0, image.bytes()) != expected) return damaged(path_, "the checksum of its contents is wrong");
  return Ok{};
}

}  // namespace troupe::engine
