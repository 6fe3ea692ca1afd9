// troupe serve --check, and what a reload judges before it changes anything: what a start or a reload would refuse.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/options/option_groups.h"
#include "config/options/options.h"

namespace troupe::cli {

// What was found.
struct ServeCheck {
  std::vector<std::string> problems;  // each with where it stands: "FILE:3: WHY"
  std::string summary;                // what there is, in a line, if there is no problem
};

// Looks everything up that a start and a reload do: users and groups, rules, keys, certificate, the paths of socket and
// log, and of each model the header, the vocabulary, the chat template, and where the pool is known before it is made,
// whether it has the blocks that the rules keep. Loads no weights, makes no file and no socket, and disturbs no server
// that runs.
[[nodiscard]] ServeCheck check_serve(const config::ServeOptions& options, const config::Given& given);

// Of that users, groups, rules and models: the paths, keys and certificate of a server that runs are judged where they
// are read again.
// served: the lines of the [[model]] tables that are served as they are: of these only names and memory count, so that
// a file that has been moved since keeps nothing up.
[[nodiscard]] std::vector<std::string> check_reload(const config::ServeOptions& options, const config::Given& given,
                                                    const std::set<int>& served);

}  // namespace troupe::cli
