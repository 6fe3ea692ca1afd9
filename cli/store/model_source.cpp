#include "cli/store/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "config/printable.h"
#include "config/utf8.h"
#include "engine/formats/split_name.h"

namespace troupe::cli {
namespace {

constexpr std::string_view kRegistryPrefix = "ollama://";
constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+:/@";
constexpr std::string_view kForms = "type https://HOST/FILE.gguf, ORG/NAME[:QUANT] of a hub, or ollama://NAME[:TAG]";

Error no_source(std::string_view text, const std::string& why) {
  return {ErrorCode::invalid_argument,
          fmt::format("'{}' names no model: {}; {}", Printable(text, 256).text(), why, kForms)};
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// A part between slashes: no hidden file, no "..", nothing that another program reads as an option.
bool is_segment(std::string_view part) {
  return !part.empty() && part.size() <= 96 && std::all_of(part.begin(), part.end(), is_plain) && part.front() != '.' &&
         part.front() != '-' && part.find("..") == std::string_view::npos;
}

bool are_segments(std::string_view text, std::size_t least, std::size_t most) {
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= text.size(); ++count) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (!is_segment(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return count >= least && count <= most;
}

// "[...]MARK REST" without the part behind MARK, which goes to `rest`.
std::string_view split_behind(std::string_view text, char mark, std::string& rest) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return text;
  rest = text.substr(at + 1);
  return text.substr(0, at);
}

Result<ModelSource> parse_hub(std::string_view text, std::string_view typed, const ModelHosts& hosts) {
  ModelSource source{.kind = ModelSource::Kind::hub, .url = hosts.hub};
  source.url.target = "/";
  const bool quant_first = text.find(':') < text.find('@');
  std::string_view repo = split_behind(text, quant_first ? ':' : '@', quant_first ? source.quant : source.revision);
  std::string& first = quant_first ? source.quant : source.revision;
  std::string& second = quant_first ? source.revision : source.quant;
  const std::string both = first;
  first = split_behind(both, quant_first ? '@' : ':', second);
  if (!are_segments(repo, 2, 2)) return no_source(typed, "a model of a hub is ORG/NAME");
  const bool names_quant = text.find(':') != std::string_view::npos;
  if (names_quant && !are_segments(source.quant, 1, 4))
    return no_source(typed, "behind the colon stands a quantization or a file's name");
  if (text.find('@') != std::string_view::npos && !are_segments(source.revision, 1, 4))
    return no_source(typed, "behind the @ stands a branch, a tag or a commit");
  source.repo = repo;
  if (source.revision.empty()) source.revision = "main";
  return source;
}

// A page or a file of the hub, as a browser shows its address: it has the hash and the other parts of a split model.
std::optional<Result<ModelSource>> parse_hub_page(const Url& url, std::string_view typed, const ModelHosts& hosts) {
  const bool is_short = url.is_secure() && url.host == "hf.co" && hosts.hub.host == "huggingface.co";
  if (url.origin() != hosts.hub.origin() && !is_short) return std::nullopt;
  const std::string path = percent_decoded(url.path().substr(1));
  const bool is_file = problem_of_file_name(path.substr(path.rfind('/') + 1)).empty();
  if (are_segments(path, 2, 2) && !is_file) return parse_hub(path, typed, hosts);
  std::string::size_type name_end = path.find('/');
  if (name_end != path.npos) name_end = path.find('/', name_end + 1);
  if (name_end == path.npos) return std::nullopt;
  const std::string rest = path.substr(name_end + 1);
  if (rest.starts_with("tree/") && are_segments(rest.substr(5), 1, 1))
    return parse_hub(fmt::format("{}@{}", path.substr(0, name_end), rest.substr(5)), typed, hosts);
  if (!rest.starts_with("blob/") && !rest.starts_with("resolve/")) return std::nullopt;
  const std::string place = rest.substr(rest.find('/') + 1);
  const std::size_t slash = place.find('/');
  if (slash == place.npos) return std::nullopt;
  return parse_hub(fmt::format("{}@{}:{}", path.substr(0, name_end), place.substr(0, slash), place.substr(slash + 1)),
                   typed, hosts);
}

Result<ModelSource> parse_registry(std::string_view text, std::string_view typed, const ModelHosts& hosts) {
  ModelSource source{.kind = ModelSource::Kind::registry, .url = hosts.registry, .revision = "latest"};
  const std::size_t slash = text.find('/');
  // Of "HOST/name" and "user/name" the first has a dot or a port, as in names of images.
  if (slash != std::string_view::npos && text.substr(0, slash).find_first_of(".:") != std::string_view::npos) {
    const std::string host(text.substr(0, slash));
    auto url = parse_url((host == hosts.registry.host ? hosts.registry.origin() : "https://" + host) + "/");
    if (!url) return url.error();
    if (url->is_loopback()) url->scheme = hosts.registry.origin() == "http://" + host ? "http" : url->scheme;
    source.url = *url;
    text = text.substr(slash + 1);
  }
  source.url.target = "/";
  std::string tag;
  const std::string_view name = split_behind(text, ':', tag);
  if (text.find(':') != std::string_view::npos) source.revision = tag;
  if (!are_segments(name, 1, 3)) return no_source(typed, "behind ollama:// stands NAME or USER/NAME");
  if (!is_segment(source.revision)) return no_source(typed, "behind the colon stands a tag");
  source.repo = name.find('/') == std::string_view::npos ? "library/" + std::string(name) : std::string(name);
  return source;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return small(x) == small(y); });
}

Result<ModelSource> parse_source(std::string_view text, const ModelHosts& hosts) {
  if (text.empty()) return no_source(text, "it is empty");
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return no_source(text, "it has control characters");
  if (text.starts_with(kRegistryPrefix)) return parse_registry(text.substr(kRegistryPrefix.size()), text, hosts);
  if (text.starts_with("hf.co/")) return parse_hub(text.substr(6), text, hosts);
  if (text.starts_with("huggingface.co/")) return parse_hub(text.substr(15), text, hosts);
  if (text.find("://") == std::string_view::npos) return parse_hub(text, text, hosts);
  auto url = parse_url(text);
  if (!url) return url.error();
  if (auto page = parse_hub_page(*url, text, hosts)) return *std::move(page);
  const std::string file = percent_decoded(url->path().substr(url->path().rfind('/') + 1));
  if (const std::string problem = problem_of_file_name(file); !problem.empty()) return no_source(text, problem);
  return ModelSource{.kind = ModelSource::Kind::url, .url = *std::move(url)};
}

std::string store_name(const ModelSource& source, const ModelHosts& hosts, std::string_view quant) {
  if (source.kind == ModelSource::Kind::hub) {
    const std::string name = fmt::format("{}{}{}", source.repo, quant.empty() ? "" : ":", quant);
    return source.revision == "main" ? name : fmt::format("{}@{}", name, source.revision);
  }
  if (source.kind == ModelSource::Kind::registry) {
    const bool is_usual = source.url.origin() == hosts.registry.origin();
    if (is_usual && source.repo.starts_with("library/"))
      return fmt::format("{}:{}", source.repo.substr(8), source.revision);
    const std::string host = source.url.origin().substr(source.url.scheme.size() + 3);
    return fmt::format("{}{}{}{}:{}", kRegistryPrefix, is_usual ? "" : host, is_usual ? "" : "/", source.repo,
                       source.revision);
  }
  const std::string file = percent_decoded(source.url.path().substr(source.url.path().rfind('/') + 1));
  return engine::name_after_file(file);
}

std::string problem_of_store_name(std::string_view name) {
  if (name.empty()) return "the name is empty";
  if (percent_encoded(name, false).size() > kMaxStoreNameBytes)
    return fmt::format("the name has more than {} bytes", kMaxStoreNameBytes);
  if (name.find_first_not_of(kNameCharacters) != std::string_view::npos)
    return "a name has letters, digits and ._-+:/@ alone";
  if (name.front() == '/' || name.front() == '.' || name.front() == '-')
    return "a name begins with no slash, dot or dash";
  if (name.find("..") != std::string_view::npos) return "a name has no '..'";
  return {};
}

std::string problem_of_file_name(std::string_view name) {
  if (name.size() > kMaxFileNameBytes) return fmt::format("its file's name has more than {} bytes", kMaxFileNameBytes);
  if (name.size() <= 5 || !same_name(name.substr(name.size() - 5), ".gguf"))
    return "its file's name ends not with .gguf";
  if (name.front() == '.' || name.front() == '-' || name.find_first_of("/\\") != std::string_view::npos ||
      name.find('\0') != std::string_view::npos)
    return "its file's name leads elsewhere";
  if (!is_utf8(name) || Printable(name, kMaxFileNameBytes).text() != name)
    return "its file's name has characters that are not shown";
  return {};
}

std::string shell_word(std::string_view text) {
  if (!text.empty() && text.find_first_not_of(kNameCharacters) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + '\'';
}

NameMatch match_name(std::string_view typed, std::string_view name) {
  if (typed == name) return NameMatch::same;
  if (same_name(typed, name)) return NameMatch::in_other_case;
  std::string_view plain = typed;
  if (plain.starts_with("hf.co/")) plain.remove_prefix(6);
  // Of a registry's own models the store's names have no server and no user.
  if (plain.starts_with(kRegistryPrefix) && plain.find('/', kRegistryPrefix.size()) == plain.npos)
    plain.remove_prefix(kRegistryPrefix.size());
  if (same_name(plain, name)) return NameMatch::in_other_words;
  if (name.find('/') == name.npos || name.starts_with(kRegistryPrefix))
    if (same_name(fmt::format("{}:latest", plain), name)) return NameMatch::in_other_words;
  // "org/name" of "org/name:Q4_K_M", but of no other revision than the usual one.
  if (plain.find_first_of(":@") == plain.npos && plain.size() < name.size() && name[plain.size()] == ':' &&
      same_name(plain, name.substr(0, plain.size())) && name.find('@') == name.npos)
    return NameMatch::partly;
  return NameMatch::none;
}

}  // namespace troupe::cli
