// One request of a troupe run until it has ended: the data that its callbacks write on a reader thread, and their
// messages to the driver. Internal to the driver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bench/load/drivers/pacer.h"
#include "bench/load/drivers/troupe_driver.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "ipc/client/client.h"

namespace troupe::load {

struct Exchange;

// A queue of messages from the exchanges; the driver's thread sleeps on it.
class Mailbox {
 public:
  using Clock = std::chrono::steady_clock;

  struct News {
    std::shared_ptr<Exchange> exchange;
    bool ended = false;  // false: the tokens of its fault point have arrived
  };

  // From any thread.
  void post(News news);
  // Returns all queued messages; if there are none, waits for one until `deadline`. Empty: none arrived.
  std::vector<News> take(Clock::time_point deadline);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<News> news_;
};

// Stops a reader thread for a while, to simulate a client that does not read.
class Brake {
 public:
  // Returns after `pause_s`, or when released.
  void hold(double pause_s);
  // Ends all current and future holds.
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
};

// The callbacks write the record's arrivals and completion_tokens, the answer, `out_of_order`, `end` and `end_s`; the
// driver reads them after the message of the end, and writes everything else.
struct Exchange {
  PlannedRequest request;
  Due due;
  RequestRecord record;
  Answer answer;
  std::optional<Result<client::Ended>> end{};
  bool out_of_order = false;               // tokens were missing or arrived twice
  std::optional<client::Stream> stream{};  // absent: not sent, or of another kind than generate
  std::unique_ptr<client::Client> own{};   // own connection, for a request that disconnects or stops reading
  bool waits = false;                      // to be sent again
  bool finished = false;                   // the driver has handled its end
};

// Fills in the record from the end and the received tokens: kind, outcome, message, usage. An answer with missing,
// repeated or misordered tokens counts as failed.
void settle(Exchange& exchange);

}  // namespace troupe::load
