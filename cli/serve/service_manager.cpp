#include "cli/serve/service_manager.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "config/printable.h"

namespace troupe::cli {

ServiceManager::ServiceManager()
    : num_sockets_(::sd_listen_fds(/*unset_environment=*/1)), listens_(std::getenv("NOTIFY_SOCKET") != nullptr) {
  std::uint64_t usec = 0;
  if (::sd_watchdog_enabled(/*unset_environment=*/0, &usec) > 0 && usec >= 1000)
    watchdog_ = std::chrono::milliseconds(usec / 1000);
}

Result<std::optional<int>> ServiceManager::socket() const {
  if (num_sockets_ == 0) return std::optional<int>();
  if (num_sockets_ == 1) return std::optional<int>(SD_LISTEN_FDS_START);
  if (num_sockets_ < 0)
    return Error{ErrorCode::bad_config,
                 fmt::format("LISTEN_FDS or LISTEN_PID of the service manager cannot be read: {}",
                             std::strerror(-num_sockets_))};
  return Error{
      ErrorCode::bad_config,
      fmt::format(
          "the service manager passed {} sockets, but a server has one; leave one ListenStream= in the socket unit",
          num_sockets_)};
}

void ServiceManager::status(const std::string& line) {
  if (line == last_status_) return;
  last_status_ = line;
  tell("STATUS=" + Printable(line, kMaxMessageBytes));  // no line break: the next line would be another message
}

void ServiceManager::extend(std::chrono::milliseconds time) {
  tell(fmt::format("EXTEND_TIMEOUT_USEC={}", std::chrono::microseconds(time).count()));
}

void ServiceManager::ready() { tell("READY=1"); }

void ServiceManager::reloading() {
  timespec now{};  // the manager compares it with its own clock, so it must be this one
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t usec = std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", usec));
}

void ServiceManager::stopping() { tell("STOPPING=1"); }

void ServiceManager::keep_alive() {
  if (watchdog_) tell("WATCHDOG=1");
}

void ServiceManager::tell(const std::string& state) const {
  if (!listens_) return;
  const int result = ::sd_notify(/*unset_environment=*/0, state.c_str());
  if (result < 0) spdlog::warn("cannot notify the service manager: {}", std::strerror(-result));
}

}  // namespace troupe::cli
