// A sequence in a file: its tokens, and the K, V and state of those that were computed, to continue later or in another
// process with the same bits as without the break.
//
// The format, version 4 (hashes are XXH3); integers are little-endian:
//
//   magic "troupeKV" | u32 version | u32 bytes of numerics_id (<= 256, printable ASCII) | u64 model hash
//   u64 seconds since 1970 when it was begun | u64 bytes of contents | u32 positions per block | u32 tokens (<= 2^24)
//   u32 of these computed (0: there are no contents) | u32 anchors (one per full block of tokens)
//   u32 answers in it | u32 layout of the contents (SequenceImage::layout_of(); 0: there are none)
//   u64 digest of the vocabulary | u64 digest of the chat template (version 3 has neither)
//   numerics_id | tokens, i32 each | anchors, each u32 position, u64 hash
//   u32 CRC-32 of all bytes so far (the header)
//   the contents: SequenceImage::bytes() after the computed tokens
//   u32 CRC-32 of the contents
//
// CRC-32 (zlib's: a dependency that Protobuf brings anyway, and faster than any disk here) detects damage, not
// manipulation: a file is trusted as far as a prompt is, and every count in it is checked.
//
// Version 3 is read, too, and never written.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_hash.h"
#include "config/file_descriptor.h"
#include "config/private_directory.h"
#include "config/result.h"
#include "engine/engine.h"
#include "engine/model/sequence_image.h"

namespace troupe::engine {

inline constexpr std::uint32_t kSequenceFileVersion = 4;
inline constexpr std::uint32_t kOldestSequenceFileVersion = 3;

// What a file says of its sequence, without K and V.
struct SequenceRecord {
  std::string numerics_id;  // LoadedModel::numerics_id()
  std::uint64_t model_hash = 0;
  std::vector<TokenId> tokens;    // at least one
  std::uint64_t created = 0;      // seconds since 1970
  std::uint32_t num_answers = 0;  // among the tokens
  // Under another model the tokens can be computed anew where it has both of these. 0: not known, as in version 3.
  std::uint64_t vocabulary_digest = 0;  // LoadedModel::vocabulary_digest()
  std::uint64_t template_digest = 0;    // of the chat template with which its conversation was written
};

// The size of a file with so many bytes of contents.
[[nodiscard]] std::uint64_t sequence_file_bytes(const SequenceRecord& record, std::uint64_t content_bytes);

// The largest file without contents.
[[nodiscard]] std::uint64_t max_token_file_bytes();

// Decides whether a file that is written and synced under its temporary name gets its own: calls `rename`, which says
// whether it did, or not. False: the file did not get its name.
using PublishSequence = std::function<bool(const std::function<bool()>& rename)>;

// Writes a file, all or nothing: a temporary one beside it (mode 0600, ".NAME.tmp") is written, synced and renamed,
// then the directory is synced. One caller at a time for a name. image: null, or after as many tokens as the record
// has, or fewer. publish: none, if nothing else is to be decided. Any thread. Error: io, with the system's message;
// then a file of that name is unchanged, unless `publish` said that it is the new one: then the directory could not be
// synced.
Status write_sequence(const PrivateDirectory& directory, const std::string& name, const SequenceRecord& record,
                      const SequenceImage* image, const PublishSequence& publish = {});

// Reads a file: first its header, then, if they are needed, the contents. Any thread.
//
// Keeps the file open: one that is renamed to its name in the meantime is not read.
class SequenceFile {
 public:
  // Reads and checks all but the contents, O(tokens); needs no model. Symbolic links are not followed. Errors: io (not
  // there, truncated, damaged), unsupported (not such a file, another version).
  static Result<SequenceFile> open(const PrivateDirectory& directory, const std::string& name);

  [[nodiscard]] const SequenceRecord& record() const { return record_; }
  [[nodiscard]] const std::vector<cache::Anchor>& anchors() const { return anchors_; }
  [[nodiscard]] std::uint32_t num_computed() const { return num_computed_; }
  [[nodiscard]] std::uint64_t content_bytes() const { return content_bytes_; }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] std::uint32_t version() const { return version_; }

  // Whether the contents fit this model, each error with a remedy in its message: unsupported (made with another model,
  // kernel variant or KV type, or under a context on the other side of the model's window), io (ids beyond the
  // vocabulary), invalid_argument (longer than the context served).
  [[nodiscard]] Status check(const LoadedModel& model) const;
  // Whether all tokens are in this model's vocabulary, whatever else fits. Error: io.
  [[nodiscard]] Status check_vocabulary(const LoadedModel& model) const;
  // Reads the contents and compares their checksum, without a model. Error: io (truncated or damaged).
  [[nodiscard]] Status check_contents() const;
  // Reads the contents. image: made for a model that check() accepts and num_computed() tokens. Error: io (truncated or
  // damaged); then the image must not be used.
  Status read(SequenceImage& image);

 private:
  SequenceFile() = default;
  std::string path_;         // for messages
  FileDescriptor file_{-1};  // stays open, even if the name is replaced
  std::uint64_t header_bytes_ = 0;
  std::uint64_t content_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::uint32_t version_ = 0;
  SequenceRecord record_;
  std::vector<cache::Anchor> anchors_;
  std::uint32_t num_computed_ = 0;
  std::uint32_t layout_ = 0;
};

// Whether the file is one of another version of the format: not damaged, but not read.
[[nodiscard]] bool is_other_version(const PrivateDirectory& directory, const std::string& name);
// Whether it has contents, and the tokens that they are of are the first of these.
[[nodiscard]] bool is_prefix(const SequenceFile& file, std::span<const TokenId> tokens);

}  // namespace troupe::engine
