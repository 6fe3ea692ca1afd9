// A model that was split into several files: all of them are one model, and whatever is wrong with one is an error that
// names it.
#include "engine/formats/split_gguf.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/formats/split_name.h"
#include "kernels/formats/converted_type.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::LoadedModel;

std::string part_name(std::size_t number, std::size_t count, const std::string& beginning = "m") {
  return fmt::format("{}-{:05}-of-{:05}.gguf", beginning, number, count);
}

// The parts of a model in a folder; parts[i] can be changed before they are written.
struct SplitModel {
  explicit SplitModel(const std::vector<std::size_t>& begins = {4, 11}, GgufWriter writer = TinyLlama{}.writer())
      : whole(std::move(writer)), parts(whole.parts(begins)) {}

  // The path of the first.
  std::string write() const {
    for (std::size_t i = 0; i < parts.size(); ++i) folder.write(name(i), parts[i].bytes());
    return path(0);
  }
  std::string name(std::size_t i) const { return part_name(i + 1, parts.size()); }
  std::string path(std::size_t i) const { return folder.path(name(i)); }
  // The error that the files as they are have; one of the first part unless another is given.
  Error refusal(std::size_t i = 0) const {
    const auto opened = engine::open_gguf(path(i));
    REQUIRE_FALSE(opened);
    return opened.error();
  }

  TempFolder folder;
  GgufWriter whole;
  std::vector<GgufWriter> parts;
};

std::vector<float> split_logits(const LoadedModel& model) {
  engine::Team team(2);
  engine::Executor executor(model, team);
  SequenceRunner runner(executor, 1, {1, 2, 3, 40}, {0});
  return runner.run(3);
}

bool is_error_of(const Error& error, ErrorCode code, const std::string& path, const std::string& what) {
  UNSCOPED_INFO("message: " << error.message);
  return error.code == code && error.message.starts_with(path + ": ") && error.message.find(what) != std::string::npos;
}
bool is_bad(const Error& error, const std::string& path, const std::string& what) {
  return is_error_of(error, ErrorCode::bad_model, path, what);
}

TEST_CASE("the parts of a split model are one model, with the tensors, size, hash and bits of the whole") {
  for (const std::vector<std::size_t>& begins :
       {std::vector<std::size_t>{0}, {4, 11}, {0, 1, 2, 19}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}) {
    const SplitModel split(begins);
    INFO(split.parts.size() << " parts");
    const std::string path = split.write();
    const TemporaryFile one_file(split.whole.bytes());
    const auto whole = engine::open_gguf(one_file.path()), parts = engine::open_gguf(path);
    REQUIRE(whole);
    REQUIRE(parts);
    CHECK((*whole)->num_files() == 1);
    CHECK((*parts)->num_files() == split.parts.size());
    CHECK((*parts)->path() == path);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < split.parts.size(); ++i) bytes += fs::file_size(split.path(i));
    CHECK((*parts)->file_bytes() == bytes);
    CHECK((*parts)->stamp().bytes == bytes);
    CHECK((*parts)->content_hash() == (*whole)->content_hash());
    REQUIRE((*parts)->tensors().size() == (*whole)->tensors().size());
    for (std::size_t i = 0; i < (*whole)->tensors().size(); ++i) {
      const engine::TensorInfo &a = (*whole)->tensors()[i], &b = (*parts)->tensors()[i];
      INFO(a.name);
      CHECK(a.name == b.name);
      CHECK(a.shape == b.shape);
      const bool same = to_string(a.bytes) == to_string(b.bytes);
      CHECK(same);
      CHECK((*parts)->find_tensor(a.name) == &b);
      (*parts)->drop_pages(b.bytes);
    }
    CHECK((*parts)->check_unchanged());

    const auto of_whole = load_model(one_file.path(), "scalar"), of_parts = load_model(path, "scalar");
    CHECK(of_parts->numerics_id() == of_whole->numerics_id());
    CHECK(split_logits(*of_parts) == split_logits(*of_whole));
    CHECK(of_parts->info().name == "m");
  }
}

void dequantize_split_type(const std::byte* group, float* out) { std::memcpy(out, group, sizeof(float)); }

TEST_CASE("converted types and tensors that are not read are part of the hash, in whatever part they are") {
  constexpr std::uint32_t kNumber = 7100;
  static const kernels::ConvertedType type = {.info = {.type = kernels::WeightType::f32,
                                                       .name = "SPLIT",
                                                       .gguf_number = kNumber,
                                                       .group_size = 1,
                                                       .group_bytes = 4},
                                              .version = 1,
                                              .dequantize = dequantize_split_type};
  REQUIRE(kernels::register_type(type));
  GgufWriter w = TinyLlama{}.writer();
  w.add_tensor("mm.0.weight", {7, 3}, 16, std::string(64, '\0'));
  w.add_tensor("mm.1.weight", {7}, kNumber, std::string(28, '\0'));
  const TemporaryFile one_file(w.bytes());
  const auto whole = engine::open_gguf(one_file.path());
  REQUIRE(whole);
  REQUIRE((*whole)->unread_tensors().size() == 1);
  for (const std::size_t begin : {1u, 20u, 21u}) {
    INFO("the second part begins with tensor " << begin);
    const SplitModel split({begin}, w);
    const auto parts = engine::open_gguf(split.write());
    REQUIRE(parts);
    CHECK((*parts)->unread_tensors() == (*whole)->unread_tensors());
    CHECK((*parts)->content_hash() == (*whole)->content_hash());
  }
}

TEST_CASE("a part other than the first is refused with the first part's name") {
  const SplitModel split;
  const std::string first = split.write();
  for (const std::size_t i : {1u, 2u})
    CHECK(is_bad(split.refusal(i), split.path(i),
                 fmt::format("is part {} of 3 of a split model; name the first part, {}", i + 1, first)));
  fs::remove(first);  // what is asked for is said also where it is not
  CHECK(is_bad(split.refusal(1), split.path(1), "name the first part"));
}

TEST_CASE("missing parts are counted and named") {
  const SplitModel split;
  const std::string first = split.write();
  fs::remove(split.path(2));
  CHECK(is_error_of(split.refusal(), ErrorCode::model_missing, first,
                    "1 of its 3 parts is missing: m-00003-of-00003.gguf"));
  fs::remove(split.path(1));
  CHECK(is_error_of(split.refusal(), ErrorCode::model_missing, first,
                    "2 of its 3 parts are missing, the first of them m-00002-of-00003.gguf"));
}

TEST_CASE("a part that was cut off is named, with what it should have and what it has") {
  const SplitModel split;
  split.write();
  const auto size = fs::file_size(split.path(1));
  fs::resize_file(split.path(1), size - 32);
  const auto data = size - (split.parts[1].header_bytes() + 31) / 32 * 32;
  CHECK(is_bad(split.refusal(), split.path(1),
               fmt::format("{} of the tensor data, but the file has {}; is the download complete?", data, data - 32)));
  fs::resize_file(split.path(1), 100);
  CHECK(is_bad(split.refusal(), split.path(1), "but the file ends after"));
  fs::resize_file(split.path(1), 0);
  CHECK(is_bad(split.refusal(), split.path(1), "is empty"));
}

TEST_CASE("parts of different splits are refused by what shows it") {
  const auto refusal_after = [](const std::function<void(SplitModel&)>& change, std::size_t blamed,
                                const std::string& what) {
    SplitModel split;
    change(split);
    split.write();
    return is_bad(split.refusal(), split.path(blamed), what);
  };
  using Split = SplitModel;
  CHECK(refusal_after(
      [](Split& split) {
        split.parts[1] = split.whole.slice(4, 11);
        split.parts[1].add_split(1, 4, 20);
      },
      1, "is one of 4 parts by its 'split.count', and m-00001-of-00003.gguf one of 3"));
  CHECK(refusal_after([](Split& split) { std::swap(split.parts[1], split.parts[2]); }, 1,
                      "is part 3 of 3 by its 'split.no', and part 2 by its name"));
  CHECK(refusal_after([](Split& split) { split.parts[2] = split.parts[0]; }, 2,
                      "is part 1 of 3 by its 'split.no', and part 3 by its name"));
  CHECK(refusal_after(
      [](Split& split) {
        split.parts[2] = split.whole.slice(11, 20);
        split.parts[2].add_split(2, 3, 21);
      },
      2, "'split.tensors.count' is another in m-00001-of-00003.gguf; they are not parts of one model"));
  CHECK(refusal_after([](Split& split) { split.parts[2] = split.whole.slice(11, 20); }, 2,
                      "is a model of its own by its metadata, and no part of m-00001-of-00003.gguf"));
  // The same number of tensors, one of them twice.
  CHECK(refusal_after(
      [](Split& split) {
        split.parts[2] = split.whole.slice(10, 19);
        split.parts[2].add_split(2, 3, 20);
      },
      2, "is in m-00002-of-00003.gguf, too; they are not parts of one split"));
  for (const std::size_t last : {19u, 18u})
    CHECK(refusal_after(
        [&](Split& split) {
          split.parts[2] = split.whole.slice(11, last);
          split.parts[2].add_split(2, 3, 20);
        },
        0, fmt::format("its 3 parts have {} tensors, and 'split.tensors.count' is 20", last)));
  CHECK(refusal_after(
      [](Split& split) {
        split.parts[2] = split.whole.slice(10, 20);
        split.parts[2].add_split(2, 3, 20);
      },
      0, "its 3 parts have 21 tensors, and 'split.tensors.count' is 20"));
  CHECK(refusal_after([](Split& split) { split.parts[1].add("general.architecture", "qwen2"); }, 1,
                      "'general.architecture' is another in m-00001-of-00003.gguf"));
  CHECK(refusal_after([](Split& split) { split.parts[2].add("general.alignment", 64u); }, 2,
                      "'general.alignment' is absent in m-00001-of-00003.gguf"));
}

TEST_CASE("a part may repeat the metadata of the first") {
  SplitModel split;
  split.parts[2].add("general.architecture", "llama");
  CHECK(engine::open_gguf(split.write()));
}

TEST_CASE("without the keys of a split, or with ones that are none, a part is refused by the key") {
  const auto refusal_of = [](const std::function<void(GgufWriter&)>& keys, const std::string& what,
                             ErrorCode code = ErrorCode::bad_model) {
    SplitModel split;
    GgufWriter first = TinyLlama{}.writer();  // with its tensors: only the keys matter
    keys(first);
    split.parts[0] = first;
    split.write();
    return is_error_of(split.refusal(), code, split.path(0), what);
  };
  CHECK(refusal_of([](GgufWriter& w) { w.add("split.count", 3u); }, "'split.no' is missing"));
  CHECK(refusal_of(
      [](GgufWriter& w) {
        w.add("split.count", 3u);
        w.add("split.no", 0u);
      },
      "'split.tensors.count' is missing"));
  CHECK(refusal_of([](GgufWriter& w) { w.add_split(3, 3, 20); }, "'split.no' is 3; of 3 parts it is from 0 to 2"));
  CHECK(refusal_of([](GgufWriter& w) { w.add_split(0, 257, 20); }, "'split.count' is 257; at most 256 parts"));
  CHECK(refusal_of([](GgufWriter& w) { w.add("split.count", "three"); },
                   "'split.count' is 'three', which is not a whole number"));
  CHECK(refusal_of(
      [](GgufWriter& w) {
        w.add("split.count", 3u);
        w.add("split.no", std::vector<std::uint32_t>{0, 1});
      },
      "'split.no' is a list of values that differ", ErrorCode::unsupported));
  CHECK(refusal_of(
      [](GgufWriter& w) {
        w.add("split.count", 3u);
        w.add("split.no", 0u);
        w.add("split.tensors.count", "all");
      },
      "'split.tensors.count' is 'all', which is not a whole number"));
}

TEST_CASE("parts with more tensors together than a model may have are refused before their tensors are read") {
  GgufWriter w = TinyLlama{}.writer();
  const std::size_t count = w.num_tensors();
  for (std::uint64_t i = 0; i < engine::kMaxTensors; ++i) w.add_tensor_at(std::to_string(i), {1}, 0, 0);
  SplitModel split;
  split.parts[1] = w.slice(count, count + 1000);
  split.parts[2] = w.slice(count + 1000, w.num_tensors());
  split.parts[1].add_split(1, 3, w.num_tensors());
  split.parts[2].add_split(2, 3, w.num_tensors());
  split.parts[0] = TinyLlama{}.writer();
  split.parts[0].add_split(0, 3, w.num_tensors());
  split.write();
  CHECK(is_bad(split.refusal(), split.path(0), fmt::format("claim {} tensors; at most 65536", w.num_tensors())));
}

TEST_CASE("a part whose name is not as its metadata ask for is refused with the name that it must have") {
  const SplitModel split;
  split.write();
  for (const char* name :
       {"model.gguf", "m-1-of-3.gguf", "m-00001-of-00004.gguf", "m-00002-of-00003.gguf", "m-00001-of-00003.GGUF"}) {
    const TempFolder folder;
    fs::copy_file(split.path(0), folder.path(name));
    const auto opened = engine::open_gguf(folder.path(name));
    REQUIRE_FALSE(opened);
    CHECK(is_bad(opened.error(), folder.path(name),
                 "is part 1 of 3 of a split model, and must be called NAME-00001-of-00003.gguf"));
  }
}

TEST_CASE("the names count, not what they link to: parts may be links") {
  const SplitModel split;
  split.write();
  const TempFolder links;
  for (std::size_t i = 0; i < 3; ++i) {
    fs::rename(split.path(i), split.folder.path("blob" + std::to_string(i)));
    fs::create_symlink(split.folder.path("blob" + std::to_string(i)), links.path(part_name(i + 1, 3, "other")));
  }
  CHECK(engine::open_gguf(links.path(part_name(1, 3, "other"))));
}

TEST_CASE("a file with a split's keys that is whole, as after merging, is a model like any other") {
  for (const std::uint32_t count : {0u, 1u}) {
    GgufWriter w = TinyLlama{}.writer();
    w.add("split.count", count);
    w.add("split.no", 7u);
    const TemporaryFile file(w.bytes());
    engine::LoadOptions options;
    options.memory = 64u << 20;
    CHECK(LoadedModel::load(file.path(), options));
  }
}

TEST_CASE("a part that is written to while the model is loaded is named") {
  const SplitModel split;
  const std::string path = split.write();
  engine::LoadOptions options;
  options.memory = 64u << 20;
  bool is_changed = false;
  options.progress = [&](double) {
    if (!is_changed) std::ofstream(split.path(2), std::ios::app) << "more";
    is_changed = true;
  };
  const auto loaded = LoadedModel::load(path, options);
  REQUIRE_FALSE(loaded);
  CHECK(is_bad(loaded.error(), split.path(2), "was written to while it was read"));
}

TEST_CASE("a part with a weight that is not finite is named") {
  for (const char* name : {"output_norm.weight", "blk.1.ffn_down.weight"}) {
    SplitModel split;
    const TemporaryFile whole(split.whole.bytes());
    const auto file = engine::open_gguf(whole.path());
    REQUIRE(file);
    GgufWriter damaged;
    copy_metadata(**file, damaged);
    for (const engine::TensorInfo& each : (*file)->tensors()) {
      std::string data = to_string(each.bytes);
      if (each.name == name) data.replace(data.size() - 4, 4, std::string("\x00\x00\x80\x7f", 4));
      damaged.add_tensor(each.name, each.shape, 0, std::move(data));
    }
    split.parts = damaged.parts({4, 11});
    engine::LoadOptions options;
    options.memory = 64u << 20;
    const auto loaded = LoadedModel::load(split.write(), options);
    REQUIRE_FALSE(loaded);
    CHECK(is_bad(loaded.error(), split.path(2),
                 fmt::format("tensor '{}' of type F32 has a weight that is not finite", name)));
  }
}

TEST_CASE("a write to any part changes the stamp") {
  const SplitModel split;
  const std::string path = split.write();
  const engine::FileStamp before = (*engine::open_gguf(path))->stamp();
  CHECK((*engine::open_gguf(path))->stamp() == before);
  for (std::size_t i = 0; i < 3; ++i) {
    // A time in the past, so that neither size nor the latest time tells.
    fs::last_write_time(split.path(i), fs::last_write_time(split.path(i)) - std::chrono::hours(1));
    CHECK_FALSE((*engine::open_gguf(path))->stamp() == before);
    CHECK((*engine::open_gguf(path))->stamp().bytes == before.bytes);
  }
}

TEST_CASE("names of parts are of one form, and others are none") {
  const auto name = engine::parse_split_name("a/b-00002-of-00003.gguf");
  REQUIRE(name);
  CHECK(name->beginning == "a/b");
  CHECK(name->number == 2);
  CHECK(name->count == 3);
  CHECK(name->path_of(1) == "a/b-00001-of-00003.gguf");
  CHECK(name->path_of(12345) == "a/b-12345-of-00003.gguf");
  CHECK(engine::parse_split_name("b-00001-of-00001.gguf"));
  for (const char* path :
       {"", "b.gguf", "-00001-of-00003.gguf", "a/-00001-of-00003.gguf", "b-0001-of-0003.gguf", "b-00000-of-00003.gguf",
        "b-00004-of-00003.gguf", "b-00001-of-00003.ggu", "b-00001-of-00003.gguf ", "b-0000a-of-00003.gguf",
        "b-+0001-of-00003.gguf", "b_00001-of-00003.gguf", "b-00001_of-00003.gguf", "b-00001-of-00003"}) {
    INFO(path);
    CHECK_FALSE(engine::parse_split_name(path));
  }
  CHECK(engine::name_after_file("a/b-00002-of-00003.gguf") == "b");
  CHECK(engine::name_after_file("a.b/c.d-00001-of-00002.gguf") == "c.d");
  CHECK(engine::name_after_file("a/b-00002-of-00001.gguf") == "b-00002-of-00001");
  CHECK(engine::name_after_file("a/b.gguf") == "b");
}

TEST_CASE("the size of a first part is that of all parts that are there") {
  const TempFolder folder;
  const std::string first = folder.write("m-00001-of-00003.gguf", "1"),
                    last = folder.write("m-00003-of-00003.gguf", "333");
  folder.write("m.gguf", "4444");
  std::error_code error;
  CHECK(engine::bytes_with_parts(first, error) == 4);
  folder.write("m-00002-of-00003.gguf", "22");
  CHECK(engine::bytes_with_parts(first, error) == 6);
  CHECK(engine::bytes_with_parts(last, error) == 3);
  CHECK(engine::bytes_with_parts(folder.path("m.gguf"), error) == 4);
  CHECK_FALSE(error);
  (void)engine::bytes_with_parts(folder.path("absent.gguf"), error);
  CHECK(error);
}

}  // namespace
}  // namespace troupe::test
