// What the pages and the comments say of the tree's shape: the map of folders in CONTRIBUTING.md, the list of fuzz
// targets, and the messages above each actor's class.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace fs = std::filesystem;

namespace {

const fs::path kTree = TROUPE_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All matches of the expression's first group.
std::set<std::string> all_of(const std::string& text, const std::regex& expression) {
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

// What builds and tools leave in the tree, and git passes over.
bool is_made(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.front() == '.' || name == "build" || name == "__pycache__" || name.ends_with(".egg-info");
}

// The folders below a folder that hold files, by their paths from there.
std::set<std::string> folders_below(const fs::path& folder) {
  std::set<std::string> found;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
    if (at->is_directory() && is_made(at->path())) {
      at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file()) continue;
    for (fs::path path = fs::relative(at->path(), folder).parent_path(); !path.empty(); path = path.parent_path())
      found.insert(path.string());
  }
  return found;
}

// The rows of the map: of each folder, the subfolders that its row names.
std::map<std::string, std::set<std::string>> map_of_folders() {
  static const std::regex named(R"(`([\w/]+)/`)");
  std::map<std::string, std::set<std::string>> rows;
  std::istringstream page(text_of(kTree / "CONTRIBUTING.md"));
  bool is_map = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("|")) {
      is_map |= line.starts_with("| folder | subfolders");
      const std::size_t cell = line.find('|', 1);
      if (!is_map || cell == std::string::npos) continue;
      for (const std::string& folder : all_of(line.substr(0, cell), named))
        rows[folder] = all_of(line.substr(cell), named);
    } else {
      is_map = false;
    }
  }
  return rows;
}

bool has_named_parent(const fs::path& folder, const std::set<std::string>& named) {
  for (fs::path parent = folder.parent_path(); !parent.empty(); parent = parent.parent_path())
    if (named.contains(parent.string())) return true;
  return false;
}

}  // namespace

TEST_CASE("the map of CONTRIBUTING.md names every folder of the tree, and none that is not there") {
  const auto rows = map_of_folders();
  REQUIRE(rows.size() > 12);
  for (const std::string& folder : folders_below(kTree)) {
    if (folder.find('/') != std::string::npos) continue;
    INFO(folder);
    CHECK(rows.contains(folder));
  }
  for (const auto& [folder, named] : rows) {
    const std::set<std::string> found = folders_below(kTree / folder);
    for (const std::string& name : named) {
      INFO(folder << "/ has no " << name << "/");
      CHECK(found.contains(name));
    }
    for (const std::string& name : found) {
      // tests/ mirrors the folders of the code, and what lies in its folders of files for tests has no names.
      if (folder == "tests" && (fs::exists(kTree / name) || has_named_parent(name, named))) continue;
      INFO("the row of " << folder << "/ does not name " << name << "/");
      CHECK(named.contains(name));
    }
  }
}

TEST_CASE("CONTRIBUTING.md lists every fuzz target") {
  const std::string page = text_of(kTree / "CONTRIBUTING.md");
  std::smatch list;
  REQUIRE(std::regex_search(page, list, std::regex(R"(`tests/fuzz` \(([\w,\s]+)\))")));
  std::set<std::string> targets;
  for (const auto& file : fs::directory_iterator(kTree / "tests/fuzz")) {
    const std::string name = file.path().filename().string();
    if (name.ends_with("_target.cpp")) targets.insert(name.substr(0, name.size() - std::string("_target.cpp").size()));
  }
  CHECK(all_of(list[1].str(), std::regex(R"((\w+))")) == targets);
}

TEST_CASE("the comment above an actor's class names every message that the actor receives") {
  static const std::regex handler(R"(\[[^\[\]]*\]\((?:const )?msg::(\w+)&)");
  std::size_t num_actors = 0;
  for (const auto& file : fs::directory_iterator(kTree / "actors/unit")) {
    if (file.path().extension() != ".cpp") continue;
    const std::set<std::string> received = all_of(text_of(file.path()), handler);
    if (received.empty()) continue;
    ++num_actors;
    const std::string header = text_of(fs::path(file.path()).replace_extension(".h"));
    const std::string comment = header.substr(0, header.find("#pragma once"));
    for (const std::string& message : received) {
      INFO(file.path().filename().string() << " receives msg::" << message);
      CHECK(std::regex_search(comment, std::regex("msg::" + message + "\\b")));
    }
  }
  CHECK(num_actors >= 6);
}
