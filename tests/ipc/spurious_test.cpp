// Sockets that are reported as ready and are not: no call of the server's threads waits for them. The calls of the C
// library are those of this program: every other one finds nothing to do, as if what it was told of had been done
// already, and is told of it again.
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>

#include "ipc/http/tls_front.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"
#include "tests/ipc/http/tls_client.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;

namespace {

enum Call { kReceive, kSend, kAccept, kNumCalls };

std::atomic<bool> spurious{false};              // calls find nothing
std::atomic<int> num_calls[kNumCalls];          // that could have found nothing
std::atomic<int> num_spurious[kNumCalls];       // that found nothing
std::atomic<int> num_waits{0};                  // calls that would have waited
thread_local const bool* is_of_test = nullptr;  // set: of the thread that runs the test

struct Registration {
  int epoll = -1;
  epoll_event event{};
};
std::mutex registered_mutex;
// By descriptor. Libraries close some before and after the objects of this file live.
std::map<int, Registration>& registered() {
  static auto* const all = new std::map<int, Registration>;
  return *all;
}

template <class Function>
Function* next(Function* /*of this type*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int really_control(int epoll, int operation, int fd, epoll_event* event) {
  static const auto real = next(&::epoll_ctl, "epoll_ctl");
  return real(epoll, operation, fd, event);
}

// Whether this call finds nothing. What it waits for is then told again, as by the kernel when it has come.
bool finds_nothing(Call call, int fd) {
  if (!spurious || is_of_test) return false;
  const std::lock_guard lock(registered_mutex);
  const auto found = registered().find(fd);
  if (found == registered().end() || num_calls[call]++ % 2 == 1) return false;
  epoll_event event = found->second.event;
  if (really_control(found->second.epoll, EPOLL_CTL_MOD, fd, &event) != 0) return false;
  ++num_spurious[call];
  errno = EAGAIN;
  return true;
}

// Whether the caller was told before that there is something to do; else it tries.
bool waits(int flags) { return (flags & MSG_DONTWAIT) == 0; }

// While it lives, on the thread that makes it.
class Spurious {
 public:
  Spurious() {
    is_of_test = &kYes;
    for (int call = 0; call < kNumCalls; ++call) num_calls[call] = num_spurious[call] = 0;
    num_waits = 0;
    spurious = true;
  }
  ~Spurious() {
    spurious = false;
    is_of_test = nullptr;
  }
  Spurious(const Spurious&) = delete;
  Spurious& operator=(const Spurious&) = delete;

 private:
  static constexpr bool kYes = true;
};

void require_no_wait() {
  CHECK(num_waits == 0);
  CHECK(num_spurious[kReceive] > 0);
  CHECK(num_spurious[kSend] > 0);
  CHECK(num_spurious[kAccept] > 0);
}

}  // namespace

extern "C" {

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  {
    const std::lock_guard lock(registered_mutex);
    if (operation == EPOLL_CTL_DEL || !event)
      registered().erase(fd);
    else
      registered()[fd] = {epoll, *event};
  }
  return really_control(epoll, operation, fd, event);
}

int close(int fd) {
  {
    const std::lock_guard lock(registered_mutex);
    registered().erase(fd);
  }
  static const auto real = next(&::close, "close");
  return real(fd);
}

int poll(pollfd* entries, nfds_t count, int timeout) {
  static const auto real = next(&::poll, "poll");
  if (!spurious || is_of_test || timeout == 0) return real(entries, count, timeout);
  ++num_waits;
  return real(entries, count, 0) < 0 ? -1 : static_cast<int>(count);
}

ssize_t recv(int fd, void* bytes, size_t size, int flags) {
  static const auto real = next(&::recv, "recv");
  return waits(flags) && finds_nothing(kReceive, fd) ? -1 : real(fd, bytes, size, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = next(&::recvmsg, "recvmsg");
  return finds_nothing(kReceive, fd) ? -1 : real(fd, message, flags);
}
ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  static const auto real = next(&::send, "send");
  return waits(flags) && finds_nothing(kSend, fd) ? -1 : real(fd, bytes, size, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = next(&::sendmsg, "sendmsg");
  return finds_nothing(kSend, fd) ? -1 : real(fd, message, flags);
}
int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  static const auto real = next(&::accept4, "accept4");
  return finds_nothing(kAccept, fd) ? -1 : real(fd, address, size, flags);
}

}  // extern "C"

TEST_CASE("spurious: frames are read and answered, and no call waits") {
  FakeServer server;
  const Spurious calls;
  for (int i = 0; i < 4; ++i) {
    RawClient client(server.path());
    client.hello();
    REQUIRE(client.send(generate_frame(1)));
    const auto asked = server.gateway.wait_submitted(static_cast<std::size_t>(i));
    asked.sink->tokens(run_of(0, {1}, "a"));
    CHECK(client.expect().has_tokens());
    asked.sink->end(end_of(scheduler::Outcome::eos));
    CHECK(client.expect().has_done());
  }
  require_no_wait();
}

TEST_CASE("spurious: HTTP on the Unix socket is read and answered, and no call waits") {
  FakeServer server;
  const Spurious calls;
  for (int i = 0; i < 4; ++i) {
    HttpClient client(server.path());
    for (int request = 0; request < 2; ++request) {
      REQUIRE(client.get("/health"));
      CHECK(client.expect().status == 200);
    }
    REQUIRE(client.send("GET / "));  // a head in two parts
    REQUIRE(client.send("HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK(client.expect().status == 200);
  }
  require_no_wait();
}

TEST_CASE("spurious: a client that is refused is answered, and no call waits") {
  FakeServer server(config::ConnectionLimits{.max_connections_per_uid = 1});
  RawClient first(server.path());
  first.hello();
  const Spurious calls;
  for (int i = 0; i < 4; ++i) {
    HttpClient client(server.path());
    REQUIRE(client.get("/health"));
    CHECK(client.rest().find("max_connections_per_uid") != std::string::npos);
  }
  CHECK(num_waits == 0);
}

TEST_CASE("spurious: HTTP over TCP, with TLS and without, is read and answered, and no call waits") {
  troupe::test::TempFolder folder;
  const bool with_tls = GENERATE(false, true);
  ServerOptions options;
  options.http.listen = {*parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.no_auth = true;
  if (with_tls) {
    if (!troupe::test::make_certificate(folder.path(), "server")) return troupe::test::skip("no openssl command");
    auto tls = http::TlsFront::start(
        {.certificate = folder.path("server.pem"), .key = folder.path("server.key"), .max_connections = 8});
    REQUIRE(tls);
    options.http.tls = std::move(*tls);
  }
  FakeServer server(std::move(options));
  const TcpAddress address = server.server->tcp_addresses().at(0);
  const std::string request = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const Spurious calls;
  for (int i = 0; i < 4; ++i) {
    if (with_tls) {
      troupe::test::TlsClient client((FileDescriptor(connect_to(address))));
      REQUIRE(client.is_connected());
      REQUIRE(client.write(request));
      CHECK(client.read().starts_with("HTTP/1.1 200"));
    } else {
      HttpClient client(address);
      REQUIRE(client.send(request));
      CHECK(client.expect().status == 200);
    }
  }
  require_no_wait();
}
