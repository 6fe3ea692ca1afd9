// troupe probe: measures the limits of this machine, and stores them for the benchmarks.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "cli/model/model_options.h"
#include "cli/model/probe_report.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/status_line.h"
#include "engine/compute/team.h"
#include "engine/formats/split_name.h"
#include "engine/machine/probe_file.h"

namespace troupe::cli {
namespace {

// Whether the stored probe has the requested figures. A full probe can be used for a quick one.
bool answers(const engine::MachineProbe& kept, const engine::ProbeOptions& asked, bool model_given) {
  return kept.num_threads == asked.num_threads && (!model_given || kept.model_bytes == asked.model_bytes) &&
         (asked.quick || !kept.quick);
}

Result<engine::ProbeOptions> probe_options(const config::ProbeOptions& options) {
  engine::ProbeOptions probe;
  probe.num_threads = options.threads ? static_cast<std::uint32_t>(options.threads) : engine::default_num_threads();
  if (has_model(options)) {
    std::error_code error;
    const auto path = model_path(options);
    if (!path) return path.error();
    probe.model_bytes = engine::bytes_with_parts(*path, error);
    if (error) return Error{ErrorCode::model_missing, *path + ": " + error.message()};
    if (probe.model_bytes == 0) return Error{ErrorCode::bad_model, *path + " is empty"};
  }
  if (options.quick) {
    probe.quick = true;
    probe.round = std::chrono::milliseconds(15);
    probe.num_rounds = 3;
    probe.patience = std::chrono::milliseconds(3'000);
  }
  return probe;
}

engine::MachineProbe measure(engine::ProbeOptions options) {
  const bool on_terminal = ::isatty(STDERR_FILENO) != 0;
  if (on_terminal)
    options.progress = [](double fraction) { StatusLine::of_stderr().draw("measuring " + Progress::bar(fraction)); };
  engine::MachineProbe probe = engine::probe_machine(options);
  if (on_terminal) StatusLine::of_stderr().erase();
  return probe;
}

// Stores the probe; if that fails, only warns, since the result was printed.
void keep(const std::optional<std::filesystem::path>& folder, const engine::MachineProbe& probe) {
  if (!folder) {
    complain("troupe probe", "warning: neither XDG_CACHE_HOME nor HOME is set; the benchmarks will not find this");
    return;
  }
  if (const Status saved = engine::save_probe(*folder, probe); !saved)
    complain("troupe probe", "warning: " + saved.error().message + "; the benchmarks will not find this");
}

}  // namespace

Result<int> probe(const config::ProbeOptions& options) {
  const auto asked = probe_options(options);
  if (!asked) return asked.error();
  const auto folder = engine::probe_folder();
  const engine::MachineIdentity machine = engine::machine_identity();
  std::optional<engine::MachineProbe> result;
  if (folder && !options.refresh) result = engine::load_probe(*folder, machine);
  const bool kept = result && answers(*result, *asked, has_model(options));
  if (!kept) {
    result = measure(*asked);
    keep(folder, *result);
  }
  if (options.output_format == "json") {
    std::cout << engine::to_json(*result);
    return kExitOk;
  }
  print_probe(*result, std::cout);
  if (kept)
    std::cout << "\nkept in " << engine::probe_path(*folder, machine).string() << "; --refresh measures again\n";
  return kExitOk;
}

}  // namespace troupe::cli
