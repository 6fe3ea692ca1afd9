// The models of a server: the [[model]] tables of troupe.toml, as they stand there, or the values of -m.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/model_keys.h"
#include "config/options/table.h"
#include "config/result.h"

namespace troupe::config {

inline constexpr std::size_t kMaxModelTables = 64;

struct ModelTable : ModelKeys {
  int line = 0;  // of its header, from 1; 0: of -m
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

// Whether they say the same, in whatever lines. How one replaces the other is not a part of what is served, and a model
// that says nothing is loaded at the start.
[[nodiscard]] inline bool operator==(const ModelTable& a, const ModelTable& b) {
  ModelKeys of_a = a;
  of_a.replace = b.replace;
  if (is_on_request(a) == is_on_request(b)) of_a.load = b.load;
  return of_a == static_cast<const ModelKeys&>(b);
}

}  // namespace troupe::config
