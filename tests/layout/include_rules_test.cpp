// The direction of knowledge between folders, read off the include lines and followed transitively.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = TROUPE_SOURCE_DIR;

// Which folders of ours a folder may reach. `config` is visible to all and reaches none.
const std::map<std::string, std::set<std::string>> kMayReach = {
    {"config", {}},
    {"kernels", {"config"}},
    {"cache", {"config"}},
    {"scheduler", {"cache", "config"}},
    {"engine", {"cache", "kernels", "config"}},
    {"actors", {"scheduler", "cache", "engine", "kernels", "config"}},
    {"ipc", {"actors", "scheduler", "cache", "engine", "kernels", "config"}},
    {"bench", {"ipc", "actors", "scheduler", "cache", "engine", "kernels", "config"}},
    {"cli", {"bench", "ipc", "actors", "scheduler", "cache", "engine", "kernels", "config"}},
};

// The folders inside a folder, lowest first: one includes only those before it in the line of its own. Files beside
// them may include all, and of those files they include what is named first: the contracts that the folder stands on.
struct Floors {
  std::set<std::string> contracts;
  std::vector<std::string> order;
};
const std::map<std::string, Floors> kFloors = {
    {"config",
     {{"assert.h", "draft_limit.h", "file_descriptor.h", "folders.h", "normal_float.h", "plain_file.h", "printable.h",
       "result.h", "system_error.h", "utf8.h"},
      {"sampling", "options"}}},
    {"kernels",
     {{"kernels.h", "variants.h", "append_only.h"},
      {"cpu", "formats", "rows", "attention", "matmul", "peaks", "recurrent"}}},
    {"scheduler", {{"outcome.h"}, {"shares", "models"}}},
    {"engine",
     {{"engine.h", "model.h"},
      {"compute",
       "formats",
       "sampling",
       "tokenizers",
       "drafting",
       "chat/values",
       "constraints/expressions",
       "constraints/grammar",
       "constraints/gbnf",
       "constraints/schema",
       "constraints",
       "chat/syntax",
       "chat/jinja",
       "chat",
       "chat/tools",
       "constraints/tools",
       "constraints/forms",
       "memory",
       "machine",
       "weights",
       "layers",
       "layers/recurrent",
       "layers/decoder",
       "model",
       "families",
       "evaluation"}}},
    {"actors",
     {{"gateway_options.h"}, {"requests", "threads", "sessions", "serving", "models", "batching", "status", "unit"}}},
    {"ipc",
     {{"connection.h", "hub.h", "rate_limits.h", "refused_callers.h", "request_kinds.h", "request_rules.h", "server.h",
       "tenant_rules.h", "troupe.pb.h"},
      {"keys", "sockets", "http/json", "tools", "frames", "client", "http/api", "http", "http/page"}}},
    {"bench", {{}, {"load", "load/drivers", "load/report"}}},
    {"cli",
     {{"subcommands.h", "version.h"},
      {"terminal", "store", "pull", "model", "client", "status", "usage", "backup", "load", "serve", "doctor"}}},
};

// Library headers, and the only folders whose files may reach them.
struct LibraryRule {
  std::string prefix;
  std::set<std::string> folders;
};
const std::vector<LibraryRule> kLibraries = {
    {"caf/", {"actors"}},
    {"asio", {"ipc"}},
    {"boost/", {"ipc"}},
    {"google/protobuf", {"ipc"}},
    {"openssl/", {"ipc"}},
    {"immintrin.h", {"kernels"}},
    {"x86intrin.h", {"kernels"}},
    {"cpuid.h", {"kernels"}},
    {"spdlog/", {"cli", "ipc", "actors", "engine"}},
    {"CLI/", {"config", "cli"}},
    {"toml++/", {"config"}},
    {"pcre2.h", {"engine"}},
    {"utf8proc.h", {"engine"}},
    {"xxhash.h", {"cache", "engine"}},
    {"hwloc.h", {"actors", "engine"}},
    {"systemd/", {"cli"}},
    {"curl/", {"bench", "cli"}},
    {"prometheus/", {"ipc"}},
    {"sqlite3.h", {"cli"}},
    {"histedit.h", {"cli"}},
};

// Plain logic holds no thread, clock or lock: a test can replay any moment.
const std::set<std::string> kPlainFolders = {"scheduler", "cache"};
const std::set<std::string> kNotPlain = {"thread", "mutex",   "shared_mutex", "condition_variable", "atomic",
                                         "chrono", "future",  "ctime",        "stop_token",         "semaphore",
                                         "latch",  "barrier", "random",       "pthread.h"};

std::vector<std::string> includes_of(const fs::path& file) {
  static const std::regex line(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"].*)");
  std::vector<std::string> found;
  std::ifstream in(file);
  std::smatch match;
  for (std::string text; std::getline(in, text);)
    if (std::regex_match(text, match, line)) found.push_back(match[1]);
  return found;
}

// Everything that a file includes, directly or through headers of ours.
std::set<std::string> reachable(const fs::path& file) {
  std::set<std::string> seen;
  std::vector<fs::path> open = {file};
  while (!open.empty()) {
    const fs::path next = open.back();
    open.pop_back();
    for (const std::string& include : includes_of(next)) {
      if (!seen.insert(include).second) continue;
      if (fs::exists(kRoot / include)) open.push_back(kRoot / include);
    }
  }
  return seen;
}

std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".h" || extension == ".cpp") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_ours(const std::string& include) { return kMayReach.contains(include.substr(0, include.find('/'))); }

bool starts_with(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

}  // namespace

TEST_CASE("every folder reaches only the folders that it may know") {
  for (const auto& [folder, allowed] : kMayReach)
    for (const fs::path& file : sources_of(folder))
      for (const std::string& include : reachable(file)) {
        if (!is_ours(include)) continue;
        const std::string other = include.substr(0, include.find('/'));
        INFO(fs::relative(file, kRoot).string() << " reaches " << include);
        CHECK((other == folder || allowed.contains(other)));
      }
}

TEST_CASE("inside a folder, too, knowledge flows one way") {
  for (const auto& [folder, floors] : kFloors)
    for (const fs::path& file : sources_of(folder)) {
      const std::string own = fs::relative(file.parent_path(), kRoot / folder).string();
      if (own == ".") continue;
      const auto floor = std::find(floors.order.begin(), floors.order.end(), own);
      INFO(fs::relative(file, kRoot).string());
      REQUIRE(floor != floors.order.end());
      for (const std::string& include : includes_of(file)) {
        if (!starts_with(include, folder + "/")) continue;
        const std::string rest = include.substr(folder.size() + 1);
        const std::size_t slash = rest.find('/');
        INFO("includes " << include);
        const std::string other = slash == std::string::npos ? "" : rest.substr(0, rest.rfind('/'));
        if (other.empty())
          CHECK(floors.contracts.contains(rest));
        else
          CHECK(std::find(floors.order.begin(), std::next(floor), other) != std::next(floor));
      }
    }
}

TEST_CASE("a folder has no more files than can be looked through") {
  constexpr std::size_t kMost = 27;
  for (const auto& [folder, allowed] : kMayReach) {
    std::map<fs::path, std::size_t> num_files;
    for (const fs::path& file : sources_of(folder)) ++num_files[file.parent_path()];
    for (const auto& [path, count] : num_files) {
      INFO(fs::relative(path, kRoot).string());
      CHECK(count <= kMost);
    }
  }
}

TEST_CASE("a library is known only in its folders, however it is included") {
  for (const auto& [folder, allowed] : kMayReach)
    for (const fs::path& file : sources_of(folder))
      for (const std::string& include : reachable(file))
        for (const LibraryRule& rule : kLibraries) {
          if (!starts_with(include, rule.prefix)) continue;
          INFO(fs::relative(file, kRoot).string() << " reaches <" << include << ">");
          CHECK(rule.folders.contains(folder));
        }
}

TEST_CASE("ipc knows of the actors only what the gateway shows") {
  const std::set<std::string> shown = {"actors/gateway.h",
                                       "actors/gateway_options.h",
                                       "actors/requests/answer_form.h",
                                       "actors/requests/ended_request.h",
                                       "actors/requests/latency.h",
                                       "actors/requests/load_wait.h",
                                       "actors/requests/proof.h",
                                       "actors/requests/request.h",
                                       "actors/requests/request_shape.h",
                                       "actors/serving/served_model.h",
                                       "actors/serving/tenant_counters.h",
                                       "actors/requests/session_info.h",
                                       "actors/requests/status_snapshot.h",
                                       "actors/requests/usage_report.h",
                                       "actors/visible_models.h"};
  for (const fs::path& file : sources_of("ipc"))
    for (const std::string& include : reachable(file)) {
      if (!starts_with(include, "actors/")) continue;
      INFO(fs::relative(file, kRoot).string() << " reaches " << include);
      CHECK(shown.contains(include));
    }
}

TEST_CASE("scheduler and cache hold no thread, clock or lock, not even through a header") {
  for (const std::string& folder : kPlainFolders)
    for (const fs::path& file : sources_of(folder))
      for (const std::string& include : reachable(file)) {
        INFO(fs::relative(file, kRoot).string() << " reaches <" << include << ">");
        CHECK_FALSE(kNotPlain.contains(include));
      }
}

TEST_CASE("what is compiled for a newer CPU includes kernels' headers and C's alone") {
  // An inline function of the C++ library compiled with AVX-512 could replace the plain one at link time;
  // tests/layout/isa_objects.sh looks at the symbols themselves.
  static const std::regex isa(R"(.*_(avx2|avxvnni|avx512|avx512vnni|amx)\.cpp)");
  std::size_t num_files = 0;
  for (const fs::path& file : sources_of("kernels")) {
    if (!std::regex_match(file.string(), isa)) continue;
    ++num_files;
    for (const std::string& include : includes_of(file)) {
      INFO(fs::relative(file, kRoot).string() << " includes " << include);
      const bool is_c_header = include.find('/') == std::string::npos && starts_with(include, "c");
      CHECK((starts_with(include, "kernels/") || include == "immintrin.h" || is_c_header));
    }
  }
  CHECK(num_files > 0);
}

TEST_CASE("weight types are rows of one table: no code lists or compares them") {
  static const std::regex names_one(
      R"((case (kernels::)?WeightType::)|([=!]= (kernels::)?WeightType::)|(WeightType::\w+ *\?))");
  for (const std::string folder : {"kernels", "engine", "actors", "ipc", "cli"})
    for (const fs::path& file : sources_of(folder)) {
      const std::string name = fs::relative(file, kRoot).string();
      if (name == "kernels/formats/weight_formats.h") continue;  // visit_type
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) {
        INFO(name << ": " << line);
        CHECK_FALSE(std::regex_search(line, names_one));
      }
    }
}
