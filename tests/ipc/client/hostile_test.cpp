// The client library against servers that break the protocol: those of tests/data/hostile_servers.json.
#include <google/protobuf/text_format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/printable.h"
#include "ipc/client/client.h"
#include "tests/ipc/fixture.h"

namespace troupe::client {
namespace {

using namespace ipc::test;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Replaces "40_IDS" by `item` 40 times, and so every number before "_IDS".
std::string repeated(std::string text, const std::string& unit, std::size_t factor, const std::string& item,
                     const std::string& between) {
  for (std::size_t at = text.find(unit); at != std::string::npos; at = text.find(unit)) {
    const std::size_t begin = text.find_last_not_of("0123456789", at - 1) + 1;
    std::string all;
    for (std::size_t i = 0, count = std::stoul(text.substr(begin, at - begin)) * factor; i < count; ++i)
      all += (i > 0 ? between : "") + item;
    text.replace(begin, at + unit.size() - begin, all);
  }
  return text;
}

// The bytes that a row sends to a client whose first request has stream 1.
std::string hostile_bytes(const nlohmann::json& row) {
  std::string bytes;
  for (const auto& item : row["sends"]) {
    const auto text = item.get<std::string>();
    if (text.rfind("0x", 0) == 0) {
      for (std::size_t i = 2; i < text.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
      continue;
    }
    v1::ServerFrame frame;
    std::string filled =
        replaced(replaced(text, "STREAM", "1"), "ESCAPES", R"(\033]0;title\007\033[2J\r\302\233\342\200\256)");
    filled = repeated(repeated(filled, "_IDS", 1, "7", ","), "_KIB", 1024, "x", "");
    REQUIRE(google::protobuf::TextFormat::ParseFromString(filled, &frame));
    bytes += RawClient::frame_bytes(frame);
  }
  return bytes;
}

// Reads and drops `count` frames of a client.
void skip_frames(int fd, int count) {
  ipc::FrameDecoder decoder(ipc::kMaxFrameBytesCeiling);
  char bytes[4096];
  while (count > 0) {
    const auto body = decoder.next();
    if (!body) return;
    if (*body) {
      --count;
      continue;
    }
    const ssize_t size = ::recv(fd, bytes, sizeof bytes, 0);
    if (size <= 0) return;
    decoder.append({bytes, static_cast<std::size_t>(size)});
  }
}

void check_hostile_end(const Result<Ended>& ended, const std::string& expected) {
  if (expected == "protocol" || expected == "lost") {
    REQUIRE_FALSE(ended);
    CHECK(ended.error().code == (expected == "protocol" ? ErrorCode::protocol : ErrorCode::io));
  } else if (ended) {
    CHECK(ended->done() == (expected == "done"));
  } else {
    CHECK(expected == "refused");  // the whole connection
  }
  if (!ended) CHECK(Printable(ended.error().message, kMaxMessageBytes) == ended.error().message);
}

TEST_CASE("a server that breaks the protocol ends every request of its connection, with printable errors") {
  const auto table = nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/hostile_servers.json"));
  for (const auto& row : table["servers"]) {
    INFO(row["name"].get<std::string>());
    const bool greets = row.value("greets", true);
    const std::string first = row["first"], others = row.value("others", first), bytes = hostile_bytes(row);
    const TempDir dir;
    const std::string path = dir / "s.sock";
    const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listening, 1) == 0);
    const auto server = std::async(std::launch::async, [&] {
      const int fd = ::accept(listening, nullptr, nullptr);
      const auto send = [&](const std::string& what) { ::send(fd, what.data(), what.size(), MSG_NOSIGNAL); };
      skip_frames(fd, 1);  // Hello
      if (greets) {
        v1::ServerFrame welcome;
        welcome.mutable_welcome()->set_protocol(1);
        send(RawClient::frame_bytes(welcome));
        skip_frames(fd, 2);
      }
      send(bytes);
      if (!row.value("closes", false)) skip_frames(fd, 1 << 30);  // until the client closes it
      ::close(fd);
    });
    auto client = Client::connect({.socket = path});
    CHECK(static_cast<bool>(client) == greets);
    if (!client) CHECK(Printable(client.error().message, kMaxMessageBytes) == client.error().message);
    if (client) {
      const auto one = (*client)->generate({.prompt = "x"}, {});
      const auto two = (*client)->generate({.prompt = "x"}, {});
      REQUIRE(one);
      REQUIRE(two);
      check_hostile_end(one->wait(), first);
      const Result<Ended> other = two->wait();
      CHECK_FALSE(other);
      if (others != "refused") check_hostile_end(other, others);
      (*client)->close();
    }
    server.wait();
    ::close(listening);
  }
}

}  // namespace
}  // namespace troupe::client
