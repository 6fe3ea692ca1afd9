#include "cli/client/prompt_progress.h"

#include <fmt/format.h>

#include <chrono>

#include "config/printable.h"

namespace troupe::cli {
namespace {

// Shorter prefills need no line.
constexpr std::chrono::milliseconds kFirstLook{1000};
constexpr std::chrono::milliseconds kInterval{500};

}  // namespace

std::string prompt_progress_text(const client::LiveRequest& request) {
  if (request.state == "received") return "waiting for the model";
  if (request.state == "encoding") return "prompt: the text is being tokenized";
  if (request.state == "queued" && request.computed_tokens == 0)
    return "waiting for the first step, behind other requests";
  if (request.prompt_tokens == 0) return "waiting: " + Printable(request.state).text();
  const std::uint64_t percent = std::uint64_t{100} * request.computed_tokens / request.prompt_tokens;
  return fmt::format("prompt: {} of {} tokens, {} %{}", request.computed_tokens, request.prompt_tokens, percent,
                     request.cached_tokens > 0 ? fmt::format(" ({} cached)", request.cached_tokens) : "");
}

PromptProgress::PromptProgress(client::Client& client, StatusLine& line)
    : client_(client), line_(line), thread_([this] { run(); }) {}

PromptProgress::~PromptProgress() {
  finish();
  thread_.join();
}

void PromptProgress::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  line_.erase();
  changed_.notify_all();
}

void PromptProgress::waits(std::string text) {
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(text);
}

void PromptProgress::run() {
  std::unique_lock lock(mutex_);
  for (auto wait = kFirstLook; !changed_.wait_for(lock, wait, [&] { return finished_; }); wait = kInterval) {
    lock.unlock();
    const auto requests = client_.own_requests();
    lock.lock();
    if (!requests) return;  // an older server, or none: the wait for the answer reports that
    if (finished_ || requests->empty()) continue;
    const bool waits = requests->front().state == "received" && !waiting_.empty();
    line_.draw(waits ? waiting_ : prompt_progress_text(requests->front()));
  }
}

}  // namespace troupe::cli
