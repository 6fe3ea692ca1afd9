// The server's resident memory while 64 connections send as much as it accepts, and read nothing.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/ipc/support.h"

namespace troupe::test {
namespace {

using ipc::test::RawClient;

constexpr std::size_t kConnections = 64;
constexpr std::uint64_t kMiB = 1u << 20;
// What all connections' buffers may take. A connection may have a quarter of it, a user three quarters (root is one).
constexpr std::uint64_t kBufferBytes = 48 * kMiB;

// "VmHWM" or "VmRSS" of /proc/PID/status, in bytes.
std::uint64_t memory_of(pid_t pid, const std::string& what) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;)
    if (word == what + ":") {
      std::uint64_t kilobytes = 0;
      file >> kilobytes;
      return kilobytes << 10;
    }
  FAIL("no " << what);
  return 0;
}

// Bytes to send on a connection, for its request of this number (from 1).
using Ask = std::function<std::string(std::uint64_t)>;

// Sends on all connections until the server takes nothing more from any of them, or has had four requests and half a
// MiB from each.
void flood(std::vector<std::unique_ptr<RawClient>>& clients, const Ask& ask) {
  struct Flow {
    std::string bytes;
    std::size_t sent = 0;
    std::uint64_t requests = 0, total = 0;
    bool done = false;
  };
  std::vector<Flow> flows(clients.size());
  for (;;) {
    std::vector<pollfd> waiting;
    for (std::size_t i = 0; i < clients.size(); ++i)
      if (!flows[i].done) waiting.push_back({.fd = clients[i]->fd(), .events = POLLOUT, .revents = 0});
    if (waiting.empty() || ::poll(waiting.data(), waiting.size(), /*milliseconds=*/300) == 0) return;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      Flow& flow = flows[i];
      while (!flow.done) {
        if (flow.sent == flow.bytes.size()) {
          flow.bytes = ask(++flow.requests);
          flow.sent = 0;
        }
        const ssize_t sent = ::send(clients[i]->fd(), flow.bytes.data() + flow.sent, flow.bytes.size() - flow.sent,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
          flow.done = errno != EAGAIN;  // the server has ended it
          break;
        }
        flow.sent += static_cast<std::size_t>(sent);
        flow.total += static_cast<std::uint64_t>(sent);
        flow.done = flow.total > kMiB / 2 && flow.requests > 4;
      }
    }
  }
}

// How much more memory the server took at most, in bytes. Blocks for K and V are of another limit and become resident
// with the answers that are computed, so there are few.
std::uint64_t growth_under(const Ask& ask) {
  ServerProcess server({"--max-outbox-bytes=2MiB", "--max-buffer-bytes=48MiB", "--max-connections=80",
                        "--max-connections-per-uid=80", "--max-questions-per-second=1000000000",
                        "--max-frames-per-second=1000000000", "--max-refusals-per-second=1000000",
                        "--max-embed-bytes=16MiB", "--max-queued-text-bytes=16MiB", "--memory=256MiB", "--kv-blocks=64",
                        "--max-requests-per-user=8"});
  REQUIRE(server.call({"run", "-n", "20", "Once upon a time"}).code == 0);  // what a first answer needs is there
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.socket()));
    clients.back()->hello();
  }
  const std::uint64_t before = memory_of(server.process().pid(), "VmRSS");
  flood(clients, ask);
  const std::uint64_t most = memory_of(server.process().pid(), "VmHWM");
  clients.clear();
  REQUIRE(server.call({"status"}).code == 0);
  REQUIRE(server.stop().code == 0);
  return most - std::min(most, before);
}

std::string bytes_of(const v1::ClientFrame& frame) { return RawClient::frame_bytes(frame); }

TEST_CASE("whatever 64 connections ask for without reading, memory grows by at most 1.5 times its limit") {
  v1::ClientFrame frame;
  const auto require_bounded = [](const std::string& what, std::uint64_t limit, const Ask& ask) {
    INFO(what);
    const std::uint64_t growth = growth_under(ask);
    CAPTURE(growth, limit);
    CHECK(growth <= limit + limit / 2);
  };
  require_bounded("health", kBufferBytes, [&](std::uint64_t stream) {
    frame.mutable_health()->set_stream(stream);
    return bytes_of(frame);
  });
  require_bounded("models", kBufferBytes, [&](std::uint64_t stream) {
    frame.mutable_models()->set_stream(stream);
    return bytes_of(frame);
  });
  require_bounded("status", kBufferBytes, [&](std::uint64_t stream) {
    frame.mutable_status()->set_stream(stream);
    frame.mutable_status()->set_list_requests(true);
    return bytes_of(frame);
  });
  require_bounded("requests that are refused", kBufferBytes, [&](std::uint64_t stream) {
    frame = ipc::test::generate_frame(stream);
    frame.mutable_generate()->set_n(0);
    return bytes_of(frame);
  });
  require_bounded("frames without a body", kBufferBytes, [&](std::uint64_t) { return std::string(4, '\0'); });
  require_bounded("small texts", kBufferBytes, [&](std::uint64_t stream) {
    frame = {};
    frame.mutable_tokenize()->set_stream(stream);
    frame.mutable_tokenize()->set_text("Once upon a time");
    return bytes_of(frame);
  });
  require_bounded("ids", kBufferBytes, [&](std::uint64_t stream) {
    frame = {};
    frame.mutable_detokenize()->set_stream(stream);
    for (int i = 0; i < 4000; ++i) frame.mutable_detokenize()->add_ids(100);
    return bytes_of(frame);
  });
  // Besides the buffers: texts that wait, and two that are encoded.
  require_bounded("large texts", kBufferBytes + 16 * kMiB + 2 * 64 * kMiB, [&](std::uint64_t stream) {
    frame = {};
    frame.mutable_tokenize()->set_stream(stream);
    frame.mutable_tokenize()->set_text(std::string(1u << 20, 'x'));
    return bytes_of(frame);
  });
  require_bounded("halves of large frames", kBufferBytes,
                  [&](std::uint64_t) { return std::string("\x00\x00\x3f\x00", 4) + std::string(3u << 20, 'x'); });
  require_bounded("answers with all that can be asked of them", kBufferBytes, [&](std::uint64_t stream) {
    frame = ipc::test::generate_frame(stream);
    frame.mutable_generate()->set_credit(1u << 30);
    frame.mutable_generate()->set_logprobs(20);
    frame.mutable_generate()->mutable_sampling()->set_ignore_eos(true);
    return bytes_of(frame);
  });
  require_bounded("vectors", kBufferBytes + 16 * kMiB, [&](std::uint64_t stream) {
    frame = {};
    frame.mutable_embed()->set_stream(stream);
    for (int i = 0; i < 64; ++i) frame.mutable_embed()->add_texts("Once upon a time");
    return bytes_of(frame);
  });
}

TEST_CASE("--print-limits adds up what each limit allows") {
  const Finished printed = invoke({"serve", "--print-limits", "--memory", "1GiB", "--max-buffer-bytes", "64MiB"});
  REQUIRE(printed.code == 0);
  std::uint64_t sum = 0, last = 0;
  std::istringstream lines(printed.out);
  std::string line;
  while (std::getline(lines, line)) {
    sum += last;
    last = std::stoull(line);
  }
  CHECK(line.empty());
  CHECK(printed.out.find("total\n") != std::string::npos);
  CHECK(last == sum);
  CHECK(sum > (1ull << 30) + (64u << 20));
  CHECK(sum < 4ull << 30);
}

}  // namespace
}  // namespace troupe::test
