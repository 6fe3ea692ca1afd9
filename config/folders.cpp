#include "config/folders.h"

#include <algorithm>
#include <cstddef>

namespace troupe {
namespace {

constexpr std::string_view kQuotes = "'\"`";

// Whether a path can begin after this character; else a slash stands within a word, as in "tokens/s".
bool may_begin_after(char c) { return std::string_view(" \t\n'\"`([{<=:,;|").find(c) != std::string_view::npos; }

// Whether an absolute path of more than "/" begins here.
bool begins_path(std::string_view text, std::size_t at) {
  if (text[at] != '/' || (at > 0 && !may_begin_after(text[at - 1])) || at + 1 == text.size()) return false;
  return std::string_view(" \t\n'\"`)]}>:,;").find(text[at + 1]) == std::string_view::npos;
}

// Where the path that begins at `begin` ends.
std::size_t end_of_path(std::string_view text, std::size_t begin) {
  std::size_t end = text.size();
  if (begin > 0 && kQuotes.find(text[begin - 1]) != std::string_view::npos)
    return std::min(end, text.find(text[begin - 1], begin));
  for (const std::string_view last : {": ", "; ", ", ", ")", "]", "}", ">", "\n"})
    end = std::min(end, text.find(last, begin));
  return end;
}

}  // namespace

std::string without_folders(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!begins_path(text, i)) {
      out += text[i];
      continue;
    }
    std::size_t end = end_of_path(text, i);
    while (end > i && text[end - 1] == '/') --end;  // of a folder
    const std::size_t last = text.substr(0, end).rfind('/');
    if (end > i && last != std::string_view::npos) i = last;  // its name follows
  }
  return out;
}

}  // namespace troupe
