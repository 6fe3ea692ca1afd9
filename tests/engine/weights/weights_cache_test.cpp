// Packed weights on disk: the same model comes back, and nothing that is wrong with a file reaches an answer.
#include "engine/weights/weights_cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::WeightsCache;
namespace fs = std::filesystem;
using engine::LoadedModel;
using engine::LoadNote;
using engine::LoadOptions;

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The notes of one load, and its result.
struct Load {
  std::shared_ptr<LoadedModel> model;
  std::vector<LoadNote> notes;

  std::size_t count(std::string_view part, bool warning = false) const {
    return static_cast<std::size_t>(std::count_if(notes.begin(), notes.end(), [&](const LoadNote& note) {
      return note.warning == warning && note.text.find(part) != std::string::npos;
    }));
  }
  std::size_t num_warnings() const { return count("", true); }
  bool says_first(std::string_view word) const {
    return std::any_of(notes.begin(), notes.end(), [&](const LoadNote& note) { return note.text.starts_with(word); });
  }
  bool packed() const { return says_first("packed ") && !says_first("read "); }
  bool read() const { return says_first("read ") && !says_first("packed "); }
  bool kept() const { return count(": kept ") == 1; }
  const std::string& id() const { return model->numerics_id(); }
  std::string all() const {
    std::string text;
    for (const LoadNote& note : notes) text += (note.warning ? "warning: " : "") + note.text + "\n";
    return text;
  }
};

class CacheDirectory {
 public:
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (fs::exists(path_))
      for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string only_file() const {
    const auto all = files();
    REQUIRE(all.size() == 1);
    return all[0];
  }

  Load load(const std::string& model, const std::string& kernels = "", std::uint64_t max_bytes = 0,
            bool distrusted = false) const {
    Load load;
    LoadOptions options;
    options.memory = 64u << 20;
    options.kernels = kernels;
    options.weights_cache = {.directory = path_, .max_bytes = max_bytes, .distrusted = distrusted};
    options.notes = [&load](const LoadNote& note) { load.notes.push_back(note); };
    auto loaded = LoadedModel::load(model, options);
    REQUIRE(loaded);
    load.model = *loaded;
    return load;
  }

 private:
  const TempFolder root_;
  const std::string path_ = root_.path("deep/er");  // made by the cache
};

std::string id_without_cache(const std::string& model, const std::string& kernels = "") {
  LoadOptions options;
  options.memory = 64u << 20;
  options.kernels = kernels;
  return (*LoadedModel::load(model, options))->numerics_id();
}

std::vector<float> logits_of(const LoadedModel& model) {
  engine::Team team(2);
  engine::Executor executor(model, team);
  SequenceRunner runner(executor, 1, {1, 2, 3, 40}, {0});
  return runner.run(3);
}

// A name for a model's bytes that a test may change; the memfd has no name.
struct ModelCopy {
  explicit ModelCopy(std::string bytes) : bytes(std::move(bytes)), file(this->bytes) {}
  explicit ModelCopy(const GgufWriter& writer) : ModelCopy(writer.bytes()) {}
  const std::string& path() const { return file.path(); }
  void flip(std::size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    file.write(bytes);
  }
  std::string bytes;
  TemporaryFile file;
};

TEST_CASE(
    "a cache that is not trusted is not read; it stays where the model is packed to the same, else it is replaced") {
  const CacheDirectory cache;
  (void)cache.load(kTales);
  const std::string path = cache.only_file(), good = read_bytes(path);
  const Load same = cache.load(kTales, "", 0, true);
  INFO(same.all());
  CHECK(same.packed());
  CHECK(same.count("stays, as it has the weights that the model was packed to") == 1);
  CHECK(same.num_warnings() == 0);
  CHECK(read_bytes(path) == good);
  // A header whose checksums are right, of weights that the model does not have.
  const auto count = engine::parse_weights_count(std::as_bytes(std::span(good)).first(engine::kWeightsFixedBytes));
  const std::size_t header_bytes = engine::weights_header_bytes(*count);
  auto header = engine::parse_weights_header(std::as_bytes(std::span(good)).first(header_bytes), good.size());
  REQUIRE(header);
  header->entries.front().header.checksum ^= 1;
  const std::vector<std::byte> bytes = engine::write_weights_header(*header);
  std::string other = good;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(other.data()));
  write_bytes(path, other);
  const Load replaced = cache.load(kTales, "", 0, true);
  INFO(replaced.all());
  CHECK(replaced.count("removed, as it had other weights") == 1);
  CHECK(replaced.kept());
  CHECK(read_bytes(path) == good);
}

TEST_CASE("a model read from the cache gives the same bits with all kernels") {
  const ModelCopy tiny(TinyLlama{}.writer());
  for (const std::string& path : {tiny.path(), kTales})
    for (const kernels::KernelTable* table : variants_here()) {
      const CacheDirectory cache;
      const std::string kernels(table->name);
      INFO(path << " " << kernels);
      const Load first = cache.load(path, kernels);
      CHECK(first.packed());
      CHECK(first.kept());
      CHECK(first.id() == id_without_cache(path, kernels));
      const Load second = cache.load(path, kernels);
      INFO(second.all());
      CHECK(second.read());
      CHECK(second.num_warnings() == 0);
      CHECK(second.id() == first.id());
      CHECK(second.model->model().weight_bytes() == first.model->model().weight_bytes());
      CHECK(logits_of(*second.model) == logits_of(*first.model));
      CHECK(::access(cache.only_file().c_str(), R_OK) == 0);
    }
}

TEST_CASE("each variant and model has its own file, and without a cache there is none") {
  const CacheDirectory cache;
  const ModelCopy one(TinyLlama{}.writer()), two(TinyLlama{.epsilon = 1e-6f}.writer());
  cache.load(one.path(), "scalar");
  cache.load(one.path(), "reference");
  cache.load(two.path(), "scalar");
  CHECK(cache.files().size() == 3);
  for (const std::string& file : cache.files()) {
    struct stat status {};
    REQUIRE(::stat(file.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
  }
  struct stat status {};
  REQUIRE(::stat(cache.path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(cache.load(one.path(), "reference").read());
  const CacheDirectory unused;
  id_without_cache(one.path());
  CHECK(unused.files().empty());
}

// One warning, the right weights, and a file that is whole again.
void require_rebuilt(const CacheDirectory& cache, const std::string& model, const std::string& id,
                     const std::string& says) {
  const Load load = cache.load(model, "scalar");
  INFO(load.all());
  REQUIRE(load.num_warnings() == 1);
  REQUIRE(load.count(says, true) == 1);
  REQUIRE(load.packed());
  REQUIRE(load.kept());
  REQUIRE(load.id() == id);
  const Load again = cache.load(model, "scalar");
  INFO(again.all());
  REQUIRE(again.read());
  REQUIRE(again.num_warnings() == 0);
  REQUIRE(again.id() == id);
}

TEST_CASE("damage to any byte of the header, or to the bodies, is detected") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file(), good = read_bytes(file);
  const auto num_matrices = static_cast<std::size_t>(static_cast<unsigned char>(good[56]));
  REQUIRE(num_matrices == 15);
  const std::size_t header_bytes = engine::weights_header_bytes(num_matrices);
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < header_bytes; ++at)
    if (at < engine::kWeightsStampAt || (at >= engine::kWeightsFixedBytes && at % 3 == 0)) places.push_back(at);
  places.insert(places.end(), {header_bytes - 1, 4096, 4096 + 64 * 20, good.size() - 1});
  for (const std::size_t at : places) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_bytes(file, bad);
    INFO("byte " << at);
    require_rebuilt(cache, model.path(), id, "the model is packed again");
  }
}

TEST_CASE("with a damaged stamp the model is hashed, and the stamp is written again") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file(), good = read_bytes(file);
  for (std::size_t at = engine::kWeightsStampAt; at < engine::kWeightsStampAt + 40; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_bytes(file, bad);
    const Load load = cache.load(model.path(), "scalar");
    INFO("byte " << at << "\n" << load.all());
    REQUIRE(load.read());
    REQUIRE(load.num_warnings() == 0);
    REQUIRE(load.count("copied or touched") == 1);
    REQUIRE(load.id() == id);
    const bool same = read_bytes(file) == good;  // not in CHECK, which would print all bytes
    REQUIRE(same);
  }
}

TEST_CASE("a file that was cut off or lengthened is detected") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file(), good = read_bytes(file);
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{127}, std::size_t{128}, std::size_t{500},
                                 std::size_t{4096}, good.size() / 2, good.size() - 1, good.size() + 1}) {
    std::string bad = good;
    bad.resize(size, '\0');
    write_bytes(file, bad);
    INFO("size " << size);
    require_rebuilt(cache, model.path(), id, "damaged");
  }
}

TEST_CASE("a file of another version, of another model or of another format is not used") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer()), other(TinyLlama{.epsilon = 1e-6f}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file(), good = read_bytes(file);
  std::string bytes = good;
  bytes[8] = 99;
  write_bytes(file, bytes);
  require_rebuilt(cache, model.path(), id, "version 99 of the format");
  bytes[8] = 2;  // its hashes were others
  write_bytes(file, bytes);
  require_rebuilt(cache, model.path(), id, "version 2 of the format, and this program has 3");
  write_bytes(file, "#!/bin/sh\n" + std::string(200, ' '));
  require_rebuilt(cache, model.path(), id, "not a file of packed weights");

  cache.load(other.path(), "scalar");
  for (const std::string& name : cache.files())
    if (name != file) fs::rename(name, file);
  require_rebuilt(cache, model.path(), id, "made for another model");
}

TEST_CASE("a file or directory that other users can write to is not used") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file();
  for (const mode_t mode : {0620, 0602, 0666}) {
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    require_rebuilt(cache, model.path(), id, "others may have written to it");
  }
  if (::geteuid() == 0) {
    REQUIRE(::chown(file.c_str(), 12345, 12345) == 0);
    require_rebuilt(cache, model.path(), id, "others may have written to it");
  }
  const std::string elsewhere = cache.path() + "/elsewhere";
  fs::rename(file, elsewhere);
  REQUIRE(::symlink(elsewhere.c_str(), file.c_str()) == 0);
  require_rebuilt(cache, model.path(), id, "cannot be opened");
  CHECK(fs::exists(elsewhere));
  REQUIRE(fs::remove(file));
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  require_rebuilt(cache, model.path(), id, "not a plain file");

  REQUIRE(::chmod(cache.path().c_str(), 0777) == 0);
  const Load load = cache.load(model.path(), "scalar");
  CHECK(load.packed());
  CHECK(load.num_warnings() == 1);
  CHECK(load.count("others may write to it", true) == 1);
  CHECK_FALSE(load.kept());
}

TEST_CASE("a path that cannot be a directory, or a file that cannot be replaced, is a warning") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file();
  fs::remove(file);
  fs::create_directory(file);
  const Load load = cache.load(model.path(), "scalar");
  CHECK(load.packed());
  CHECK(load.count("cannot be written", true) == 1);
  CHECK(load.id() == id);
  CHECK(cache.files().size() == 1);  // nothing is left behind

  fs::remove_all(cache.path());
  write_bytes(cache.path(), "");
  const Load nowhere = cache.load(model.path(), "scalar");
  CHECK(nowhere.num_warnings() == 1);
  CHECK(nowhere.count("cannot be opened", true) == 1);
  CHECK(nowhere.id() == id);
}

TEST_CASE("a changed model is packed again, also where its metadata and the sample are the same") {
  const CacheDirectory cache;
  ModelCopy model(read_bytes(kTales));
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file();
  model.flip(model.bytes.size() / 2);
  const std::string changed = id_without_cache(model.path(), "scalar");
  REQUIRE(changed != id);
  require_rebuilt(cache, model.path(), changed, "the model has changed");
  CHECK(cache.only_file() == file);
}

TEST_CASE("a copy of a model is the same model: its bytes are compared once") {
  const CacheDirectory cache;
  const ModelCopy model(read_bytes(kTales));
  const std::string id = cache.load(model.path(), "scalar").id();
  const ModelCopy copy(model.bytes);
  const Load first = cache.load(copy.path(), "scalar");
  INFO(first.all());
  CHECK(first.read());
  CHECK(first.count("copied or touched") == 1);
  CHECK(first.num_warnings() == 0);
  CHECK(first.id() == id);
  const Load second = cache.load(copy.path(), "scalar");
  CHECK(second.read());
  CHECK(second.count("copied or touched") == 0);
}

TEST_CASE("a split model and the whole one have one file in the cache, which a write to any part makes stale") {
  const GgufWriter whole = TinyLlama{}.writer();
  const CacheDirectory cache;
  const ModelCopy one_file(whole);
  const std::string id = cache.load(one_file.path(), "scalar").id();
  const std::string file = cache.only_file(), bytes = read_bytes(file);
  const TempFolder folder;
  const std::string first = folder.path("m-00001-of-00003.gguf"), last = folder.path("m-00003-of-00003.gguf");
  const std::vector<GgufWriter> parts = whole.parts({4, 11});
  write_bytes(first, parts[0].bytes());
  write_bytes(folder.path("m-00002-of-00003.gguf"), parts[1].bytes());
  write_bytes(last, parts[2].bytes());
  const Load compared = cache.load(first, "scalar");
  INFO(compared.all());
  CHECK(compared.read());
  CHECK(compared.count("copied or touched") == 1);
  CHECK(compared.id() == id);
  const Load again = cache.load(first, "scalar");
  CHECK(again.read());
  CHECK(again.count("copied or touched") == 0);
  CHECK(cache.only_file() == file);

  fs::remove(file);
  CHECK(cache.load(first, "scalar").kept());
  const auto without_stamp = [](std::string header) {
    return header.replace(engine::kWeightsStampAt, engine::kWeightsFixedBytes - engine::kWeightsStampAt, "");
  };
  const bool same = without_stamp(read_bytes(cache.only_file())) == without_stamp(bytes);
  CHECK(same);

  std::string changed = parts[2].bytes();
  changed[changed.size() - 50] = static_cast<char>(changed[changed.size() - 50] ^ 1);
  write_bytes(last, changed);
  const std::string other = id_without_cache(first, "scalar");
  REQUIRE(other != id);
  require_rebuilt(cache, first, other, "the model has changed");
}

TEST_CASE("several loads of the same model at the same time all succeed") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = cache.load(model.path(), "scalar").id();
  const std::string file = cache.only_file();
  std::mutex mutex;
  std::vector<std::string> ids;
  std::size_t warnings = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        LoadOptions options;
        options.memory = 64u << 20;
        options.kernels = "scalar";
        options.weights_cache = {.directory = cache.path(), .max_bytes = 0};
        options.notes = [&](const LoadNote& note) {
          const std::lock_guard lock(mutex);
          warnings += note.warning;
        };
        const auto loaded = LoadedModel::load(model.path(), options);
        const std::lock_guard lock(mutex);
        ids.push_back(loaded ? (*loaded)->numerics_id() : loaded.error().message);
        if (round % 3 == 0) fs::remove(file);  // evicted
      }
    });
  threads.clear();
  CHECK(std::all_of(ids.begin(), ids.end(), [&](const std::string& each) { return each == id; }));
  CHECK(warnings == 0);
  cache.load(model.path(), "scalar");
  CHECK(cache.files().size() == 1);
  CHECK(cache.load(model.path(), "scalar").read());
}

TEST_CASE("a load ends soon after its team is stopped, at any point, and leaves no file") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  for (const bool kept : {false, true}) {
    for (const double reached : {0.0, 0.5, 1.0}) {  // at 1 all is packed, and is written where it is kept
      engine::Team team(2);
      double last = 0;
      LoadOptions options;
      options.memory = 64u << 20;
      options.team = &team;
      if (kept) options.weights_cache.directory = cache.path();
      options.progress = [&](double fraction) {
        last = fraction;
        if (fraction >= reached) team.stop();
      };
      INFO("kept " << kept << ", stopped at " << reached);
      if (reached < 1 || kept) {
        CHECK_THROWS_AS(LoadedModel::load(model.path(), options), engine::Stopped);
        CHECK(last < reached + 0.5);
      }
      CHECK(cache.files().empty());
    }
  }
}

TEST_CASE("a full disk is a warning") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  const std::string id = id_without_cache(model.path(), "scalar");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 10000;  // in the middle of the bodies
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Load load = cache.load(model.path(), "scalar");
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  INFO(load.all());
  CHECK(load.num_warnings() == 1);
  CHECK(load.count("cannot be written: File too large; the weights are not kept", true) == 1);
  CHECK(load.id() == id);
  CHECK(cache.files().empty());
}

void set_age(const std::string& file, std::int64_t seconds) {
  const timespec when{std::time(nullptr) - seconds, 0};
  const timespec times[2] = {when, when};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
}

TEST_CASE("the cache stays within its limit: the least recently used file is evicted first") {
  const CacheDirectory cache;
  const ModelCopy a(TinyLlama{}.writer()), b(TinyLlama{.epsilon = 2e-5f}.writer()),
      c(TinyLlama{.epsilon = 3e-5f}.writer());
  cache.load(a.path(), "scalar");
  const std::string file_a = cache.only_file();
  const std::uint64_t bytes = fs::file_size(file_a), limit = 2 * bytes + bytes / 2;
  cache.load(b.path(), "scalar", limit);
  REQUIRE(cache.files().size() == 2);
  const std::string file_b = cache.files()[cache.files()[0] == file_a ? 1 : 0];
  set_age(file_a, 200);
  set_age(file_b, 100);
  CHECK(cache.load(a.path(), "scalar", limit).read());  // used: now b is the oldest
  const Load third = cache.load(c.path(), "scalar", limit);
  CHECK(third.count("evicted " + file_b) == 1);
  CHECK(cache.files().size() == 2);
  CHECK(fs::exists(file_a));
  CHECK_FALSE(fs::exists(file_b));

  const CacheDirectory tiny;
  const Load none = tiny.load(a.path(), "scalar", 1000);
  CHECK(none.count("more than the limit of 0.00 GB; they are not kept (raise --weights-cache-size)", true) == 1);
  CHECK(tiny.files().empty());
}

TEST_CASE("temporary files of killed writers are removed, other files are not") {
  const CacheDirectory cache;
  const ModelCopy model(TinyLlama{}.writer());
  fs::create_directories(cache.path());
  fs::permissions(cache.path(), fs::perms::owner_all);
  const std::string old_one = cache.path() + "/0123456789abcdef-1111111111111111.weights.tmp";
  const std::string young_one = cache.path() + "/0123456789abcdef-2222222222222222.weights.tmp";
  const std::string foreign = cache.path() + "/my.weights";
  for (const std::string& file : {old_one, young_one, foreign}) write_bytes(file, std::string(5000, 'x'));
  set_age(old_one, 2 * 3600);
  set_age(foreign, 1000 * 3600);
  set_age(young_one, 1000);
  const CacheDirectory measured;
  measured.load(model.path(), "scalar");
  const std::uint64_t bytes = fs::file_size(measured.only_file());
  cache.load(model.path(), "scalar", bytes + 1000);  // more together with the file being written
  CHECK_FALSE(fs::exists(old_one));
  CHECK(fs::exists(young_one));
  CHECK(fs::exists(foreign));
}

TEST_CASE("a header holds the matrices of a large mixture of experts") {
  engine::WeightsHeader header{
      .recipe = 1, .model_hash = 2, .source_hash = 3, .variant = "scalar", .file_bytes = 0, .stamp = {}, .entries = {}};
  const std::uint64_t body = kernels::packed_bytes(kernels::WeightType::f32, kernels::Layout::file, 1, 4);
  std::uint64_t end = engine::weights_header_bytes(70'000);
  for (std::uint64_t i = 0; i < 70'000; ++i) {
    const std::uint64_t offset = (end + 4095) / 4096 * 4096;
    end = offset + body;
    header.entries.push_back({.name_hash = i,
                              .offset = offset,
                              .header = {.version = 1,
                                         .type = kernels::WeightType::f32,
                                         .layout = kernels::Layout::file,
                                         .rows = 1,
                                         .k = 4,
                                         .body_bytes = body,
                                         .checksum = 0,
                                         .content = 0}});
  }
  header.file_bytes = end;
  const auto parsed = engine::parse_weights_header(engine::write_weights_header(header), end);
  if (!parsed) FAIL(parsed.error().message);
  CHECK(parsed->entries.size() == 70'000);
  CHECK(parsed->entries.back().name_hash == 69'999);
}

TEST_CASE("more matrices than a file can hold are not kept, with a warning") {
  const CacheDirectory directory;
  const ModelCopy copy(TinyLlama{}.writer());
  const auto file = engine::open_gguf(copy.path());
  REQUIRE(file);
  engine::Team team(1);
  std::vector<LoadNote> notes;
  const engine::LoadNotes keep_note = [&](const LoadNote& note) { notes.push_back(note); };
  WeightsCache cache({.directory = directory.path()}, **file, "scalar", kernels::Layout::panels, team, keep_note);
  REQUIRE(cache.is_used());
  const std::vector<std::byte> nothing(engine::kPackedHeaderBytes);
  cache.keep(std::vector<WeightsCache::Matrix>(engine::kMaxWeightsEntries + 1, {.name_hash = 1, .bytes = nothing}), 0);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].warning);
  CHECK(notes[0].text.find("1048577 matrices are more than the 1048576 that a file can hold") != std::string::npos);
  CHECK(directory.files().empty());
}

}  // namespace
}  // namespace troupe::test
