// troupe embed: embeddings of texts from the server, one line of JSON each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <string>
#include <vector>

#include "cli/client/client_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/text.h"
#include "ipc/client/client.h"

namespace troupe::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

// The texts: the lines of what is piped in, and then the arguments or the lines of the file.
Result<std::vector<std::string>> texts_of(const config::EmbedOptions& options, const config::Given& given) {
  const bool are_arguments = !given.arguments.empty() && options.file.empty();
  const auto all =
      are_arguments ? piped_text(options, given, "troupe embed") : input_and_piped_text(options, given, "troupe embed");
  if (!all) return all.error();
  std::vector<std::string> texts = lines_of(*all);
  if (are_arguments) texts.insert(texts.end(), given.arguments.begin(), given.arguments.end());
  return texts;
}

// A JSON array, with the shortest digits that read back to the same float32.
std::string array_of(const std::vector<float>& values) {
  std::string text = "[";
  for (const float value : values) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text.append(text.size() > 1 ? "," : "").append(digits.data(), end);
  }
  return text + "]";
}

Result<std::optional<client::Pooling>> pooling_of(const std::string& name) {
  if (name.empty()) return std::optional<client::Pooling>();
  if (name == "mean") return std::optional(client::Pooling::mean);
  if (name == "cls") return std::optional(client::Pooling::cls);
  if (name == "last") return std::optional(client::Pooling::last);
  return Error{ErrorCode::invalid_argument, fmt::format("--pooling: '{}' is none of mean, cls and last", name)};
}

}  // namespace

Result<int> embed(const config::EmbedOptions& options, const config::Given& given) {
  const auto texts = texts_of(options, given);
  if (!texts) return texts.error();
  const auto pooling = pooling_of(options.pooling);
  if (!pooling) return pooling.error();
  std::vector<std::vector<TokenId>> ids;
  for (std::size_t i = 0; options.ids && i < texts->size(); ++i) {
    auto parsed_ids = parse_ids((*texts)[i]);
    if (!parsed_ids) return parsed_ids.error();
    ids.push_back(std::move(*parsed_ids));
  }
  const auto client = connect(options, "troupe embed");
  if (!client) return client.error();

  client::EmbedRequest request;
  request.model = options.model_name;
  request.pooling = *pooling;
  request.normalise = !options.no_normalise;
  request.add_special = !options.no_bos;
  request.parse_special = options.special;
  if (options.truncate) request.truncate = true;
  std::uint64_t num_cut = 0;
  constexpr std::uint32_t kAtOnce = 64;  // their vectors fit into a frame
  const std::size_t at_once = std::clamp((*client)->server().max_embed_inputs, 1u, kAtOnce);
  for (std::size_t begin = 0; begin < texts->size(); begin += at_once) {
    const auto first = static_cast<std::ptrdiff_t>(begin);
    const auto last = static_cast<std::ptrdiff_t>(std::min(begin + at_once, texts->size()));
    if (options.ids)
      request.inputs = std::vector(ids.begin() + first, ids.begin() + last);
    else
      request.inputs = std::vector(texts->begin() + first, texts->begin() + last);
    const auto answer = (*client)->embed(request);
    if (!answer) return answer.error();
    num_cut += answer->truncated_tokens;
    for (std::size_t i = 0; i < answer->vectors.size(); ++i)
      std::cout << "{\"index\":" << begin + i << ",\"embedding\":" << array_of(answer->vectors[i]) << "}\n";
    std::cout.flush();
  }
  if (num_cut > 0) std::cerr << "troupe embed: cut " << num_cut << " tokens from texts that are too long\n";
  return kExitOk;
}

}  // namespace troupe::cli
