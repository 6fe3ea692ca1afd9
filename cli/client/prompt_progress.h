// The progress of the server with the prompt of this process's request: a line on the terminal until the answer begins.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/terminal/status_line.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// "prompt: 512 of 8192 tokens, 6 % (32 cached)"; before the first step, what the request waits for.
[[nodiscard]] std::string prompt_progress_text(const client::LiveRequest& request);

// Asks the server on a separate thread: after a second, and then twice a second. Shows nothing if it does not answer.
class PromptProgress {
 public:
  // Both must outlive it.
  PromptProgress(client::Client& client, StatusLine& line);
  // Waits for a question that is under way: the client's request_timeout at most, or until it is closed.
  ~PromptProgress();
  PromptProgress(const PromptProgress&) = delete;
  PromptProgress& operator=(const PromptProgress&) = delete;

  // It waits for its model, as this line says. Any thread.
  void waits(std::string text);
  // The answer begins, or never will: erases the line for good. Any thread; waits for no question.
  void finish();

 private:
  void run();

  client::Client& client_;
  StatusLine& line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  std::string waiting_;  // for the model, while the request has not come to it
  std::thread thread_;
};

}  // namespace troupe::cli
