// The service manager that started this process, if one did: systemd, or another that implements its protocol
// (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3)).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "config/result.h"

namespace troupe::cli {

// Main thread only. Without a manager every call does nothing.
class ServiceManager {
 public:
  // Reads LISTEN_PID, LISTEN_FDS and WATCHDOG_USEC. Call once, before other descriptors are opened.
  ServiceManager();

  // The socket that the manager bound for us; nullopt if there is none. Error: bad_config, if there are several.
  [[nodiscard]] Result<std::optional<int>> socket() const;
  // Whether the manager receives notifications.
  [[nodiscard]] bool listens() const { return listens_; }
  // The manager restarts this process after this long without a keep_alive().
  [[nodiscard]] std::optional<std::chrono::milliseconds> watchdog() const { return watchdog_; }

  // One line for `systemctl status`. Sent only when it differs from the last one.
  void status(const std::string& line);
  // Asks for at most another `time` for the start or stop, beyond the unit's timeouts.
  void extend(std::chrono::milliseconds time);
  void ready();
  void reloading();  // ready() ends it
  void stopping();
  void keep_alive();

 private:
  void tell(const std::string& state) const;

  int num_sockets_ = 0;
  bool listens_ = false;
  std::optional<std::chrono::milliseconds> watchdog_;
  std::string last_status_;
};

}  // namespace troupe::cli
