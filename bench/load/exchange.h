// One request of a troupe run while it is under way: what its callbacks write on a reader thread, and what they tell
// the driver. Internal to the driver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bench/load/pacer.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "bench/load/troupe_driver.h"
#include "ipc/client/client.h"

namespace troupe::load {

struct Exchange;

// What the driver's thread sleeps on: news of the exchanges.
class Mailbox {
 public:
  using Clock = std::chrono::steady_clock;

  struct News {
    std::shared_ptr<Exchange> exchange;
    bool ended = false;  // else: the tokens of its fault point have come
  };

  // From any thread.
  void post(News news);
  // All news so far; waits for some until `deadline`. Empty: there was none.
  std::vector<News> take(Clock::time_point deadline);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<News> news_;
};

// Stops a reader thread for a while: a client that does not read.
class Brake {
 public:
  // Returns after `pause_s`, or when released.
  void hold(double pause_s);
  // For good.
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
};

// The callbacks write the record's arrivals and completion_tokens, the answer, `out_of_order`, `end` and `end_s`; the
// driver reads them when it has the news of the end, and writes everything else.
struct Exchange {
  PlannedRequest request;
  Due due;
  RequestRecord record;
  Answer answer;
  std::optional<Result<client::Ended>> end{};
  bool out_of_order = false;               // tokens were missing or came twice
  std::optional<client::Stream> stream{};  // absent: it could not be sent
  std::unique_ptr<client::Client> own{};   // of a request that hangs up or does not read
  bool finished = false;                   // the driver has taken its end
};

// Fills in what the end and the received tokens say: kind, outcome, message, usage. An answer with tokens missing,
// twice, or out of order counts as failed.
void settle(Exchange& exchange);

}  // namespace troupe::load
