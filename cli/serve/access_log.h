// The log of requests (--access-log): a line for each that has ended, with its counts and times; never its text.
// docs/operations.md describes the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/requests/ended_request.h"
#include "cli/serve/access_quota.h"
#include "cli/terminal/logging.h"
#include "config/metric.h"
#include "config/options/option_table.h"
#include "config/result.h"

namespace troupe::cli {

// What a client chose is cut off there: names of models and tenants, request ids.
inline constexpr std::size_t kMaxAccessTextBytes = 128;

// The line without time and level: `request id=7 tenant=web ...`, or with `json` an object. All on one line, and
// printable. left_out: lines of the same tenant since its last one.
[[nodiscard]] std::string access_line(const actors::EndedRequest& request, std::uint64_t left_out, bool json);

// Thread-safe: lines may come from any thread, which never waits for the file or the reader of the log.
class AccessLog {
 public:
  AccessLog() = default;
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Begins, goes on elsewhere or ends, as the options say; opens the file anew. Error: permission or io; then lines
  // still go where they went.
  [[nodiscard]] Status open(const config::LogOptions& options);
  // Writes a line unless the limit leaves it out.
  void add(const actors::EndedRequest& request, actors::TimePoint now = std::chrono::steady_clock::now());
  // The lines that were left out, and those of the log, too, that were dropped.
  void append_metrics(MetricList& metrics) const;

 private:
  void tell_left_out();

  mutable std::mutex mutex_;
  RequestLines lines_;
  bool is_json_ = false;
  std::optional<AccessQuota> quota_;  // as long as there is a sink
  std::uint64_t num_left_out_ = 0;
  std::uint64_t num_dropped_ = 0;  // by earlier queues
};

}  // namespace troupe::cli
