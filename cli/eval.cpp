// troupe eval: logits, or a greedy continuation, of exactly these tokens.
#include "engine/eval.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/exit_code.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/subcommands.h"
#include "cli/text.h"

namespace troupe::cli {
namespace {

Result<std::vector<TokenId>> read_ids(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return Error{text.error().code, "--tokens: " + text.error().message};
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  const Error wrong{ErrorCode::invalid_argument,
                    "--tokens: " + path + " is not a JSON array of token ids such as [1, 424, 437]"};
  if (!json.is_array()) return wrong;
  std::vector<TokenId> ids;
  for (const nlohmann::json& element : json) {
    if (!element.is_number_integer()) return wrong;
    const auto id = element.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) return wrong;
    ids.push_back(static_cast<TokenId>(id));
  }
  if (ids.empty()) return Error{ErrorCode::invalid_argument, "--tokens: " + path + " is an empty array"};
  return ids;
}

Status write_floats(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.close();
  if (!file) {
    const int reason = errno;
    return Error{reason == EACCES ? ErrorCode::permission : ErrorCode::io,
                 "--output: " + path + ": " + std::strerror(reason)};
  }
  return Ok{};
}

}  // namespace

Result<int> eval(const config::Parsed& parsed) {
  const config::Options& options = parsed.options;
  if (options.tokens.empty())
    return Error{ErrorCode::invalid_argument, "no tokens: name a JSON array of token ids with --tokens IDS.json"};
  if (options.output.empty() && options.greedy == 0)
    return Error{ErrorCode::invalid_argument,
                 "nothing to do: write logits with -o LOGITS.f32, or continue with --greedy N"};
  const auto ids = read_ids(options.tokens);
  if (!ids) return ids.error();
  const auto path = model_path(options);
  if (!path) return path.error();
  auto load = load_options(parsed);
  if (!load) return load.error();
  load->max_sequences = 1;
  engine::Team team(num_threads(options), engine::allowed_cpus());
  load->team = &team;
  if (auto status = start_log(options); !status) return status.error();  // on stderr: stdout is for results
  const auto model = load_showing(*path, *load, LoadProgress(log_is_on_terminal(options), LoadProgress::Clock::now()));
  if (!model) return model.error();

  if (!options.output.empty()) {
    const auto logits = engine::evaluate(**model, team, *ids, static_cast<std::uint32_t>(options.chunk));
    if (!logits) return logits.error();
    if (auto status = write_floats(options.output, *logits); !status) return status.error();
    std::cerr << "wrote logits of " << ids->size() << " positions x " << (*model)->info().vocab_size
              << " tokens (numerics " << (*model)->numerics_id() << ") to " << options.output << '\n';
  }
  if (options.greedy > 0) {
    const auto tokens = engine::greedy(**model, team, *ids, static_cast<std::uint32_t>(options.greedy));
    if (!tokens) return tokens.error();
    std::cout << format_ids(*tokens) << '\n';
  }
  return kExitOk;
}

}  // namespace troupe::cli
