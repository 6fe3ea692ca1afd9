// What -m, --draft, `troupe model load` and the like are given: a path, or the name of a model of the store.
#pragma once

#include <string>
#include <vector>

#include "cli/store/record.h"
#include "cli/store/store.h"
#include "config/options/option_table.h"
#include "config/result.h"

namespace troupe::cli {

// Whether the text can be nothing but a path: it begins with a slash, a dot or ~, or has the ending .gguf.
[[nodiscard]] bool is_path_alone(const std::string& text);

// A model of a store that a typed name means.
struct FoundModel {
  StoredModel model;
  StorePlace place;
};
// The one model that the name means, in the first of the stores that has one. Error: model_missing: there is none;
// invalid_argument: there are several, whose names the message lists.
[[nodiscard]] Result<FoundModel> find_stored(const std::string& name, const std::vector<StorePlace>& places);

// The path to open. A file that exists is taken as it is; a name is looked up in the stores; where it is missing and a
// person can be asked (may_ask, and a terminal), `troupe pull --ask` asks and fetches it. What can be nothing but a
// path stays as it is, also where nothing is. Errors: as find_stored(), with the command that fetches the model; as
// Store::file_of().
[[nodiscard]] Result<std::string> find_model(const std::string& typed, const config::StoreDirOptions& options,
                                             bool may_ask = true);

// The same of a name alone, whatever files there are: -hf.
[[nodiscard]] Result<std::string> find_stored_model(const std::string& name, const config::StoreDirOptions& options,
                                                    bool may_ask = true);

}  // namespace troupe::cli
