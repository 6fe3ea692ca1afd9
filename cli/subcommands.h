// The subcommands, each with its own options and, where it uses them, its arguments and the origins of its values. The
// result is the exit code, or an error that main() prints and turns into one (exit_code.h). Each runs once per process,
// on the main thread.
#pragma once

#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

Result<int> serve(const config::Parsed& parsed);
Result<int> run(const config::RunOptions& options, const config::Given& given);
Result<int> embed(const config::EmbedOptions& options, const config::Given& given);
Result<int> session(const config::SessionOptions& options, const config::Given& given);
Result<int> model(const config::ModelCommandOptions& options, const config::Given& given);
Result<int> key(const config::KeyCommandOptions& options, const config::Given& given);
Result<int> chat(const config::ChatOptions& options, const config::Given& given);
Result<int> bench(const config::BenchOptions& options, const config::Given& given);
// bench --overhead: starts the server's actors on the model, without a socket; decodes --repetitions times --n-gen
// tokens in each of --batch-sizes sequences; prints quantiles of the time from the last kernel of a step to the first
// of the next.
Result<int> bench_overhead(const config::BenchOptions& options, const config::Given& given);
Result<int> eval(const config::EvalOptions& options, const config::Given& given);
Result<int> tokenize(const config::TokenizeOptions& options, const config::Given& given);
// tools: parse [FILE] prints what an answer calls, formats lists how models write calls.
Result<int> tools(const config::ToolsCommandOptions& options, const config::Given& given);
// schema: check FILE says of each line's schema whether it is enforced, and of each instance whether its masks are
// right. The exit code is 1 if one is not.
Result<int> schema(const config::SchemaCommandOptions& options, const config::Given& given);
// grammar: check FILE says whether a grammar can be enforced, and of each text behind it whether it is one of the
// grammar's. The exit code is 1 if one is not.
Result<int> grammar(const config::GrammarCommandOptions& options, const config::Given& given);
Result<int> inspect(const config::InspectOptions& options, const config::Given& given);
Result<int> status(const config::StatusOptions& options);
Result<int> load(const config::LoadOptions& options, const config::Given& given);
Result<int> top(const config::TopOptions& options);
Result<int> usage(const config::UsageOptions& options, const config::Given& given);
Result<int> perplexity(const config::PerplexityOptions& options, const config::Given& given);
Result<int> probe(const config::ProbeOptions& options);
// The exit code: 0 if all is fine, 1 if there is advice, 2 if something is broken.
Result<int> doctor(const config::DoctorOptions& options, const config::Given& given);
// verify: its arguments are files of receipts. The exit code is 0 if all are proved, 1 if one differs.
Result<int> verify(const config::VerifyOptions& options, const config::Given& given);
Result<int> backup(const config::BackupOptions& options, const config::Given& given);
Result<int> restore(const config::RestoreOptions& options, const config::Given& given);
// pull: its arguments are sources of models. 130 after Ctrl-C.
Result<int> pull(const config::PullCommandOptions& options, const config::Given& given);
Result<int> list(const config::ListOptions& options, const config::Given& given);
Result<int> rm(const config::RemoveOptions& options, const config::Given& given);
Result<int> prune(const config::PruneOptions& options, const config::Given& given);
Result<int> completion(const config::Given& given);
Result<int> version(const config::VersionOptions& options);

}  // namespace troupe::cli
