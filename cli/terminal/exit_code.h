// What the exit codes mean, and which error ends with which.
#pragma once

#include "config/exit_codes.h"
#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

// The exit codes and their meanings, for the manual page.
inline constexpr config::ExitStatus kExitStatuses[] = {
    {kExitOk, "all is well; serve: a clean stop, the drain included"},
    {kExitFailure,
     "something failed at run time; serve: also where it had to be ended by force, by an error that nothing handles, "
     "because its I/O thread was late by --progress-timeout twice in a row, or because it had not stopped 5 seconds "
     "after "
     "--drain-timeout; status: the server has failed or stands still; run: "
     "also an answer that --timeout or the end of the server cut short; verify: an answer differs, and nothing else; "
     "doctor: there is advice"},
    {kExitUsage, "wrong flags or values; run: a request that can never be served; doctor: something is broken"},
    {kExitBadModel, "the model file is damaged, or of a kind that is not served"},
    {kExitModelMissing, "there is no such model file"},
    {kExitSocketBusy, "another server listens on the socket"},
    {kExitOsLimit, "the system gives no more threads, memory or file descriptors; the message names the limit"},
    {kExitSocketFailure, "the socket cannot be made"},
    {kExitTryLater,
     "run: the server has no room now, try again; status: it loads or drains; restore, session repair: a server uses "
     "the files; verify: nothing could be asked; load: the server has gone"},
    {kExitPermission, "the system, or the server, does not allow it"},
    {kExitBadConfig,
     "a configuration file, a variable or a socket unit cannot be used; serve --check: a start would be refused"},
    {kExitSignalBase + 2, "ended by Ctrl-C (128 plus the number of any signal)"},
};

// For errors that no subcommand treats specially.
constexpr int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return kExitUsage;
    case ErrorCode::bad_config:
      return kExitBadConfig;
    case ErrorCode::bad_model:
    case ErrorCode::unsupported:
      return kExitBadModel;
    case ErrorCode::model_missing:
      return kExitModelMissing;
    case ErrorCode::permission:
      return kExitPermission;
    case ErrorCode::busy:
      return kExitSocketBusy;
    case ErrorCode::os_limit:
      return kExitOsLimit;
    case ErrorCode::out_of_memory:
    case ErrorCode::io:
    case ErrorCode::protocol:
      break;
  }
  return kExitFailure;
}

// For errors of client subcommands. The server's refusals have the codes of scheduler::outcomes(): `busy` means that it
// has no room and a retry may succeed; a model that it does not have, or what it does not support, that none will.
constexpr int client_exit_code(ErrorCode code) {
  if (code == ErrorCode::busy) return kExitTryLater;
  if (code == ErrorCode::model_missing || code == ErrorCode::unsupported) return kExitUsage;
  return exit_code(code);
}

}  // namespace troupe::cli
