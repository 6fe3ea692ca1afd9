// TLS in front of a server: what goes through, and what clients do to it that are none. The server is the test.
#include "ipc/http/tls_front.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/ipc/http/tls_client.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using ipc::http::TlsFront;
using test::TlsClient;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// A folder with two certificates, made once.
const test::TempFolder* certificates() {
  static const test::TempFolder folder;
  static const bool made =
      test::make_certificate(folder.path("."), "first") && test::make_certificate(folder.path("."), "second");
  if (!made) test::skip("the openssl command is not installed");
  std::signal(SIGPIPE, SIG_IGN);
  return made ? &folder : nullptr;
}

std::unique_ptr<TlsFront> front_of(const test::TempFolder& folder, std::chrono::milliseconds timeout = 60s,
                                   std::size_t max_connections = 64) {
  auto front = TlsFront::start({.certificate = folder.path("first.pem"),
                                .key = folder.path("first.key"),
                                .handshake_timeout = timeout,
                                .max_connections = max_connections});
  INFO((front ? "" : front.error().message));
  REQUIRE(front);
  return std::move(*front);
}

// A socket pair stands for the TCP connection.
struct Ends {
  FileDescriptor client{-1}, server{-1};
};
Ends connect_ends() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  REQUIRE(::fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0);
  return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

// The server's end, blocking, as the test reads and writes it.
FileDescriptor wrapped(TlsFront& front, FileDescriptor server) {
  auto inner = front.wrap(std::move(server));
  REQUIRE(inner);
  REQUIRE((::fcntl(inner->get(), F_GETFL) & O_NONBLOCK) != 0);
  REQUIRE(::fcntl(inner->get(), F_SETFL, 0) == 0);
  return std::move(*inner);
}

std::string read_some(const FileDescriptor& fd) {
  std::string text(65536, '\0');
  const ssize_t size = ::read(fd.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}
std::string read_all(const FileDescriptor& fd) {
  std::string text;
  for (std::string part = read_some(fd); !part.empty(); part = read_some(fd)) text += part;
  return text;
}
bool write_all(const FileDescriptor& fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(fd.get(), text.data(), text.size());
    if (size <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

std::string patterned(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

}  // namespace

TEST_CASE("bytes go through both ways, and the end of the server's is told") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Ends ends = connect_ends();
    FileDescriptor inner = wrapped(*front, std::move(ends.server));
    TlsClient client(std::move(ends.client), version);
    REQUIRE(client.is_connected());
    CHECK(client.version() == (version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3"));
    REQUIRE(client.write("GET /"));
    CHECK(read_some(inner) == "GET /");
    const std::string answer = patterned(3'000'000);
    std::thread server([&] {
      write_all(inner, answer);
      inner = FileDescriptor(-1);
    });
    CHECK((client.read_to_end() == answer));
    CHECK(client.was_told_of_end());
    server.join();
  }
}

TEST_CASE("a client that is still sending gets the server's last answer, and is not reset") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder);
  Ends ends = connect_ends();
  FileDescriptor inner = wrapped(*front, std::move(ends.server));
  TlsClient client(std::move(ends.client));
  REQUIRE(client.write(patterned(100'000)));
  REQUIRE(write_all(inner, "no"));
  REQUIRE(::shutdown(inner.get(), SHUT_WR) == 0);
  CHECK(client.read_to_end() == "no");
  CHECK(client.was_told_of_end());
  CHECK(client.write(patterned(1'000'000)));
  client.say_end();
  CHECK(::shutdown(client.fd(), SHUT_WR) == 0);
  CHECK(client.read().empty());
  read_all(inner);
}

TEST_CASE("a client that does not read holds up the server's writes, and its end is the server's") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder);
  Ends ends = connect_ends();
  const FileDescriptor inner = wrapped(*front, std::move(ends.server));
  auto client = std::make_unique<TlsClient>(std::move(ends.client));
  REQUIRE(client->is_connected());
  REQUIRE(::fcntl(inner.get(), F_SETFL, O_NONBLOCK) == 0);
  const std::string part(65536, 'x');
  std::size_t taken = 0;
  // Nothing is taken for a tenth of a second: it is full.
  for (pollfd entry{.fd = inner.get(), .events = POLLOUT, .revents = 0}; ::poll(&entry, 1, 100) > 0;) {
    const ssize_t size = ::write(inner.get(), part.data(), part.size());
    if (size > 0) taken += static_cast<std::size_t>(size);
    REQUIRE(taken < 16u << 20);
  }
  client.reset();  // without a word
  REQUIRE(::fcntl(inner.get(), F_SETFL, 0) == 0);
  CHECK(read_all(inner).empty());
}

TEST_CASE("a client that stops in the handshake is dropped in time, and one that speaks no TLS at once") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder, 50ms);
  Ends silent = connect_ends(), plain = connect_ends(), half = connect_ends(), old = connect_ends();
  const FileDescriptor of_silent = wrapped(*front, std::move(silent.server));
  CHECK(read_all(of_silent).empty());
  CHECK(read_all(silent.client).empty());
  const FileDescriptor of_half = wrapped(*front, std::move(half.server));
  REQUIRE(write_all(half.client, std::string("\x16\x03\x01\x02\x00\x01\x00", 7)));  // the begin of a ClientHello
  CHECK(read_all(of_half).empty());

  const auto patient = front_of(*folder, 600s);
  const FileDescriptor of_plain = wrapped(*patient, std::move(plain.server));
  REQUIRE(write_all(plain.client, "GET / HTTP/1.1\r\n\r\n"));
  CHECK(read_all(of_plain).empty());
  const FileDescriptor of_old = wrapped(*patient, std::move(old.server));
  CHECK_FALSE(TlsClient(std::move(old.client), TLS1_1_VERSION).is_connected());
  CHECK(read_all(of_old).empty());
}

TEST_CASE("a client that speaks HTTP without TLS is told so, without TLS") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder, 600s);
  for (const std::string& request : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("P"),
                                     "POST /v1/completions HTTP/1.1\r\n\r\n" + patterned(50'000)}) {
    Ends ends = connect_ends();
    const FileDescriptor inner = wrapped(*front, std::move(ends.server));
    REQUIRE(write_all(ends.client, request));
    CHECK(read_all(inner).empty());
    const std::string answer = read_all(ends.client);
    CHECK_THAT(answer, Catch::Matchers::StartsWith("HTTP/1.1 400 Bad Request\r\n") && Contains("https://"));
    const std::size_t body = answer.find("\r\n\r\n") + 4;
    CHECK_THAT(answer, Contains("Content-Length: " + std::to_string(answer.size() - body) + "\r\n"));
  }
  // Neither TLS nor HTTP: nothing is said.
  Ends ends = connect_ends();
  const FileDescriptor inner = wrapped(*front, std::move(ends.server));
  REQUIRE(write_all(ends.client, std::string(64, '\x01')));
  CHECK(read_all(inner).empty());
  CHECK_THAT(read_all(ends.client), !Contains("HTTP"));
}

TEST_CASE("a client that offers HTTP/2 as well gets HTTP/1.1") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder);
  Ends both = connect_ends(), other = connect_ends();
  const FileDescriptor first = wrapped(*front, std::move(both.server)),
                       second = wrapped(*front, std::move(other.server));
  CHECK(TlsClient(std::move(both.client), TLS1_3_VERSION, "\x02h2\x08http/1.1").protocol() == "http/1.1");
  CHECK(TlsClient(std::move(other.client), TLS1_3_VERSION, "\x02h2").protocol().empty());
}

TEST_CASE("certificates are read again for new connections, and bad ones change nothing") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder);
  const auto name_now = [&] {
    Ends ends = connect_ends();
    const FileDescriptor inner = wrapped(*front, std::move(ends.server));
    return TlsClient(std::move(ends.client)).server_name();
  };
  Ends ends = connect_ends();
  const FileDescriptor inner = wrapped(*front, std::move(ends.server));
  TlsClient before(std::move(ends.client));
  CHECK(before.server_name() == "first");
  const Status mixed = front->reload(folder->path("second.pem"), folder->path("first.key"));
  REQUIRE_FALSE(mixed);
  CHECK(mixed.error().code == ErrorCode::bad_config);
  CHECK_FALSE(front->reload(folder->path("none.pem"), folder->path("second.key")));
  CHECK(name_now() == "first");
  REQUIRE(front->reload(folder->path("second.pem"), folder->path("second.key")));
  CHECK(name_now() == "second");
  REQUIRE(before.write("still here"));
  CHECK(read_some(inner) == "still here");
}

TEST_CASE("a key that others can read, no key, or one with a passphrase is refused") {
  const auto* folder = certificates();
  if (!folder) return;
  const std::string pem = folder->path("first.pem"), key = folder->path("copy.key");
  const auto error_with = [&](const std::string& certificate, const std::string& with_key) {
    const auto front = TlsFront::start({.certificate = certificate, .key = with_key});
    return front ? Error{ErrorCode::io, ""} : front.error();
  };
  std::filesystem::copy_file(folder->path("first.key"), key, std::filesystem::copy_options::overwrite_existing);
  REQUIRE(::chmod(key.c_str(), 0640) == 0);
  CHECK(error_with(pem, key).message.empty());
  for (const mode_t mode : {0644u, 0660u, 0602u}) {
    REQUIRE(::chmod(key.c_str(), mode) == 0);
    CHECK(error_with(pem, key).code == ErrorCode::permission);
    CHECK_THAT(error_with(pem, key).message, Contains("chmod 600"));
  }
  REQUIRE(::chmod(key.c_str(), 0600) == 0);
  CHECK_THAT(error_with(key, key).message, Contains("cannot be used as a certificate"));
  CHECK_THAT(error_with(pem, folder->path("none.key")).message, Contains("none.key: cannot be read"));
  CHECK_THAT(error_with(folder->path("none.pem"), key).message, Contains("none.pem"));
  const std::string locked = folder->path("locked.key");
  const std::string lock = "openssl ec -aes256 -passout pass:x -in " + key + " -out " + locked + " >/dev/null 2>&1";
  REQUIRE(std::system(lock.c_str()) == 0);
  REQUIRE(::chmod(locked.c_str(), 0600) == 0);
  CHECK_THAT(error_with(pem, locked).message, Contains("without passphrase"));
  std::ofstream(key) << std::string(100'000, '-');
  CHECK_THAT(error_with(pem, key).message, Contains("cannot be used as the private key"));
}

TEST_CASE("connections are limited, places come back, and what was written is sent before the end") {
  const auto* folder = certificates();
  if (!folder) return;
  auto front = front_of(*folder, 60s, /*max_connections=*/2);
  Ends first = connect_ends(), second = connect_ends(), third = connect_ends();
  FileDescriptor of_first = wrapped(*front, std::move(first.server));
  const FileDescriptor of_second = wrapped(*front, std::move(second.server));
  const auto refused = front->wrap(std::move(third.server));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::busy);
  CHECK(read_all(third.client).empty());  // closed
  TlsClient client(std::move(first.client));
  const std::string answer = patterned(100'000);
  std::string got;
  std::thread reader([&] { got = client.read_to_end(); });
  REQUIRE(write_all(of_first, answer));
  of_first = FileDescriptor(-1);
  second.client = FileDescriptor(-1);
  CHECK(read_all(of_second).empty());
  front.reset();
  reader.join();
  CHECK((got == answer));
}

TEST_CASE("a connection that the server ends during the handshake is closed at once") {
  const auto* folder = certificates();
  if (!folder) return;
  const auto front = front_of(*folder, 600s);
  Ends silent = connect_ends(), half = connect_ends();
  wrapped(*front, std::move(silent.server));  // and closed
  CHECK(read_all(silent.client).empty());
  FileDescriptor of_half = wrapped(*front, std::move(half.server));
  REQUIRE(write_all(half.client, std::string("\x16\x03\x01\x02\x00\x01\x00", 7)));  // the begin of a ClientHello
  of_half = FileDescriptor(-1);
  CHECK(read_all(half.client).empty());
}

TEST_CASE("clients that do not close leave places to others: the one that has been ending longest goes") {
  const auto* folder = certificates();
  if (!folder) return;
  auto front = TlsFront::start({.certificate = folder->path("first.pem"),
                                .key = folder->path("first.key"),
                                .goodbye_timeout = 600s,
                                .max_connections = 4});
  REQUIRE(front);
  std::vector<std::unique_ptr<TlsClient>> clients;
  for (int i = 0; i < 20; ++i) {
    while ((*front)->num_connections() > 3) std::this_thread::yield();  // for ever where none goes
    Ends ends = connect_ends();
    FileDescriptor inner = wrapped(**front, std::move(ends.server));
    clients.push_back(std::make_unique<TlsClient>(std::move(ends.client)));
    REQUIRE(clients.back()->is_connected());
    REQUIRE(write_all(inner, "bye"));
    inner = FileDescriptor(-1);
    CHECK(clients.back()->read_to_end() == "bye");
  }
}
