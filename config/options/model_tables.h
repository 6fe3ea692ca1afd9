// The models of a server: the [[model]] tables of troupe.toml, as they stand there, or the values of -m.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/bytes.h"
#include "config/options/table.h"
#include "config/result.h"

namespace troupe::config {

inline constexpr std::size_t kMaxModelTables = 64;
inline constexpr std::size_t kMaxModelAliases = 16;  // of one model
inline constexpr double kMinModelWeight = 0.001, kMaxModelWeight = 1000;

struct ModelTable {
  int line = 0;  // of its header, from 1; 0: of -m

  std::string path{};
  std::string name{};                       // what clients call it; empty: the name in its file
  std::vector<std::string> aliases{};       // other names that clients may call it by
  std::optional<std::int64_t> ctx_size{};   // what is absent is as the option of that name says
  std::string kv_type{};                    // likewise if empty
  std::optional<std::int64_t> kv_blocks{};  // likewise
  std::optional<std::int64_t> predict{};    // likewise
  std::string chat_template{};              // likewise
  std::string tool_format{};                // likewise
  std::string draft{};                      // a draft model; empty: none
  Bytes memory{};                           // of --memory, for this model; 0: what it needs and a share of the rest
  double weight = 1;                        // of its computing, in the shares of its tenants
  bool pinned = false;                      // never unloaded to make room for another
};

// The models of these tables, in their order: the first is the default. Error: bad_config, "LINE: WHY": an unknown key
// (with the nearest name), a value of the wrong type or out of range, a table without a path, two of one name or alias.
[[nodiscard]] Result<std::vector<ModelTable>> to_model_tables(std::span<const Table> tables);

// The names of one model in a list with commas between them. Error: invalid_argument: one is empty, none that a client
// can ask for, or there twice; there are more than kMaxModelAliases behind the first.
[[nodiscard]] Result<std::vector<std::string>> parse_names(std::string_view list);

// A value of -m: "PATH" or "NAME=PATH". What stands before the first = is a name if it has no slash: ./a=b.gguf is a
// path. Error: invalid_argument: an empty path or name, a name that no client can ask for.
[[nodiscard]] Result<ModelTable> parse_model(const std::string& text);

// A model as words: "PATH" or "NAME=PATH", then "KEY=VALUE" for keys of a [[model]] table. Error: invalid_argument, as
// parse_model() and to_model_tables().
[[nodiscard]] Result<ModelTable> parse_model(std::span<const std::string> words);

// The keys that have another value than the default, a line each, as they stand below [[model]].
[[nodiscard]] std::string to_toml(const ModelTable& model);

// Whether they say the same, in whatever lines.
[[nodiscard]] inline bool operator==(const ModelTable& a, const ModelTable& b) { return to_toml(a) == to_toml(b); }

}  // namespace troupe::config
