// The exit codes, for scripts and service managers (those of sysexits.h where it has one).
#pragma once

namespace troupe {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;         // something failed at run time
inline constexpr int kExitUsage = 2;           // bad flags, or values of flags
inline constexpr int kExitBadModel = 65;       // the model file is damaged or of an unknown kind
inline constexpr int kExitModelMissing = 66;   // there is no such model file
inline constexpr int kExitSocketBusy = 69;     // another server listens there
inline constexpr int kExitOsLimit = 71;        // no more threads, memory or descriptors
inline constexpr int kExitSocketFailure = 73;  // the socket cannot be created
inline constexpr int kExitTryLater = 75;       // the server has no room; try again
inline constexpr int kExitPermission = 77;
inline constexpr int kExitBadConfig = 78;    // a configuration file or variable cannot be used
inline constexpr int kExitSignalBase = 128;  // plus the signal's number: 130 for Ctrl-C

}  // namespace troupe
