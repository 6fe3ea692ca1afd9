// How far the server is with the prompt of the one request that runs: a line on the terminal until its answer begins.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/status_line.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// "prompt: 512 of 8192 tokens, 6 % (32 cached)"; before its first step what the request waits for.
[[nodiscard]] std::string prompt_progress_text(const client::LiveRequest& request);

// Asks the server from a thread of its own: once a second has passed, and then twice a second. Where it does not
// answer, nothing is shown.
class PromptProgress {
 public:
  // Both must outlive it.
  PromptProgress(client::Client& client, StatusLine& line);
  // Waits for a question that is under way: the client's request_timeout at most, or until it is closed.
  ~PromptProgress();
  PromptProgress(const PromptProgress&) = delete;
  PromptProgress& operator=(const PromptProgress&) = delete;

  // The answer begins, or will not: takes the line away for good. Any thread; waits for no question.
  void finish();

 private:
  void run();

  client::Client& client_;
  StatusLine& line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace troupe::cli
