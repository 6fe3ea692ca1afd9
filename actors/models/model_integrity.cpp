#include "actors/models/model_integrity.h"

#include <fmt/format.h>

#include <ctime>

#include "engine/formats/model_file.h"
#include "engine/model/canary.h"
#include "engine/model/canary_file.h"

namespace troupe::actors {
namespace {

// "2026-11-29 14:03 UTC".
std::string day_and_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "an unknown time";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min);
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace

std::string change_of(const OpenedFile& file) {
  const auto now = engine::open_gguf(file.path);
  if (!now) return now.error().message;
  const engine::FileStamp stamp = (*now)->stamp();
  if (stamp.bytes != file.stamp.bytes)
    return fmt::format("{}: has {} bytes, and had {} when it was loaded", file.path, stamp.bytes, file.stamp.bytes);
  if (stamp.mtime_ns != file.stamp.mtime_ns) return file.path + ": was written to since it was loaded";
  if (stamp.inode != file.stamp.inode) return file.path + ": is another file than the one that was loaded";
  return {};
}

std::optional<std::string> ModelIntegrity::watch(const ServedModel& model, std::vector<OpenedFile> files,
                                                 engine::Team& team, const RunPass& run, const std::string& canary_file,
                                                 const Note& note) {
  model_ = model.language_model();
  draft_ = model.draft_model();
  encoder_ = model.encoder();
  files_ = std::move(files);
  checks_ = {};
  if (model_) checks_.add(model_->model());
  if (encoder_) checks_.add(*encoder_);
  if (draft_) checks_.add(draft_->model());
  const auto began = std::chrono::steady_clock::now();
  std::string id;
  const std::uint64_t value = compute(team, run, &id);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::optional<engine::KeptCanary> kept;
  if (!canary_file.empty()) {
    const auto found = engine::find_canary(canary_file, id);
    if (!found) note(true, found.error().message + "; the canaries of earlier loads are not compared");
    if (found) kept = *found;
  }
  const std::int64_t now = std::time(nullptr);
  const bool differs = kept && kept->value != value;
  count([&](IntegrityCounts& counts) {
    counts.canary_failures += differs ? 1 : 0;
    counts.weight_bytes = checks_.bytes();
    if (!differs) counts.last_canary = now;
  });
  if (differs) {
    let_go();
    return fmt::format("its canary is {}, and {} was recorded in {} on {} for the same numerics {}", hex(value),
                       hex(kept->value), canary_file, day_and_time(kept->since), id);
  }
  if (!kept && !canary_file.empty()) {
    const Status written = engine::keep_canary(canary_file, id, {value, now});
    note(!written, written ? fmt::format("canary {} in {:.2f} s; it is recorded in {}, the first of numerics {}",
                                         hex(value), seconds, canary_file, id)
                           : "the canary is not recorded: " + written.error().message);
  } else if (kept) {
    note(false,
         fmt::format("canary {} in {:.2f} s, as recorded on {}", hex(value), seconds, day_and_time(kept->since)));
  }
  canary_ = value;
  scan_.reset();
  damage_.reset();
  const std::lock_guard lock(mutex_);
  watching_ = true;
  return std::nullopt;
}

void ModelIntegrity::let_go() {
  {
    const std::lock_guard lock(mutex_);
    watching_ = false;
  }
  scan_.reset();
  checks_ = {};
  model_ = nullptr;
  draft_ = nullptr;
  encoder_ = nullptr;
}

void ModelIntegrity::go_on_from(const IntegrityCounts& before) {
  count([&](IntegrityCounts& counts) {
    counts = before;
    counts.weight_bytes = 0;
    counts.file_changed = false;
  });
}

bool ModelIntegrity::is_watching() const {
  const std::lock_guard lock(mutex_);
  return watching_;
}

std::optional<std::string> ModelIntegrity::run_canary(engine::Team& team, const RunPass& run) {
  const std::uint64_t value = compute(team, run, nullptr);
  const std::int64_t now = std::time(nullptr);
  const bool differs = value != canary_;
  count([&](IntegrityCounts& counts) {
    counts.canary_failures += differs ? 1 : 0;
    if (!differs) counts.last_canary = now;
  });
  if (!differs) return std::nullopt;
  return fmt::format("its canary is {}, and was {} when it was loaded", hex(value), hex(canary_));
}

// The value; counts the run.
std::uint64_t ModelIntegrity::compute(engine::Team& team, const RunPass& run, std::string* key) {
  const auto canary = model_ ? engine::make_canary(*model_) : engine::make_canary(*encoder_);
  if (key) *key = canary->key();
  bool complete = false;
  while (!complete) run([&] { complete = canary->advance(team); });
  count([](IntegrityCounts& counts) { ++counts.canary_runs; });
  return canary->value();
}

std::size_t ModelIntegrity::check_piece() {
  if (!scan_) scan_.emplace(checks_);
  const std::size_t bytes = go_on(*scan_);
  if (bytes == 0) scan_.reset();
  return bytes;
}

std::uint64_t ModelIntegrity::check_all(const std::function<bool()>& is_stopped) {
  engine::WeightScan scan(checks_);
  std::uint64_t seen = 0;
  while (!is_stopped()) {
    const std::size_t bytes = go_on(scan);
    if (bytes == 0) break;
    seen += bytes;
  }
  return seen;
}

std::size_t ModelIntegrity::go_on(engine::WeightScan& scan) {
  const std::size_t bytes = scan.next();
  const bool is_new = scan.damage() && !damage_;
  if (is_new) damage_ = *scan.damage() + " is not what was loaded";
  const std::int64_t now = std::time(nullptr);
  count([&](IntegrityCounts& counts) {
    counts.checked_bytes += bytes;
    counts.weight_failures += is_new ? 1 : 0;
    if (bytes == 0 && !damage_) counts.last_pass = now;
  });
  return bytes;
}

std::string ModelIntegrity::look_at_files() {
  std::string changes;
  for (const OpenedFile& file : files_) {
    const std::string change = change_of(file);
    if (!change.empty()) changes += (changes.empty() ? "" : "; ") + change;
  }
  count([&](IntegrityCounts& counts) { counts.file_changed = !changes.empty(); });
  return changes;
}

IntegrityCounts ModelIntegrity::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ModelIntegrity::count(const std::function<void(IntegrityCounts&)>& change) {
  const std::lock_guard lock(mutex_);
  change(counts_);
}

}  // namespace troupe::actors
