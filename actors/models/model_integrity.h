// Whether a model that is served still is what was loaded: its canary, the checksums of its weights, its files.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/requests/request.h"
#include "actors/requests/status_snapshot.h"
#include "actors/serving/served_model.h"
#include "engine/compute/team.h"
#include "engine/formats/mapped_file.h"
#include "engine/weights/weight_checks.h"

namespace troupe::actors {

// A file of the model, as it was when it was opened.
struct OpenedFile {
  std::string path;
  engine::FileStamp stamp;
};

// What is different now; empty: nothing. Weights that are loaded are copies, so they stay what they were.
[[nodiscard]] std::string change_of(const OpenedFile& file);

// Thread-safe: counts() and is_watching() may be called by any thread; all others by one at a time, watch() by the one
// that loads and the rest by the one that checks.
class ModelIntegrity {
 public:
  // Runs a pass of the canary between other steps, and returns once it has run (Compute::measure).
  using RunPass = std::function<void(const std::function<void()>&)>;
  using Note = std::function<void(bool is_warning, const std::string& text)>;

  // Goes on counting from those of the same model before it was loaded again. Before watch().
  void go_on_from(const IntegrityCounts& before);

  // Watches a model that has been loaded and does not serve yet: takes its checksums and its canary, which is compared
  // with the value in `canary_file` of the same key, or recorded there. Returns what is wrong; nothing is
  // watched then. canary_file: empty: none. Throws what `run` throws, and bad_alloc.
  [[nodiscard]] std::optional<std::string> watch(const ServedModel& model, std::vector<OpenedFile> files,
                                                 engine::Team& team, const RunPass& run, const std::string& canary_file,
                                                 const Note& note);
  [[nodiscard]] bool is_watching() const;
  // Watches nothing any more, and lets the model go: its load has failed after all.
  void let_go();

  // Computes the canary again. Returns what is wrong. Throws as watch().
  [[nodiscard]] std::optional<std::string> run_canary(engine::Team& team, const RunPass& run);
  // Checks some more weights, of a pass that goes on from call to call: at most engine::WeightScan::kPieceBytes.
  // Returns their number; 0: the pass is complete, and the next call begins another.
  std::size_t check_piece();
  // What a pass has found damaged so far.
  [[nodiscard]] const std::optional<std::string>& damage() const { return damage_; }
  // Checks all weights now, until they are or `is_stopped` says so. Returns how many bytes.
  std::uint64_t check_all(const std::function<bool()>& is_stopped);
  // What has changed of its files on disk; empty: nothing. Reads their metadata.
  [[nodiscard]] std::string look_at_files();

  [[nodiscard]] IntegrityCounts counts() const;

  // For who checks: when that is due next.
  std::chrono::steady_clock::time_point next_canary{}, next_pass{};

 private:
  // key: becomes Canary::key(), unless it is null.
  std::uint64_t compute(engine::Team& team, const RunPass& run, std::string* key);
  std::size_t go_on(engine::WeightScan& scan);
  void count(const std::function<void(IntegrityCounts&)>& change);

  // Of the model, whose memory is watched.
  std::shared_ptr<const engine::LoadedModel> model_, draft_;
  std::shared_ptr<const engine::Encoder> encoder_;
  engine::WeightChecks checks_;
  std::optional<engine::WeightScan> scan_;
  std::optional<std::string> damage_;
  std::vector<OpenedFile> files_;
  std::uint64_t canary_ = 0;

  mutable std::mutex mutex_;
  bool watching_ = false;
  IntegrityCounts counts_;
};

}  // namespace troupe::actors
