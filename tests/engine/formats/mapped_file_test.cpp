// A model file that changes while it is open: no signal ends the process, and what was read of it is not used.
#include "engine/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/compute/team.h"
#include "engine/engine.h"
#include "tests/support/descriptors.h"
#include "tests/support/sanitized.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::LoadedModel;
using engine::LoadOptions;
using engine::MappedFile;

constexpr std::size_t kPage = 4096;

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  REQUIRE(std::filesystem::file_size(path) == bytes.size());
}

std::size_t count_ones(std::span<const std::byte> bytes) {
  return static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), std::byte{1}));
}

TEST_CASE("pages that a mapped file has lost are read as zeros, and the file says so") {
  const TempFolder folder;
  const std::string path = folder.path("m");
  write_file(path, std::string(8 * kPage + 100, '\1'));
  const auto whole = MappedFile::open(path);
  REQUIRE(whole);
  const auto other = MappedFile::open(path);
  REQUIRE(other);
  REQUIRE(count_ones((*whole)->bytes()) == 8 * kPage + 100);
  REQUIRE((*whole)->check_unchanged());
  REQUIRE(::truncate(path.c_str(), 3 * kPage) == 0);
  REQUIRE(count_ones((*whole)->bytes().first(3 * kPage)) == 3 * kPage);
  REQUIRE((*whole)->is_whole());  // of what was read
  REQUIRE(count_ones((*whole)->bytes()) == 3 * kPage);
  REQUIRE_FALSE((*whole)->is_whole());
  const Status changed = (*whole)->check_unchanged();
  REQUIRE_FALSE(changed);
  REQUIRE(changed.error().code == ErrorCode::bad_model);
  REQUIRE(changed.error().message.find("it has 12288 of the 32868 bytes") != std::string::npos);
  REQUIRE((*other)->is_whole());  // nothing was read there
  REQUIRE_FALSE((*other)->check_unchanged());
  // The bytes come back, but were not there when they were read.
  (*whole)->drop_pages((*whole)->bytes());
  write_file(path, std::string(8 * kPage + 100, '\1'));
  REQUIRE_FALSE((*whole)->check_unchanged());
  REQUIRE(count_ones((*other)->bytes()) == 8 * kPage + 100);
}

TEST_CASE("a byte that the last page still has room for is missed by its size") {
  const TempFolder folder;
  const std::string path = folder.path("m");
  write_file(path, std::string(kPage + 100, '\1'));
  const auto file = MappedFile::open(path);
  REQUIRE(file);
  REQUIRE(::truncate(path.c_str(), kPage + 99) == 0);
  REQUIRE(count_ones((*file)->bytes()) == kPage + 99);
  REQUIRE((*file)->is_whole());
  REQUIRE_FALSE((*file)->check_unchanged());
}

TEST_CASE("threads of a team may read what is lost, all at once") {
  const TempFolder folder;
  const std::string path = folder.path("m");
  constexpr std::size_t kPages = 256;
  write_file(path, std::string(kPages * kPage, '\1'));
  engine::Team team(3);
  for (std::size_t left : {kPages - 1, std::size_t{17}, std::size_t{0}}) {
    write_file(path, std::string(kPages * kPage, '\1'));
    const auto file = MappedFile::open(path);
    REQUIRE(file);
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(left * kPage)) == 0);
    std::atomic<std::size_t> ones = 0;
    team.parallel_for(kPages, [&](std::size_t page, std::uint32_t) {
      ones += count_ones((*file)->bytes().subspan((kPages - 1 - page) * kPage, kPage));
    });
    REQUIRE(ones <= left * kPage);
    REQUIRE_FALSE((*file)->is_whole());
  }
}

TEST_CASE("as many files as the table has places may be open, one more is refused, and places are given back") {
  constexpr std::size_t kOthers = 16;
  if (take_descriptors() < MappedFile::kMaxOpen + kOthers) return skip("too few descriptors (ulimit -n)");
  const TempFolder folder;
  const std::string path = folder.path("m");
  write_file(path, "x");
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<MappedFile>> open;
    for (std::size_t i = 0; i < MappedFile::kMaxOpen; ++i) {
      auto file = MappedFile::open(path);
      REQUIRE(file);
      open.push_back(std::move(*file));
    }
    const auto one_more = MappedFile::open(path);
    REQUIRE_FALSE(one_more);
    REQUIRE(one_more.error().code == ErrorCode::io);
    REQUIRE(one_more.error().message.find("512 model files are open") != std::string::npos);
  }
}

TEST_CASE("a fault elsewhere still ends the process by its signal") {
  if (kSanitized) return;  // a sanitizer has a handler of its own
  const TempFolder folder;
  const std::string path = folder.path("m");
  write_file(path, std::string(kPage, '\1'));
  const auto file = MappedFile::open(path);  // the handler is there
  REQUIRE(file);
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(path.c_str(), O_RDONLY);
    const auto* const mine = static_cast<const volatile char*>(::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, fd, 0));
    if (::truncate(path.c_str(), 0) != 0) ::_exit(1);
    ::_exit(mine[0]);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGBUS);
}

// Loads a copy of the embedded model, and calls change() once, when a part of the weights has been read.
Result<std::shared_ptr<LoadedModel>> load_changing(const TempFolder& folder, double when,
                                                   const std::function<void(const std::string&)>& change,
                                                   std::uint32_t num_threads = 2) {
  const std::string path = folder.path("model.gguf");
  std::filesystem::copy_file(TROUPE_MODELS "/tales-5m-tq2_0.gguf", path,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  engine::Team team(num_threads);
  LoadOptions options;
  options.memory = 64u << 20;
  options.team = &team;
  options.weights_cache.directory = folder.path("cache");
  bool changed = false;
  options.progress = [&](double done) {
    if (changed || done < when) return;
    changed = true;
    change(path);
  };
  auto loaded = LoadedModel::load(path, options);
  REQUIRE(changed);
  return loaded;
}

TEST_CASE("a model file that is cut off while it loads is refused by name, and nothing of it is kept") {
  const TempFolder folder;
  for (const std::uint32_t threads : {1, 3})
    for (const double when : {0.0, 0.3, 0.9})
      for (const std::uintmax_t left : {0, 100, 400'000, 1'000'000}) {
        INFO(threads << " threads, cut at " << when << " to " << left << " bytes");
        const auto cut = [&](const std::string& path) { std::filesystem::resize_file(path, left); };
        const auto loaded = load_changing(folder, when, cut, threads);
        REQUIRE_FALSE(loaded);
        CHECK(loaded.error().code == ErrorCode::bad_model);
        CHECK(loaded.error().message.find("model.gguf: was cut off while it was read") != std::string::npos);
        CHECK((!std::filesystem::exists(folder.path("cache")) || std::filesystem::is_empty(folder.path("cache"))));
      }
}

TEST_CASE("a model file that is written to while it loads is refused by name") {
  const TempFolder folder;
  const auto append = [](const std::string& path) { std::ofstream(path, std::ios::app) << "more"; };
  const auto overwrite = [](const std::string& path) {
    std::fstream(path).seekp(1000) << "other";
    // The clock of the file system may not have ticked.
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  };
  for (const auto& change : {std::function<void(const std::string&)>(append), {overwrite}}) {
    const auto loaded = load_changing(folder, 0.5, change);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().message.find("model.gguf: was written to while it was read") != std::string::npos);
  }
  // Renamed, linked or deleted, it is the same file.
  REQUIRE(load_changing(folder, 0.5, [](const std::string& path) { std::filesystem::remove(path); }));
}

}  // namespace
}  // namespace troupe::test
