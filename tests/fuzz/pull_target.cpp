// What servers send to `troupe pull`, and what is kept of it: an error that says something, or values that lead nowhere
// else and read back as they were. The first byte chooses what the rest is.
#include "cli/pull/http_fields.h"
#include "cli/pull/listing.h"
#include "cli/pull/quant.h"
#include "cli/store/model_source.h"
#include "cli/store/record.h"
#include "cli/store/transfer_state.h"
#include "cli/store/url.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::cli {
namespace {

void check_path(std::string_view path) {
  TROUPE_ASSERT(!path.empty() && path.front() != '/' && path.find('\0') == path.npos);
  TROUPE_ASSERT(path != ".." && !path.starts_with("../") && path.find("/../") == path.npos && !path.ends_with("/.."));
}

void check_listing(std::string_view text) {
  std::vector<RemoteFile> files;
  if (const Status added = add_listing(text, files); !added) fuzz::check_message(added.error().message);
  for (const RemoteFile& file : files) check_path(file.path);
  const std::vector<RemoteModel> models = models_of(files);
  if (models.empty()) return fuzz::check_message(no_gguf("org/name", files).message);
  for (const RemoteModel& model : models)
    for (const RemoteFile& file : model.files)
      TROUPE_ASSERT(problem_of_file_name(std::string_view(file.path).substr(file.path.rfind('/') + 1)).empty());
  const auto choice = choose_fitting(models, {.budget = 1'000'000, .beside = 1000, .context = 1});
  if (!choice) return fuzz::check_message(choice.error().message);
  TROUPE_ASSERT(models.size() == 1 || choice->model.bytes() <= 999'000);
}

void check_image(std::string_view text) {
  const auto file = parse_image_manifest(text);
  if (!file) return fuzz::check_message(file.error().message);
  TROUPE_ASSERT(is_sha256(file->sha256) && file->bytes > 0 && file->bytes <= kMaxModelFileBytes);
}

void check_record(std::string_view text) {
  const auto model = parse_record(text);
  if (!model) return fuzz::check_message(model.error().message);
  for (const StoredFile& file : model->files)
    TROUPE_ASSERT(file.name.find('/') == file.name.npos && is_sha256(file.sha256));
  const auto again = parse_record(record_text(*model));
  TROUPE_ASSERT(again && record_text(*again) == record_text(*model));
}

void check_state(std::string_view text) {
  const auto state = parse_state(text);
  if (!state) return fuzz::check_message(state.error().message);
  for (const ByteRange& range : state->done.ranges())
    TROUPE_ASSERT(range.begin < range.end && range.end <= state->size);
  TROUPE_ASSERT(state->done.total() <= state->size && state->done.front() <= state->done.total());
  const auto again = parse_state(state_text(*state));
  TROUPE_ASSERT(again && again->done.ranges() == state->done.ranges());
}

void check_source(std::string_view text) {
  const ModelHosts hosts{*parse_url("https://huggingface.co/"), *parse_url("https://registry.ollama.ai/")};
  const auto source = parse_source(text, hosts);
  if (!source) return fuzz::check_message(source.error().message);
  const std::string name = store_name(*source, hosts, "Q8_0");
  TROUPE_ASSERT(!name.empty());
  if (source->kind != ModelSource::Kind::url) check_path(source->repo);
}

void check_address(std::string_view text) {
  const Url base = *parse_url("https://h/a/b?c");
  const auto url = resolve_url(base, text);
  if (!url) return fuzz::check_message(url.error().message);
  const auto again = parse_url(url->text());
  TROUPE_ASSERT(again && *again == *url);
}

void check_fields(std::string_view text) {
  HttpFields fields;
  add_field(text, fields);
  if (const auto range = parse_content_range(text))
    TROUPE_ASSERT(range->begin < range->end && range->end <= range->size);
  if (const auto wait = parse_retry_after(text, 1'795'953'600)) TROUPE_ASSERT(wait->count() >= 0);
  TROUPE_ASSERT(next_link(text).size() <= text.size());
  TROUPE_ASSERT(quant_of(text).size() <= text.size());
}

}  // namespace
}  // namespace troupe::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  fuzz::Input in(data, size);
  constexpr void (*kChecks[])(std::string_view) = {cli::check_listing, cli::check_image,  cli::check_record,
                                                   cli::check_state,   cli::check_source, cli::check_address,
                                                   cli::check_fields};
  const std::size_t chosen = in.byte() % std::size(kChecks);
  kChecks[chosen](in.rest());
  return 0;
}
