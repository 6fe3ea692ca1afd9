// The models that --models-dir and --models-store add to a server: what a listing of these places shows, each loaded
// once a request asks for it. A path never comes from a request.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/options/model_tables.h"
#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

struct Listing {
  std::vector<config::ModelTable> tables{};  // with a path, a name, load = on-request, and line 0
  std::vector<std::string> left_out{};       // what there is and is not served, and why: for the log
  std::vector<std::string> troubled{};       // of these, the names of files that are there and cannot be served now
};
inline constexpr std::size_t kMaxToldLeftOut = 20;  // lines of the log; then their number

[[nodiscard]] inline bool has_listing(const config::ServeOptions& options) {
  return !options.models_dir.empty() || options.models_store;
}

// Lists the folder, then the store; by name. Of the folder:
//   NAME.gguf               a model of this name; of a split one the first part alone counts
//   FOLDER/ANYTHING.gguf    a model of the folder's name, if there is one model in it
// Hidden files and projectors (mmproj) are passed over. Symbolic links are followed, also out of the folder: who may
// write there decides what is served. Left out is what has the file, or a name, of one of `named`, and what has no name
// that a client can ask for. Nothing is opened. Error: the folder cannot be read.
[[nodiscard]] Result<Listing> list_models(const config::ServeOptions& options,
                                          const std::vector<config::ModelTable>& named);

}  // namespace troupe::cli
