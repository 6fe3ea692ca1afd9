// The exit codes, for scripts and service managers (those of sysexits.h where it has one).
#pragma once

#include "config/options.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;          // something failed at run time
inline constexpr int kExitUsage = 2;            // bad flags, or values of flags
inline constexpr int kExitBadModel = 65;        // the model file is damaged or of an unknown kind
inline constexpr int kExitModelMissing = 66;    // there is no such model file
inline constexpr int kExitSocketBusy = 69;      // another server listens there
inline constexpr int kExitOsLimit = 71;         // no more threads, memory or descriptors
inline constexpr int kExitSocketFailure = 73;   // the socket cannot be created
inline constexpr int kExitRefusedForLoad = 75;  // the server has no room; try again
inline constexpr int kExitPermission = 77;
inline constexpr int kExitBadConfig = 78;    // a configuration file or variable cannot be used
inline constexpr int kExitSignalBase = 128;  // plus the signal's number: 130 for Ctrl-C

// The exit codes and their meanings, for the manual page.
inline constexpr config::ExitStatus kExitStatuses[] = {
    {kExitOk, "all is well; serve: a clean stop, the drain included"},
    {kExitFailure,
     "something failed at run time; serve: also where it had to be ended by force, by an error that nothing handles or "
     "because it had not stopped 5 seconds after --drain-timeout; status: the server has failed or stands still; run: "
     "also an answer that --timeout or the end of the server cut short"},
    {kExitUsage, "wrong flags or values; run: a request that can never be served"},
    {kExitBadModel, "the model file is damaged, or of a kind that is not served"},
    {kExitModelMissing, "there is no such model file"},
    {kExitSocketBusy, "another server listens on the socket"},
    {kExitOsLimit, "the system gives no more threads, memory or file descriptors; the message names the limit"},
    {kExitSocketFailure, "the socket cannot be made"},
    {kExitRefusedForLoad, "run: the server has no room now, try again; status: it loads or drains"},
    {kExitPermission, "the system, or the server, does not allow it"},
    {kExitBadConfig, "a configuration file, a variable or a socket unit cannot be used"},
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

// For errors of client subcommands: `busy` means that the server has no room and a retry may succeed.
constexpr int client_exit_code(ErrorCode code) {
  if (code == ErrorCode::busy) return kExitRefusedForLoad;
  if (code == ErrorCode::unsupported) return kExitFailure;
  return exit_code(code);
}

}  // namespace troupe::cli
