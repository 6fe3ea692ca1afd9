#include "cli/pull/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cli/pull/listing.h"
#include "cli/pull/quant.h"
#include "config/printable.h"
#include "engine/formats/model_file.h"
#include "engine/formats/split_name.h"
#include "engine/model.h"
#include "engine/model/file_verdict.h"
#include "engine/model/memory_budget.h"

namespace troupe::cli {
namespace {

constexpr const char* kManifestTypes =
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json";
// Metadata with a vocabulary of 256,000 words take some 12 MB.
constexpr std::uint64_t kFronts[] = {2 << 20, 16 << 20, 64 << 20};

Url at(const Url& server, const std::string& target) {
  Url url = server;
  url.target = target;
  return url;
}

std::string hub_file(const ModelSource& source, const std::string& path) {
  return fmt::format("/{}/resolve/{}/{}", source.repo, percent_encoded(source.revision, false),
                     percent_encoded(path, true));
}

WantedFile wanted_of(const ModelSource& source, const RemoteFile& file) {
  return {.url = at(source.url, hub_file(source, file.path)),
          .name = file.path.substr(file.path.rfind('/') + 1),
          .sha256 = file.sha256,
          .bytes = file.bytes};
}

Result<std::vector<RemoteFile>> list_files(Network& network, const ModelSource& source, std::string& commit) {
  std::vector<RemoteFile> files;
  Url page = at(source.url, fmt::format("/api/models/{}/tree/{}?recursive=true", source.repo,
                                        percent_encoded(source.revision, false)));
  for (std::size_t count = 0;; ++count) {
    if (count == kMaxListingPages)
      return Error{ErrorCode::protocol,
                   fmt::format("the hub's list of files has more than {} pages", kMaxListingPages)};
    const auto document =
        network.get({.url = page, .accept = "application/json"}, kMaxListingBytes, "the list of files");
    if (!document) return document.error();
    if (Status added = add_listing(document->text, files); !added) return added.error();
    if (const auto sha = field_of(document->fields, "x-repo-commit"); sha.size() == 40) commit = sha;
    const std::string next = next_link(field_of(document->fields, "link"));
    if (next.empty()) return files;
    auto url = resolve_url(page, next);
    if (!url) return url.error();
    if (url->origin() != source.url.origin())
      return Error{ErrorCode::protocol, fmt::format("the hub's list of files goes on at {}, another server",
                                                    Printable(url->origin(), 256).text())};
    page = *std::move(url);
  }
}

// What a model needs beside its weights, as its metadata say; nothing is known of a file that cannot be read so far.
Result<FitLimit> limit_of(const Store& store, Network& network, const ModelSource& source,
                          const std::vector<RemoteModel>& models, const FitRequest& fit) {
  FitLimit limit{.budget = fit.memory != 0 ? fit.memory : engine::default_memory_budget()};
  // The metadata of all are the same: those of the smallest that is one file.
  const auto smallest =
      std::find_if(models.rbegin(), models.rend(), [](const auto& each) { return each.files.size() == 1; });
  if (smallest == models.rend()) return limit;
  const WantedFile wanted = wanted_of(source, smallest->files.front());
  for (const std::uint64_t front : kFronts) {
    const auto path = fetch_front(store, network, wanted, front, {.max_store_bytes = fit.max_store_bytes});
    if (!path) return path.error();
    const auto file = engine::open_gguf(*path);
    if (!file) {
      if (front >= wanted.bytes) break;
      continue;
    }
    const auto family = engine::find_family(**file);
    if (!family) break;
    engine::LoadOptions load{.context = fit.context};
    auto outline = (*family)->outline(**file, load);
    if (outline && fit.context == 0 && outline->info.context > kChoiceContext) {
      load.context = kChoiceContext;
      outline = (*family)->outline(**file, load);
    }
    if (!outline) break;
    limit.context = outline->info.context;
    limit.beside = engine::least_cache_bytes(outline->cache, outline->info.context, load) + outline->table_bytes +
                   engine::expected_vocabulary_bytes(**file);
    break;
  }
  return limit;
}

Result<PullPlan> plan_hub(const Store& store, Network& network, const ModelSource& source, const ModelHosts& hosts,
                          const FitRequest& fit) {
  std::string commit;
  auto files = list_files(network, source, commit);
  if (!files) return files.error();
  const std::vector<RemoteModel> models = models_of(*files);
  if (models.empty()) return no_gguf(source.repo, *files);
  Result<Choice> choice = Error{ErrorCode::protocol, {}};
  if (!source.quant.empty()) {
    choice = choose_named(models, source.quant);
  } else if (models.size() == 1) {
    choice = Choice{models.front(), {}};
  } else {
    // Files that are several models are told before any byte is fetched.
    if (const auto any = choose_fitting(models, {.budget = std::numeric_limits<std::uint64_t>::max()}); !any)
      return any.error();
    const auto limit = limit_of(store, network, source, models, fit);
    if (!limit) return limit.error();
    choice = choose_fitting(models, *limit);
    for (const RemoteModel& model : models)
      if (!choice || model.files.front().path != choice->model.files.front().path)
        forget_partial(store, wanted_of(source, model.files.front()));
  }
  if (!choice) return Error{choice.error().code, fmt::format("{}: {}", source.repo, choice.error().message)};
  const std::string name = choice->model.files.front().path;
  const std::string quant = choice->model.quant.empty() ? name.substr(name.rfind('/') + 1) : choice->model.quant;
  // A file that was named is another model of the repository than its quantization.
  const bool is_file = problem_of_file_name(source.quant.substr(source.quant.rfind('/') + 1)).empty();
  PullPlan plan{.model = {.name = store_name(source, hosts, is_file ? name : quant),
                          .source = at(source.url, hub_file(source, name)).text(),
                          .revision = commit,
                          .quant = choice->model.quant},
                .files = {},
                .why = choice->why};
  for (const RemoteFile& file : choice->model.files) plan.files.push_back(wanted_of(source, file));
  return plan;
}

Result<PullPlan> plan_registry(Network& network, const ModelSource& source, const ModelHosts& hosts) {
  const auto document =
      network.get({.url = at(source.url, fmt::format("/v2/{}/manifests/{}", source.repo, source.revision)),
                   .accept = kManifestTypes},
                  kMaxRegistryBytes, "the manifest");
  if (!document) return document.error();
  const auto file = parse_image_manifest(document->text);
  if (!file) return Error{file.error().code, fmt::format("{}: {}", source.repo, file.error().message)};
  const std::string base = source.repo.substr(source.repo.rfind('/') + 1);
  PullPlan plan{.model = {.name = store_name(source, hosts, {}),
                          .source = fmt::format("{}/v2/{}:{}", source.url.origin(), source.repo, source.revision),
                          .quant = quant_of(source.revision + ".gguf")},
                .files = {},
                .why = {}};
  plan.files.push_back({.url = at(source.url, fmt::format("/v2/{}/blobs/{}", source.repo, file->path)),
                        .name = fmt::format("{}-{}.gguf", base, source.revision),
                        .sha256 = file->sha256,
                        .bytes = file->bytes});
  return plan;
}

}  // namespace

std::uint64_t PullPlan::bytes() const {
  std::uint64_t sum = 0;
  for (const WantedFile& file : files) {
    if (file.bytes == 0) return 0;
    sum += file.bytes;
  }
  return sum;
}

Result<PullPlan> make_plan(const Store& store, Network& network, const ModelSource& source, const ModelHosts& hosts,
                           const FitRequest& fit) {
  if (source.kind == ModelSource::Kind::hub) return plan_hub(store, network, source, hosts, fit);
  if (source.kind == ModelSource::Kind::registry) return plan_registry(network, source, hosts);
  const std::string file = percent_decoded(source.url.path().substr(source.url.path().rfind('/') + 1));
  PullPlan plan{.model = {.name = store_name(source, hosts, {}), .source = source.url.text(), .quant = quant_of(file)},
                .files = {},
                .why = {}};
  // Of a split model every part, whichever was named.
  const auto split = engine::parse_split_name(std::string(source.url.path()));
  if (!split || split->count == 1) {
    plan.files.push_back({.url = source.url, .name = file});
    return plan;
  }
  if (split->count > kMaxModelFiles)
    return Error{ErrorCode::unsupported, fmt::format("{}: is one of {} parts; at most {} are fetched",
                                                     Printable(file, 128).text(), split->count, kMaxModelFiles)};
  const std::string query = source.url.target.substr(source.url.path().size());
  for (std::uint32_t number = 1; number <= split->count; ++number) {
    const std::string path = split->path_of(number);
    plan.files.push_back(
        {.url = at(source.url, path + query), .name = percent_decoded(path.substr(path.rfind('/') + 1))});
  }
  return plan;
}

Result<std::string> judge_model(const std::string& path) {
  const auto file = engine::open_gguf(path);
  if (!file) return file.error();
  if (const auto judged = engine::judge_file(**file, {}, std::numeric_limits<std::uint64_t>::max()); !judged)
    return judged.error();
  const auto* const family = (*file)->find("general.architecture");
  const auto* const text = family == nullptr ? nullptr : std::get_if<std::string>(family);
  return text == nullptr ? std::string() : Printable(*text).text();
}

}  // namespace troupe::cli
