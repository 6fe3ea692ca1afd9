// Packed weights on disk: a model that was loaded before is read in its packed form instead of being packed again.
//
// One file per model and kernel variant (engine/weights/weights_file.h), named by a hash of the model's metadata, its
// tensor directory, its size and a sample of its tensors: not by its path. The stamp (inode, size, mtime, ctime) shows
// that the model is still the one that was packed. If the stamp differs, because the model was copied, moved or written
// to, all of the model is hashed and compared with its hash at packing time.
//
// A file is not trusted: its owner and mode, header, every number and the checksum of every body are checked before
// use. Weights that fail a check are packed and written again. Files are written under a temporary name, synced and
// renamed, so that they are complete or absent, even if several processes write the same one. Checksums detect damage,
// not manipulation: the directory must belong to the user of the process, and no other user may have write access.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/file_descriptor.h"
#include "config/result.h"
#include "engine/formats/model_file.h"
#include "engine/weights/packed_matrix.h"
#include "engine/weights/weights_file.h"

namespace troupe::engine {

class Team;

struct WeightsCacheOptions {
  std::string directory;        // empty: no cache
  std::uint64_t max_bytes = 0;  // of all files in it; 0: any
  // The model's file is not read: what was computed with its weights was wrong. It is replaced, unless the weights that
  // are packed instead are the same.
  bool distrusted = false;
};

// One line about loading, for the log.
struct LoadNote {
  bool warning = false;
  std::string text;
};
using LoadNotes = std::function<void(const LoadNote&)>;

// The hash of one tensor; the sum over all tensors is the source hash, in any order.
[[nodiscard]] std::uint64_t tensor_hash(Team& team, const TensorInfo& tensor);

// The cache during one load of one model. Failures are warnings, not errors: the load goes on without a cache.
class WeightsCache {
 public:
  struct Matrix {
    std::uint64_t name_hash;
    std::span<const std::byte> bytes;  // PackedMatrix::bytes
  };

  // Whether there is a file for the model with ternary weights in this layout; does not check its contents.
  static bool has_file(const WeightsCacheOptions& options, const ModelFile& file, std::string_view variant,
                       kernels::Layout ternary);

  // Opens the directory, creating it if absent, and the model's file in it. `file` and `team` must outlive the object.
  // `ternary`: the layout of ternary weights, panels, lookup or trits; each has a file of its own.
  WeightsCache(const WeightsCacheOptions& options, const ModelFile& file, std::string_view variant,
               kernels::Layout ternary, Team& team, LoadNotes notes);

  bool is_used() const { return directory_.get() >= 0; }  // the directory is open
  bool has_model() const { return header_.has_value(); }
  const std::string& path() const { return path_; }

  // Reads a matrix from the model's file (requires has_model()). Empty: it is absent or damaged, and the file is no
  // longer used. form.layout: the variant's; ternary weights may have been packed as panels instead. Error:
  // out_of_memory.
  Result<PackedMatrix> read(std::string_view name, const MatrixForm& form, const std::shared_ptr<MemoryPolicy>& policy);

  // Writes the model's file, after evicting the least recently used ones; writes nothing if there are more matrices
  // than kMaxWeightsEntries. `source_hash`: the sum of tensor_hash. Throws Stopped soon after the team is stopped, and
  // then leaves no file behind.
  void keep(std::span<const Matrix> matrices, std::uint64_t source_hash);

  static std::uint64_t hash_of_name(std::string_view name);

 private:
  void open_directory();
  void open_file();
  Result<WeightsHeader> read_header(int file) const;
  Status check_source(int file, const WeightsHeader& header);
  bool is_distrusted_file(const WeightsHeader& header) const;
  bool make_room(std::uint64_t bytes);
  Status write_file(std::span<const Matrix> matrices, WeightsHeader header);
  bool write_body(int file, std::uint64_t offset, std::span<const std::byte> body) const;
  bool wait_for_disk(int file, std::uint64_t bytes) const;
  void note(const std::string& what) const;
  void warn(const std::string& what) const;

  WeightsCacheOptions options_;
  const ModelFile& model_;
  std::string variant_;
  Team& team_;
  LoadNotes notes_;
  std::string name_, path_;
  FileDescriptor directory_{-1}, file_{-1};
  std::optional<WeightsHeader> header_;
  std::optional<WeightsHeader> distrusted_;                // of a file that is not read
  std::unordered_map<std::uint64_t, std::size_t> places_;  // index of header_'s entries, by the hash of their names
};

}  // namespace troupe::engine
