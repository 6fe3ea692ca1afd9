// A probe's figures and file, and the shares of a limit that are computed from it.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/evaluation/limits.h"
#include "engine/machine/machine.h"
#include "engine/machine/machine_probe.h"
#include "engine/machine/probe_file.h"
#include "kernels/peaks/peaks.h"
#include "tests/support/temp_folder.h"
#include "tests/support/variants.h"

namespace fs = std::filesystem;

namespace troupe::test {
namespace {

using namespace troupe::engine;
using kernels::Unit;

class Folder : public TempFolder {
 public:
  fs::path operator/(const std::string& name) const { return path(name); }
};

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Rate rate(double per_second) { return {per_second, 1.5, 0.25, 0.5}; }

// Two threads, two units, three sizes, every field different from its default.
MachineProbe example() {
  MachineProbe probe;
  probe.machine = {"A \"CPU\"", "family 6 model 207", "0-1,4"};
  probe.measured_at = "2026-11-22T01:30:00Z";
  probe.duration_s = 9.75;
  probe.quick = true;
  probe.num_threads = 4;
  probe.model_bytes = 1u << 30;
  probe.l3_bytes = 300u << 20;
  probe.steal_percent = 0.5;
  probe.others_percent = 0.75;
  probe.clock = rate(3e9);
  probe.clock_beside_amx = rate(2.25e9);
  probe.pairs = {{Unit::int8_amx, 0, 4, 0.5, 0.125}};
  probe.peaks = {{Unit::int8_avx512vnni, 1, rate(500e9)},
                 {Unit::int8_avx512vnni, 4, rate(2000e9)},
                 {Unit::f32_avx512, 1, rate(100e9)}};
  probe.reads = {{1u << 20, 1, true, rate(40e9)},
                 {1u << 20, 4, true, rate(160e9)},
                 {1u << 30, 1, true, rate(10e9)},
                 {1u << 30, 4, true, rate(20e9)},
                 {1u << 30, 1, false, rate(9e9)}};
  probe.wake_s = 4e-6;
  probe.ping_pong_s = 7e-8;
  return probe;
}

bool same(const MachineProbe& a, const MachineProbe& b) { return to_json(a) == to_json(b); }

}  // namespace

// ---- The file --------------------------------------------------------------------------------------------------

TEST_CASE("a probe written as JSON is read back whole") {
  const auto back = parse_probe(to_json(example()));
  REQUIRE(back);
  CHECK(same(*back, example()));
  CHECK(back->machine == example().machine);
  CHECK(back->quick);
  CHECK(back->clock_beside_amx->per_second == 2.25e9);
  CHECK(back->pairs.at(0).second == 4);
  CHECK(back->peaks.at(1).unit == Unit::int8_avx512vnni);
  CHECK(back->peaks.at(1).ops.others_percent == 0.5);
  CHECK(back->reads.at(4).bytes == 1u << 30);
  CHECK_FALSE(back->reads.at(4).huge_pages);
  CHECK(back->ping_pong_s == 7e-8);
}

TEST_CASE("figures that a probe lacks are absent after reading it back") {
  MachineProbe probe = example();
  probe.clock_beside_amx.reset();
  probe.pairs.clear();
  probe.peaks.clear();
  probe.reads.clear();
  probe.wake_s.reset();
  probe.ping_pong_s.reset();
  const auto back = parse_probe(to_json(probe));
  REQUIRE(back);
  CHECK(same(*back, probe));
  CHECK_FALSE(back->clock_beside_amx);
  CHECK_FALSE(back->wake_s);
  CHECK_FALSE(back->ops_per_second(Unit::int8_avx512vnni, 1));
  CHECK_FALSE(back->read_bytes_per_second(1 << 20, 1));
}

TEST_CASE("a probe with a missing field or an impossible figure is refused") {
  using nlohmann::json;
  const json good = json::parse(to_json(example()));
  REQUIRE(parse_probe(good.dump()));
  for (const auto& [key, value] : good.items()) {
    json less = good;
    less.erase(key);
    INFO(key);
    CHECK_FALSE(parse_probe(less.dump()));
  }
  const auto refused = [&](const char* pointer, const json& value) {
    json bad = good;
    bad.at(json::json_pointer(pointer)) = value;
    INFO(pointer << " = " << value.dump());
    CHECK_FALSE(parse_probe(bad.dump()));
  };
  refused("/probe_version", kProbeVersion + 1);
  refused("/machine", json::array());
  refused("/num_threads", 0);
  refused("/num_threads", -1);
  refused("/clock/hz", 0);
  refused("/clock/hz", "fast");
  refused("/peaks/0/unit", "int8-abacus");
  refused("/peaks/0/unit", "none");
  refused("/peaks/0/ops_per_second", -5);
  refused("/peaks/0/others_percent", -0.5);
  refused("/reads/0/bytes", 0);
  refused("/reads/0/num_threads", 1ll << 40);
  refused("/reads/0/bytes_per_second", nullptr);
  refused("/pairs/0/cpus", json::array({1}));
  refused("/wake_s", 0);
  for (const char* text : {"", "{", "[]", "null", "7", "{\"probe_version\": 1}"}) CHECK_FALSE(parse_probe(text));
}

TEST_CASE("a stored probe is found again on its machine only") {
  const Folder folder;
  const MachineProbe probe = example();
  CHECK_FALSE(load_probe(folder / "a", probe.machine));
  REQUIRE(save_probe(folder / "a/b", probe));  // makes the folders
  const auto found = load_probe(folder / "a/b", probe.machine);
  REQUIRE(found);
  CHECK(same(*found, probe));
  for (const MachineIdentity& other : {MachineIdentity{"B", probe.machine.revision, probe.machine.cpus},
                                       MachineIdentity{probe.machine.cpu, "stepping 3", probe.machine.cpus},
                                       MachineIdentity{probe.machine.cpu, probe.machine.revision, "0"}}) {
    CHECK_FALSE(load_probe(folder / "a/b", other));
    // A probe under another machine's name is not used either.
    fs::copy_file(probe_path(folder / "a/b", probe.machine), probe_path(folder / "a/b", other));
    CHECK_FALSE(load_probe(folder / "a/b", other));
  }
}

TEST_CASE("a damaged, old or absent file gives no probe, and the next probe replaces it") {
  const Folder folder;
  MachineProbe probe = example();
  const fs::path path = probe_path(folder / "c", probe.machine);
  REQUIRE(save_probe(folder / "c", probe));
  const std::string good = content(path);
  const std::string old = [&] {
    auto json = nlohmann::json::parse(good);
    json["probe_version"] = kProbeVersion - 1;
    return json.dump();
  }();
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("\0\xff", 2), old,
                                 good + std::string(5u << 20, ' ')}) {
    std::ofstream(path, std::ios::trunc) << bad;
    CHECK_FALSE(load_probe(folder / "c", probe.machine));
  }
  probe.num_threads = 3;
  REQUIRE(save_probe(folder / "c", probe));
  CHECK(load_probe(folder / "c", probe.machine)->num_threads == 3);
  CHECK(std::distance(fs::directory_iterator(folder / "c"), fs::directory_iterator()) == 1);  // nothing temporary
}

TEST_CASE("a folder that cannot be made or written is an error that names it") {
  const Folder folder;
  folder.write("file", "x");
  const Status status = save_probe(folder / "file/deeper", example());
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ErrorCode::io);
  CHECK(status.error().message.find("file/deeper") != std::string::npos);
  // A directory where the file should be: nothing temporary stays behind.
  fs::create_directories(probe_path(folder / "d", example().machine) / "x");
  CHECK_FALSE(save_probe(folder / "d", example()));
  CHECK(std::distance(fs::directory_iterator(folder / "d"), fs::directory_iterator()) == 1);
}

TEST_CASE("probes are stored in XDG's folder, else in the home directory") {
  const auto folder = [](const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); };
    const std::string old_cache = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
    const std::string old_home = std::getenv("HOME") ? std::getenv("HOME") : "";
    set("XDG_CACHE_HOME", cache);
    set("HOME", home);
    const auto result = probe_folder();
    set("XDG_CACHE_HOME", old_cache.empty() ? nullptr : old_cache.c_str());
    set("HOME", old_home.empty() ? nullptr : old_home.c_str());
    return result;
  };
  CHECK(folder("/x", "/h") == fs::path("/x/troupe"));
  CHECK(folder(nullptr, "/h") == fs::path("/h/.cache/troupe"));
  CHECK(folder("", "/h") == fs::path("/h/.cache/troupe"));
  CHECK(folder("relative", "/h") == fs::path("/h/.cache/troupe"));
  CHECK_FALSE(folder(nullptr, nullptr));
  CHECK_FALSE(folder(nullptr, ""));
}

// ---- The machine -----------------------------------------------------------------------------------------------

TEST_CASE("a machine's identity is its first CPU's name and revision, and the allowed CPUs") {
  const Folder root;
  root.write("proc/cpuinfo",
             "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2.10GHz\nstepping\t: 2\n"
             "microcode\t: 0x21\nflags\t\t: a b\n\nprocessor\t: 1\nmodel name\t: Another\n");
  const MachineIdentity machine = machine_identity(root / "");
  CHECK(machine.cpu == "Some CPU @ 2.10GHz");
  CHECK(machine.revision == "family 6 model 207 stepping 2 microcode 0x21");
  CHECK(machine.cpus == format_cpus(allowed_cpus()));
  const Folder mixed;
  mixed.write("proc/cpuinfo", "model name\t: First\n\nmodel name\t: Second\nmicrocode\t: 0x9\n");
  CHECK(machine_identity(mixed / "").cpu == "First");
  CHECK(machine_identity(mixed / "").revision.empty());
  const Folder empty;
  CHECK(machine_identity(empty / "").cpu == "unknown CPU");
  CHECK(machine_identity(empty / "").revision.empty());
}

TEST_CASE("CPUs are written as ranges") {
  CHECK(format_cpus(std::vector<int>{}).empty());
  CHECK(format_cpus(std::vector<int>{3}) == "3");
  CHECK(format_cpus(std::vector<int>{0, 1, 2, 4, 6, 7}) == "0-2,4,6-7");
}

TEST_CASE("stolen time is counted for the given CPUs") {
  const Folder root;
  root.write("proc/stat",
             "cpu  1 1000 0 0 0 0 0 0 500 0 0\ncpu0 1 2 3 4 5 6 7 8 100 100\ncpu1 10 0 0 0 0 0 0 1 0 0\n"
             "cpu10 1 1 1 1 1 1 1 30 0 0\nintr 5\ncpu0 9 9 9 9 9 9 9 9\n");
  CHECK(cpu_ticks(std::vector<int>{0}, root / "").total == 36);
  CHECK(cpu_ticks(std::vector<int>{0}, root / "").stolen == 8);
  CHECK(cpu_ticks(std::vector<int>{0, 1}, root / "").total == 47);
  CHECK(cpu_ticks(std::vector<int>{0, 1}, root / "").stolen == 9);
  CHECK(cpu_ticks(std::vector<int>{10}, root / "").stolen == 30);
  CHECK(cpu_ticks(std::vector<int>{7}, root / "").total == 0);
  const Folder empty;
  CHECK(cpu_ticks(std::vector<int>{0}, empty / "").total == 0);
}

TEST_CASE("two CPUs are cores, siblings or unclear") {
  CHECK(pairing({.kept = 1.02}) == Pairing::cores);
  CHECK(pairing({.kept = 0.8}) == Pairing::cores);
  CHECK(pairing({.kept = 0.7}) == Pairing::unclear);
  CHECK(pairing({.kept = 0.5}) == Pairing::siblings);
  CHECK(pairing({.kept = 0.5, .others_percent = 20}) == Pairing::unclear);
}

// ---- Limits ----------------------------------------------------------------------------------------------------

TEST_CASE("between measured numbers of threads and sizes a limit is interpolated, beyond them it is the nearest") {
  const MachineProbe probe = example();
  CHECK(*probe.ops_per_second(Unit::int8_avx512vnni, 1) == 500e9);
  CHECK(*probe.ops_per_second(Unit::int8_avx512vnni, 2) == Approx(1000e9));
  CHECK(*probe.ops_per_second(Unit::int8_avx512vnni, 4) == 2000e9);
  CHECK(*probe.ops_per_second(Unit::int8_avx512vnni, 64) == 2000e9);
  CHECK(*probe.ops_per_second(Unit::f32_avx512, 3) == 100e9);
  CHECK_FALSE(probe.ops_per_second(Unit::int8_amx, 1));
  CHECK_FALSE(probe.ops_per_second(Unit::none, 1));

  CHECK(*probe.read_bytes_per_second(1u << 30, 1) == 10e9);  // of 2 MiB pages
  CHECK(*probe.read_bytes_per_second(1u << 30, 4) == 20e9);
  CHECK(*probe.read_bytes_per_second(8ull << 30, 4) == 20e9);
  CHECK(*probe.read_bytes_per_second(1, 4) == 160e9);
  CHECK(*probe.read_bytes_per_second(0, 1) == 40e9);
  CHECK(*probe.read_bytes_per_second(1u << 25, 1) == Approx(25e9));  // half way in doublings
  CHECK(*probe.read_bytes_per_second(1u << 25, 3) == Approx((80e9 + 40e9 / 3) / 2 + (40e9 + 10e9 / 3) / 2));

  MachineProbe small_pages = probe;
  std::erase_if(small_pages.reads, [](const ReadFigure& figure) { return figure.huge_pages; });
  CHECK(*small_pages.read_bytes_per_second(1u << 30, 1) == 9e9);
}

TEST_CASE("a step's work counts the rows that are multiplied with each matrix") {
  const kernels::KernelTable* table = test::variant_built("avx512vnni");
  const kernels::KernelTable* tiles = test::variant_built("amx");
  if (table == nullptr || tiles == nullptr) return;
  const MatrixWork matrices[] = {{kernels::WeightType::q8_0, kernels::Layout::panels, false, 1, 1, 1000, 1100},
                                 {kernels::WeightType::q8_0, kernels::Layout::panels, true, 1, 1, 10, 11},
                                 {kernels::WeightType::f16, kernels::Layout::panels, true, 1, 1, 7, 14}};
  const StepWork all = step_work(matrices, *table, 5, 5);
  CHECK(all.bytes == 1125);
  CHECK(all.ops[static_cast<std::size_t>(Unit::int8_avx512vnni)] == 2.0 * 1010 * 5);
  CHECK(all.ops[static_cast<std::size_t>(Unit::f32_avx512)] == 2.0 * 7 * 5);
  CHECK(all.total_ops() == 2.0 * 1017 * 5);
  // The table names the unit of a matrix, for the layout that it chose.
  MatrixWork tiled = matrices[0];
  tiled.layout = kernels::Layout::tiles;
  CHECK(step_work({&tiled, 1}, *tiles, 1, 1).ops[static_cast<std::size_t>(Unit::bf16_amx)] == 2000);
  CHECK(step_work(matrices, *tiles, 1, 0).ops[static_cast<std::size_t>(Unit::int8_avx512vnni)] == 2000);
  const StepWork last = step_work(matrices, *table, 512, 1);
  CHECK(last.bytes == 1125);
  CHECK(last.total_ops() == 2.0 * (1000 * 512 + 17));
  // Of four experts a row meets one; the more rows, the more of them are read.
  const MatrixWork experts{kernels::WeightType::q8_0, kernels::Layout::panels, false, 4, 1, 4000, 4400};
  CHECK(step_work({&experts, 1}, *table, 1, 0).bytes == Approx(1100));
  CHECK(step_work({&experts, 1}, *table, 2, 0).bytes == Approx(4400 * (1 - 0.75 * 0.75)));
  CHECK(step_work({&experts, 1}, *table, 2, 0).total_ops() == Approx(2.0 * 1000 * 2));
  const StepWork chunk = step_work(matrices, *table, 512, 0);  // nothing is asked for: no head
  CHECK(chunk.bytes == 1100);
  CHECK(chunk.total_ops() == 2.0 * 1000 * 512);
}

TEST_CASE("a share is the longer of reading and computing divided by the time") {
  const MachineProbe probe = example();
  StepWork step;
  step.bytes = double{1u << 30};
  step.ops[static_cast<std::size_t>(Unit::int8_avx512vnni)] = 1e9;
  const double reading = step.bytes / 10e9, computing = 1e9 / 500e9;

  RunLimits one(&probe, 1);
  one.add(step);
  one.add(step);
  CHECK(*one.read_seconds() == Approx(2 * reading));
  CHECK(*one.compute_seconds() == Approx(2 * computing));
  CHECK(one.bytes() == 2 * step.bytes);
  CHECK(one.ops() == 2e9);
  CHECK(one.share(4 * reading)->value == Approx(0.5));
  CHECK(one.share(4 * reading)->limit == "read");
  CHECK_FALSE(one.share(0));

  step.ops[static_cast<std::size_t>(Unit::int8_avx512vnni)] = 1e12;
  step.ops[static_cast<std::size_t>(Unit::f32_avx512)] = 1e10;
  RunLimits many(&probe, 4);
  many.add(step);
  CHECK(*many.compute_seconds() == Approx(0.5 + 0.1));
  CHECK(many.unit() == Unit::int8_avx512vnni);
  CHECK(many.share(1.2)->value == Approx(0.5));
  CHECK(many.share(1.2)->limit == "int8-avx512vnni");

  // A unit that was not measured: its time is not known, only that of reading.
  step.ops[static_cast<std::size_t>(Unit::int8_amx)] = 1;
  many.add(step);
  many.add(step);
  CHECK_FALSE(many.compute_seconds());
  CHECK(many.share(1)->limit == "read");

  RunLimits none(nullptr, 4);
  none.add(step);
  CHECK(none.bytes() == step.bytes);
  CHECK_FALSE(none.read_seconds());
  CHECK_FALSE(none.share(1));
  CHECK(none.unit() == Unit::none);
}

TEST_CASE("a model lists the matrices of its steps, the head and the end of the last layer separately") {
  LoadOptions options;
  options.context = 64;
  const auto model = LoadedModel::load(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf", options);
  REQUIRE(model);
  const ModelInfo& info = (*model)->info();
  std::uint64_t everywhere = 0, outputs = 0, bytes = 0;
  for (const MatrixWork& matrix : info.matrices) {
    (matrix.outputs_only ? outputs : everywhere) += matrix.multiply_adds;
    bytes += matrix.bytes;
  }
  const std::uint64_t qkv = std::uint64_t{info.dim} * info.head_dim * (info.num_heads + 2 * info.num_kv_heads);
  const std::uint64_t rest = std::uint64_t{info.dim} * info.head_dim * info.num_heads + 3ull * info.dim * info.ffn_dim;
  CHECK(everywhere == info.num_layers * qkv + (info.num_layers - 1) * rest);
  CHECK(outputs == rest + std::uint64_t{info.vocab_size} * info.dim);
  CHECK(bytes > 0);
  CHECK(bytes <= (*model)->model().weight_bytes());
}

// ---- Measuring -------------------------------------------------------------------------------------------------

TEST_CASE("a short probe of this machine measures every figure that its CPU has") {
  ProbeOptions options;
  options.num_threads = 2;
  options.model_bytes = 2u << 20;
  options.max_buffer = 20u << 20;
  options.round = std::chrono::microseconds(500);
  options.num_rounds = 2;
  options.patience = std::chrono::milliseconds(1);
  std::vector<double> progress;
  options.progress = [&](double fraction) { progress.push_back(fraction); };
  const MachineProbe probe = probe_machine(options);

  CHECK(probe.machine == machine_identity());
  CHECK(probe.num_threads == 2);
  CHECK(probe.model_bytes == 2u << 20);
  CHECK(probe.clock.per_second > 0);
  std::set<std::pair<Unit, std::uint32_t>> peaks;
  for (const PeakFigure& figure : probe.peaks) {
    CHECK(figure.ops.per_second > 0);
    peaks.insert({figure.unit, figure.num_threads});
  }
  CHECK(peaks.size() == 2 * kernels::peak_loops().size());
  for (const kernels::PeakLoop& loop : kernels::peak_loops())
    CHECK((peaks.contains({loop.unit, 1}) && peaks.contains({loop.unit, 2})));
  CHECK(probe.clock_beside_amx.has_value() == (kernels::dependent_adds_beside_amx() != nullptr));
  std::set<std::uint64_t> sizes;
  for (const ReadFigure& figure : probe.reads) {
    CHECK(figure.rate.per_second > 0);
    sizes.insert(figure.bytes);
  }
  CHECK(sizes == std::set<std::uint64_t>{2u << 20, 20u << 20});
  if (allowed_cpus().size() > 1) {
    CHECK(*probe.wake_s > 0);
    CHECK_FALSE(probe.pairs.empty());
    for (const PairFigure& pair : probe.pairs) CHECK(pair.kept > 0);
  }
  CHECK(parse_probe(to_json(probe)));
  REQUIRE(progress.size() > 2);
  CHECK(progress.front() == 0);
  CHECK(progress.back() == 1);
  CHECK(std::is_sorted(progress.begin(), progress.end()));
}

TEST_CASE("a rate counts the work of all threads, and rounds end") {
  const int cpus[] = {allowed_cpus().front(), allowed_cpus().back()};
  std::atomic<std::uint32_t> seen{0};
  const Rounds rounds{.length = std::chrono::microseconds(300), .count = 3};
  const Rate rate = measure_rate(
      cpus, rounds,
      [&](std::uint32_t thread) {
        seen |= 1u << thread;
        return thread == 0 ? 1.0 : 0.0;
      },
      Time::wall);
  CHECK(seen == 3);
  CHECK(rate.per_second > 0);
  CHECK(rate.spread_percent >= 0);
  CHECK((rate.others_percent >= 0 && rate.others_percent <= 100));
}

}  // namespace troupe::test
