#include "engine/machine/probe_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "config/file_descriptor.h"
#include "config/state_directory.h"
#include "config/system_error.h"
#include "kernels/cpu/unit.h"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::uintmax_t kMaxFileBytes = 4u << 20;  // a probe of hundreds of CPUs takes some KiB
constexpr std::uint32_t kMaxThreads = 1u << 20;

struct NotAProbe : std::runtime_error {
  using std::runtime_error::runtime_error;
};

double above_zero(const json& value, const char* what) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number <= 0) throw NotAProbe(fmt::format("{} must be above 0", what));
  return number;
}

double percent(const json& value) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) throw NotAProbe("a percentage is below 0");
  return number;
}

std::uint32_t thread_count(const json& value) {
  const auto count = value.get<std::int64_t>();
  if (count < 1 || count > kMaxThreads) throw NotAProbe("a number of threads is out of range");
  return static_cast<std::uint32_t>(count);
}

kernels::Unit unit_of(const json& value) {
  const auto unit = kernels::find_unit(value.get<std::string>());
  if (!unit || *unit == kernels::Unit::none) throw NotAProbe("there is no unit " + value.dump());
  return *unit;
}

json json_of(const Rate& rate, const char* key) {
  return {{key, rate.per_second},
          {"spread_percent", rate.spread_percent},
          {"steal_percent", rate.steal_percent},
          {"others_percent", rate.others_percent}};
}

Rate rate_of(const json& object, const char* key) {
  return {.per_second = above_zero(object.at(key), key),
          .spread_percent = percent(object.at("spread_percent")),
          .steal_percent = percent(object.at("steal_percent")),
          .others_percent = percent(object.at("others_percent"))};
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

std::optional<double> optional_of(const json& value, const char* what) {
  if (value.is_null()) return std::nullopt;
  return above_zero(value, what);
}

MachineProbe read(const json& in) {
  MachineProbe probe;
  probe.version = in.at("probe_version").get<std::uint32_t>();
  if (probe.version != kProbeVersion) throw NotAProbe("it is of another version");
  const json& machine = in.at("machine");
  probe.machine = {.cpu = machine.at("cpu"), .revision = machine.at("revision"), .cpus = machine.at("cpus")};
  probe.measured_at = in.at("measured_at").get<std::string>();
  probe.duration_s = percent(in.at("duration_s"));
  probe.quick = in.at("quick").get<bool>();
  probe.num_threads = thread_count(in.at("num_threads"));
  probe.model_bytes = in.at("model_bytes").get<std::uint64_t>();
  probe.l3_bytes = in.at("l3_bytes").get<std::uint64_t>();
  probe.steal_percent = percent(in.at("steal_percent"));
  probe.others_percent = percent(in.at("others_percent"));
  probe.clock = rate_of(in.at("clock"), "hz");
  if (!in.at("clock_beside_amx").is_null()) probe.clock_beside_amx = rate_of(in.at("clock_beside_amx"), "hz");
  for (const json& pair : in.at("pairs"))
    probe.pairs.push_back({.unit = unit_of(pair.at("unit")),
                           .first = pair.at("cpus").at(0).get<int>(),
                           .second = pair.at("cpus").at(1).get<int>(),
                           .kept = above_zero(pair.at("kept"), "kept"),
                           .others_percent = percent(pair.at("others_percent"))});
  for (const json& peak : in.at("peaks"))
    probe.peaks.push_back({.unit = unit_of(peak.at("unit")),
                           .num_threads = thread_count(peak.at("num_threads")),
                           .ops = rate_of(peak, "ops_per_second")});
  for (const json& figure : in.at("reads"))
    probe.reads.push_back({.bytes = static_cast<std::uint64_t>(above_zero(figure.at("bytes"), "bytes")),
                           .num_threads = thread_count(figure.at("num_threads")),
                           .huge_pages = figure.at("huge_pages").get<bool>(),
                           .rate = rate_of(figure, "bytes_per_second")});
  probe.wake_s = optional_of(in.at("wake_s"), "wake_s");
  probe.ping_pong_s = optional_of(in.at("ping_pong_s"), "ping_pong_s");
  return probe;
}

// False: a write failed, with errno.
bool write_whole(const FileDescriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

Error cannot_write(const fs::path& path, int number) { return system_error("cannot write " + path.string(), number); }

}  // namespace

std::string to_json(const MachineProbe& probe) {
  json pairs = json::array(), peaks = json::array(), reads = json::array();
  for (const PairFigure& pair : probe.pairs)
    pairs.push_back({{"unit", kernels::name(pair.unit)},
                     {"cpus", {pair.first, pair.second}},
                     {"kept", pair.kept},
                     {"others_percent", pair.others_percent}});
  for (const PeakFigure& figure : probe.peaks) {
    json peak{{"unit", kernels::name(figure.unit)}, {"num_threads", figure.num_threads}};
    peak.update(json_of(figure.ops, "ops_per_second"));
    peaks.push_back(std::move(peak));
  }
  for (const ReadFigure& figure : probe.reads) {
    json read{{"bytes", figure.bytes}, {"num_threads", figure.num_threads}, {"huge_pages", figure.huge_pages}};
    read.update(json_of(figure.rate, "bytes_per_second"));
    reads.push_back(std::move(read));
  }
  const json out{
      {"probe_version", probe.version},
      {"machine", {{"cpu", probe.machine.cpu}, {"revision", probe.machine.revision}, {"cpus", probe.machine.cpus}}},
      {"measured_at", probe.measured_at},
      {"duration_s", probe.duration_s},
      {"quick", probe.quick},
      {"num_threads", probe.num_threads},
      {"model_bytes", probe.model_bytes},
      {"l3_bytes", probe.l3_bytes},
      {"steal_percent", probe.steal_percent},
      {"others_percent", probe.others_percent},
      {"clock", json_of(probe.clock, "hz")},
      {"clock_beside_amx", probe.clock_beside_amx ? json_of(*probe.clock_beside_amx, "hz") : json(nullptr)},
      {"pairs", std::move(pairs)},
      {"peaks", std::move(peaks)},
      {"reads", std::move(reads)},
      {"wake_s", or_null(probe.wake_s)},
      {"ping_pong_s", or_null(probe.ping_pong_s)}};
  // The CPU's name may be no UTF-8.
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<MachineProbe> parse_probe(const std::string& text) {
  try {
    return read(json::parse(text));
  } catch (const std::exception& error) {  // from nlohmann::json, and from this file
    return Error{ErrorCode::invalid_argument, std::string("this is no probe: ") + error.what()};
  }
}

std::optional<fs::path> probe_folder() {
  if (const fs::path cache = absolute_variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "troupe";
  if (const fs::path home = absolute_variable("HOME"); !home.empty()) return home / ".cache" / "troupe";
  return std::nullopt;
}

fs::path probe_path(const fs::path& folder, const MachineIdentity& machine) {
  const std::string identity = machine.cpu + '\n' + machine.revision + '\n' + machine.cpus;
  return folder / fmt::format("probe-{:016x}.json", XXH3_64bits(identity.data(), identity.size()));
}

std::optional<MachineProbe> load_probe(const fs::path& folder, const MachineIdentity& machine) {
  const fs::path path = probe_path(folder, machine);
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMaxFileBytes || error) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  auto probe = parse_probe({std::istreambuf_iterator<char>(in), {}});
  if (!probe || probe->machine != machine) return std::nullopt;
  return std::move(*probe);
}

std::optional<MachineProbe> kept_probe() {
  const auto folder = probe_folder();
  return folder ? load_probe(*folder, machine_identity()) : std::nullopt;
}

Status save_probe(const fs::path& folder, const MachineProbe& probe) {
  return replace_file(probe_path(folder, probe.machine), to_json(probe));
}

Status replace_file(const fs::path& path, const std::string& text) {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).parent_path();
  if (!error) fs::create_directories(folder, error);
  if (error) return system_error("cannot make " + folder.string(), error.value());
  const fs::file_status there = fs::symlink_status(path, error);
  if (fs::exists(there) && !fs::is_regular_file(there))
    return Error{ErrorCode::io, fmt::format("{}: is no plain file, and is not replaced; name another one, or remove it",
                                            path.string())};
  fs::path temporary = path;
  temporary += fmt::format(".{}", ::getpid());
  ::unlink(temporary.c_str());  // of a process that was killed and had this number
  const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) return cannot_write(temporary, errno);
  Status written = write_whole(file, text) ? Status(Ok{}) : Status(cannot_write(temporary, errno));
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = cannot_write(path, errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace troupe::engine
