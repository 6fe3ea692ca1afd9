// The client library against a server that sends arbitrary bytes: every stream ends once, every call returns.
//
// The first byte of an input: bit 0, its bytes come instead of the welcome; else after the library has been welcomed
// and has asked for two answers.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "ipc/client/client.h"
#include "ipc/frames/framing.h"
#include "ipc/troupe.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temp_folder.h"

namespace troupe::client {
namespace {

// Serves one connection after another: waits for a number of frames, sends its bytes, and closes.
class HostileServer {
 public:
  HostileServer() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    listening_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TROUPE_ASSERT(::bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    TROUPE_ASSERT(::listen(listening_, 4) == 0);
  }
  ~HostileServer() { ::close(listening_); }
  std::string path() const { return folder_.path("s"); }

  // One connection, on a thread of its own.
  std::thread serve(bool welcomes, std::string_view bytes) const {
    return std::thread([listening = listening_, welcomes, bytes] {
      const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
      TROUPE_ASSERT(fd >= 0);
      wait_frames(fd, 1);
      if (welcomes) {
        say(fd, welcome());
        wait_frames(fd, 2);
      }
      say(fd, bytes);
      ::shutdown(fd, SHUT_WR);
      char rest[4096];
      while (::recv(fd, rest, sizeof rest, 0) > 0) {
      }
      ::close(fd);
    });
  }

 private:
  static void wait_frames(int fd, int count) {
    ipc::FrameDecoder decoder(ipc::kMaxFrameBytesCeiling);
    while (count > 0) {
      char bytes[4096];
      const ssize_t size = ::recv(fd, bytes, sizeof bytes, 0);
      if (size <= 0) return;
      decoder.append({bytes, static_cast<std::size_t>(size)});
      for (auto body = decoder.next(); body && *body; body = decoder.next()) --count;
    }
  }
  static void say(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  static std::string welcome() {
    v1::ServerFrame frame;
    frame.mutable_welcome()->set_protocol(1);
    frame.mutable_welcome()->mutable_limits()->set_max_frame_bytes(1u << 20);
    std::string bytes;
    ipc::append_frame_header(bytes, static_cast<std::uint32_t>(frame.ByteSizeLong()));
    return bytes + frame.SerializeAsString();
  }

  const test::TempFolder folder_;
  int listening_ = -1;
};

void ask(Client& client) {
  std::atomic<int> ends[2] = {0, 0};
  std::optional<Stream> streams[2];
  for (int i = 0; i < 2; ++i) {
    Callbacks callbacks;
    callbacks.on_tokens = [&ends, i](const Tokens& tokens) {
      TROUPE_ASSERT(ends[i] == 0);
      for (const Logprobs& logprobs : tokens.logprobs) TROUPE_ASSERT(logprobs.top.size() <= (1u << 20));
    };
    callbacks.on_end = [&ends, i](const Result<Ended>& end) {
      ++ends[i];
      if (!end) fuzz::check_message(end.error().message);
    };
    auto stream = client.generate({.prompt = "Once"}, std::move(callbacks));
    if (stream) streams[i] = *stream;
  }
  for (int i = 0; i < 2; ++i) {
    if (!streams[i]) continue;
    (void)streams[i]->wait();
    TROUPE_ASSERT(ends[i] == 1);
  }
  client.close();
}

}  // namespace
}  // namespace troupe::client

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  static const client::HostileServer server;
  google::protobuf::SetLogHandler(nullptr);
  fuzz::Input in(data, size);
  const bool welcomes = (in.byte() & 1) == 0;
  std::thread thread = server.serve(welcomes, in.rest());
  {
    auto connected = client::Client::connect({.socket = server.path()});
    if (connected) {
      client::ask(**connected);
    } else {
      TROUPE_ASSERT(!connected.error().message.empty());
    }
  }
  thread.join();
  return 0;
}
