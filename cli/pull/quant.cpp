#include "cli/pull/quant.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/store/model_source.h"
#include "config/printable.h"
#include "engine/formats/split_name.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kMaxListed = 24;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string capitals(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether a word, in capitals, names a type of weights: Q4_K_M, IQ2_XXS, TQ1_0, BF16, F32, FP16, MXFP4_MOE.
bool is_type(std::string_view word) {
  for (const std::string_view plain : {"F16", "F32", "BF16", "FP16", "FP32", "F64", "MXFP4", "MXFP4_MOE", "NVFP4"})
    if (word == plain) return true;
  const std::string_view rest = word.starts_with("IQ") || word.starts_with("TQ") ? word.substr(2)
                                : word.starts_with("Q")                          ? word.substr(1)
                                                                                 : std::string_view();
  if (rest.empty() || !is_digit(rest.front())) return false;
  return rest.size() == 1 || (rest.size() <= 12 && rest[1] == '_' &&
                              rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == rest.npos);
}

// Whether the file is a part of something else than a language model.
bool is_beside(std::string_view path) {
  const std::string name = capitals(base_name(path));
  return name.starts_with("MMPROJ") || name.find("-MMPROJ") != name.npos || name.find("IMATRIX") != name.npos;
}

// "tiny" of "Q4/tiny-Q4_K_M.gguf": of the same model all quantizations have the same.
std::string stem_without_quant(const RemoteModel& model) {
  std::string stem = engine::name_after_file(std::string(base_name(model.files.front().path)));
  const std::size_t at = model.quant.empty() ? stem.npos : capitals(stem).rfind(capitals(model.quant));
  if (at != stem.npos) stem.erase(at, model.quant.size());
  return stem;
}

std::string label_of(const RemoteModel& model) {
  return model.quant.empty() ? Printable(base_name(model.files.front().path)).text() : model.quant;
}

Error ambiguous(const std::string& what, const std::vector<RemoteModel>& models) {
  std::string names;
  for (std::size_t i = 0; i < std::min(models.size(), kMaxListed); ++i)
    names += fmt::format("{}{} ({})", i == 0 ? "" : ", ", Printable(models[i].files.front().path, 128).text(),
                         size_text(models[i].bytes()));
  return {ErrorCode::invalid_argument, fmt::format("{}; name a file behind the colon: {}{}", what, names,
                                                   models.size() > kMaxListed ? ", ..." : "")};
}

}  // namespace

std::uint64_t RemoteModel::bytes() const {
  std::uint64_t sum = 0;
  for (const RemoteFile& file : files) sum += file.bytes;
  return sum;
}

std::string quant_of(std::string_view file_name) {
  const std::string stem = engine::name_after_file(std::string(base_name(file_name)));
  const std::string upper = capitals(stem);
  std::string found;
  for (std::size_t begin = 0; begin <= upper.size();) {
    const std::size_t end = std::min(upper.find_first_of("-.", begin), upper.size());
    const std::string_view word = std::string_view(upper).substr(begin, end - begin);
    if (is_type(word)) {
      const bool is_dynamic = begin >= 3 && upper.compare(begin - 3, 3, "UD-") == 0;
      found = (is_dynamic ? "UD-" : "") + std::string(word);
    }
    begin = end + 1;
  }
  if (!found.empty()) return found;
  // "tiny_q8_0.gguf": the longest end that is a type.
  for (std::size_t at = upper.find('_'); at != upper.npos; at = upper.find('_', at + 1))
    if (is_type(std::string_view(upper).substr(at + 1))) return upper.substr(at + 1);
  return is_type(upper) ? upper : std::string();
}

std::vector<RemoteModel> models_of(std::vector<RemoteFile> files) {
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  std::vector<RemoteModel> models;
  std::map<std::string, std::vector<RemoteFile>> parts;  // by folder, beginning and count
  for (RemoteFile& file : files) {
    if (!problem_of_file_name(base_name(file.path)).empty() || is_beside(file.path)) continue;
    if (const auto split = engine::parse_split_name(file.path); split && split->count > 1)
      parts[split->path_of(split->count)].push_back(std::move(file));
    else
      models.push_back({quant_of(file.path), {std::move(file)}});
  }
  for (auto& [last, all] : parts) {
    const auto split = engine::parse_split_name(last);
    bool is_whole = all.size() == split->count;
    for (std::uint32_t i = 0; is_whole && i < split->count; ++i) is_whole = all[i].path == split->path_of(i + 1);
    if (is_whole) models.push_back({quant_of(last), std::move(all)});
  }
  std::stable_sort(models.begin(), models.end(), [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  return models;
}

std::string size_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return value < 99.95 ? fmt::format("{:.1f} {}", value, kUnits[unit]) : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string list_of(const std::vector<RemoteModel>& models) {
  std::string text;
  std::size_t count = 0;
  for (auto model = models.rbegin(); model != models.rend() && count < kMaxListed; ++model, ++count)
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", label_of(*model), size_text(model->bytes()));
  return models.size() > kMaxListed ? text + ", ..." : text;
}

Result<Choice> choose_named(const std::vector<RemoteModel>& models, std::string_view quant) {
  std::vector<RemoteModel> found;
  for (const RemoteModel& model : models) {
    const bool is_quant = !model.quant.empty() && same_name(model.quant, quant);
    const bool is_file = std::any_of(model.files.begin(), model.files.end(), [&](const RemoteFile& file) {
      return file.path == quant || base_name(file.path) == quant;
    });
    if (is_quant || is_file) found.push_back(model);
  }
  if (found.size() == 1) return Choice{found.front(), {}};
  if (found.size() > 1)
    return ambiguous(fmt::format("{} files are '{}'", found.size(), Printable(quant).text()), found);
  return Error{ErrorCode::invalid_argument,
               fmt::format("there is no '{}'; there are {}", Printable(quant).text(), list_of(models))};
}

Result<Choice> choose_fitting(const std::vector<RemoteModel>& models, const FitLimit& limit) {
  if (models.size() == 1) return Choice{models.front(), {}};
  for (const RemoteModel& model : models)
    if (stem_without_quant(model) != stem_without_quant(models.front()))
      return ambiguous("it has several models", models);
  const std::string beside = limit.context == 0 ? " (K and V are not counted)"
                                                : fmt::format(", with {} for K and V of {} tokens and the vocabulary",
                                                              size_text(limit.beside), limit.context);
  const auto fits = [&](const RemoteModel& model) {
    return model.bytes() <= limit.budget && limit.beside <= limit.budget - model.bytes();
  };
  const auto best = std::find_if(models.begin(), models.end(), fits);
  if (best == models.end())
    return Error{
        ErrorCode::out_of_memory,
        fmt::format("no file fits the {} that a server would have here{}: the smallest is {}, {}; name one behind "
                    "the colon to take it all the same, or give -c fewer tokens or --memory more",
                    size_text(limit.budget), beside, label_of(models.back()), size_text(models.back().bytes()))};
  std::string why;
  if (best == models.begin())
    why = fmt::format("{}, {}: the largest, and it fits the {} that a server would have here{}", label_of(*best),
                      size_text(best->bytes()), size_text(limit.budget), beside);
  else
    why = fmt::format("{}, {}: {}'s {} does not fit the {} that a server would have here{}", label_of(*best),
                      size_text(best->bytes()), label_of(*(best - 1)), size_text((best - 1)->bytes()),
                      size_text(limit.budget), beside);
  return Choice{*best, why};
}

}  // namespace troupe::cli
