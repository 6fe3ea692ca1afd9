// The subcommands. The result is the exit code, or an error that main() prints and turns into one (exit_code.h). Each
// runs once per process, on the main thread.
#pragma once

#include "config/options.h"
#include "config/result.h"

namespace troupe::cli {

Result<int> serve(const config::Parsed& parsed);
Result<int> run(const config::Parsed& parsed);
Result<int> embed(const config::Parsed& parsed);
Result<int> bench(const config::Parsed& parsed);
Result<int> eval(const config::Parsed& parsed);
Result<int> tokenize(const config::Parsed& parsed);
Result<int> inspect(const config::Parsed& parsed);
Result<int> status(const config::Parsed& parsed);
Result<int> load(const config::Parsed& parsed);
Result<int> top(const config::Parsed& parsed);
Result<int> perplexity(const config::Parsed& parsed);
Result<int> probe(const config::Parsed& parsed);
Result<int> version(const config::Parsed& parsed);

}  // namespace troupe::cli
