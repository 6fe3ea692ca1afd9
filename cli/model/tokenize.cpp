// troupe tokenize: text to token ids and back, with a model file's own vocabulary.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "engine/formats/model_file.h"
#include "engine/model/file_verdict.h"
#include "engine/model/memory_budget.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::cli {
namespace {

Result<std::shared_ptr<const engine::Tokenizer>> open_vocabulary(const std::string& path) {
  const auto file = engine::open_gguf(path);
  if (!file) return file.error();
  const engine::LoadOptions options;
  auto tokenizer = engine::judge_file(**file, options, engine::default_memory_budget());
  if (!tokenizer) return tokenizer.error();
  if (!*tokenizer)
    return Error{ErrorCode::unsupported, path + ": the file has no vocabulary: it can be used with token ids only"};
  return tokenizer;
}

// One token in quotes, with control characters and bytes that are not UTF-8 made visible.
std::string in_quotes(const std::string& bytes) {
  const nlohmann::json text = bytes;
  try {
    return printable_json(text.dump());
  } catch (const nlohmann::json::type_error&) {  // part of a character
    std::string out = "\"";
    for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return out + "\"";
  }
}

Result<int> decode(const engine::Tokenizer& tokenizer, const std::string& text, bool raw) {
  const auto ids = parse_ids(text);
  if (!ids) return ids.error();
  for (const TokenId id : *ids)
    if (static_cast<std::uint32_t>(id) >= tokenizer.size())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("there is no token {}: the vocabulary has {}, from 0 on", id, tokenizer.size())};
  // The exact bytes; a line break is added only on a terminal.
  const std::string bytes = tokenizer.decode(*ids);
  std::cout << (shows_controls(raw) ? TerminalText::of(bytes) : bytes) << (::isatty(STDOUT_FILENO) != 0 ? "\n" : "");
  return kExitOk;
}

}  // namespace

Result<int> tokenize(const config::TokenizeOptions& options, const config::Given& given) {
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto tokenizer = open_vocabulary(*path);
  if (!tokenizer) return tokenizer.error();
  const auto text = input_and_piped_text(options, given, "troupe tokenize");
  if (!text) return text.error();
  if (options.decode) return decode(**tokenizer, *text, options.raw);

  const std::vector<TokenId> ids =
      (*tokenizer)->encode(*text, {.add_special = !options.no_bos, .parse_special = !options.no_parse_special});
  if (options.ids) {
    std::cout << format_ids(ids) << '\n';
    return kExitOk;
  }
  for (const TokenId id : ids) {
    const std::string piece = (*tokenizer)->piece(id);
    std::cout << fmt::format("{:>8}  {}\n", id, in_quotes(piece.empty() ? (*tokenizer)->raw_piece(id) : piece));
  }
  return kExitOk;
}

}  // namespace troupe::cli
