// Text from a file, a server or a model reaches logs and terminals without control sequences.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "config/file_descriptor.h"
#include "config/utf8.h"
#include "ipc/frames/framing.h"
#include "ipc/troupe.pb.h"
#include "tests/cli/process.h"
#include "tests/engine/gguf_writer.h"

using namespace troupe;
using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// ESC, BEL, NUL, a C1 control, an override of the direction, a byte that is no UTF-8, and letters that are fine.
const std::string kHostile = std::string("evil\x1b[2J\x07") + '\0' + "\xc2\x9b\xe2\x80\xae\xff d\xc3\xa9j\xc3\xa0";
const std::string kShown = "evil\\x1b[2J\\x07\\x00\\u009b\\u202e\\xff d\xc3\xa9j\xc3\xa0";

// The offset of the first control character, direction override or byte that is not UTF-8 in `text`, or npos.
std::size_t first_obeyed(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = next_utf8(text.substr(at));
    const char32_t code = next.code_point;
    const bool plain = next.status == Utf8Status::valid && (code >= 0x20 || code == '\n') &&
                       (code < 0x7f || code > 0x9f) && (code < 0x202a || code > 0x202e);
    if (!plain) return at;
    at += next.length;
  }
  return std::string_view::npos;
}

std::string tiny_model(const std::string& name, const std::string& tensor = {}) {
  GgufWriter writer = TinyLlama{}.writer();
  writer.add_raw("general.name", 8, GgufWriter::text(name));
  writer.add_raw("general." + name.substr(0, 60'000), 8, GgufWriter::text(name));
  if (!tensor.empty()) writer.add_floats(tensor, {16}, 1);
  return writer.bytes();
}

// A simulated server: answers the greeting, and then the first request with the given frames.
class HostileServer {
 public:
  explicit HostileServer(std::vector<v1::ServerFrame> answers)
      : answers_(std::move(answers)), fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd_, 1) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~HostileServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  std::string path() const { return folder_.path("s.sock"); }

 private:
  static void send(int fd, const v1::ServerFrame& frame) {
    const std::string body = frame.SerializeAsString();
    std::string bytes;
    ipc::append_frame_header(bytes, static_cast<std::uint32_t>(body.size()));
    bytes += body;
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void serve() const {
    const int client = ::accept(fd_, nullptr, nullptr);
    if (client < 0) return;
    v1::ServerFrame welcome;
    welcome.mutable_welcome()->set_protocol(1);
    welcome.mutable_welcome()->set_server("hostile");
    welcome.mutable_welcome()->mutable_health()->set_readiness(v1::READINESS_READY);
    send(client, welcome);
    ipc::FrameDecoder decoder(1 << 20);
    std::string scratch(4096, '\0');
    for (int frames = 0; frames < 2;) {  // a greeting, and a request
      const auto body = decoder.next();
      if (!body) break;
      if (*body) {
        ++frames;
        continue;
      }
      const ssize_t size = ::recv(client, scratch.data(), scratch.size(), 0);
      if (size <= 0) break;
      decoder.append(std::string_view(scratch).substr(0, static_cast<std::size_t>(size)));
    }
    for (const v1::ServerFrame& answer : answers_) send(client, answer);
    ::shutdown(client, SHUT_WR);
    while (::recv(client, scratch.data(), scratch.size(), 0) > 0) continue;
    ::close(client);
  }

  const TempFolder folder_;
  const std::vector<v1::ServerFrame> answers_;
  const int fd_;
  std::thread thread_;
};

v1::ServerFrame tokens_frame(std::uint64_t first_index, const std::string& text, std::uint32_t choice = 0) {
  v1::ServerFrame frame;
  frame.mutable_tokens()->set_stream(1);
  frame.mutable_tokens()->set_choice(choice);
  frame.mutable_tokens()->set_first_index(first_index);
  frame.mutable_tokens()->add_ids(5);
  frame.mutable_tokens()->set_text(text);
  return frame;
}

v1::ServerFrame done_frame() {
  v1::ServerFrame frame;
  frame.mutable_done()->set_stream(1);
  frame.mutable_done()->set_reason(v1::OUTCOME_LENGTH);
  return frame;
}

v1::ServerFrame refused_frame(const std::string& message) {
  v1::ServerFrame frame;
  frame.mutable_refused()->set_stream(1);
  frame.mutable_refused()->set_code(v1::OUTCOME_QUOTA);
  frame.mutable_refused()->set_message(message);
  return frame;
}

}  // namespace

TEST_CASE("inspect shows what a terminal would obey in the names of a file, and its JSON holds the exact text") {
  const TempFolder folder;
  const std::string model = folder.write("model.gguf", tiny_model(kHostile, "t" + kHostile));
  const Finished text = invoke({"inspect", "--metadata", "--tensors", "-m", model});
  REQUIRE(text.code == 0);
  CHECK(first_obeyed(text.out) == std::string::npos);
  CHECK_THAT(text.out, Contains("general." + kShown));  // a key
  CHECK_THAT(text.out, Contains("  t" + kShown));       // a tensor
  const Finished parsed = invoke({"inspect", "--json", "-m", model});
  REQUIRE(parsed.code == 0);
  CHECK(first_obeyed(parsed.out) == std::string::npos);
  const std::string expected = valid_utf8(kHostile);
  const json object = json::parse(parsed.out);
  CHECK(object["metadata"].contains("general." + expected));
  CHECK(object["metadata"]["general.name"] == expected);
  const auto has_name = [&](const json& tensor) { return tensor["name"] == "t" + expected; };
  CHECK(std::any_of(object["tensors"].begin(), object["tensors"].end(), has_name));
}

TEST_CASE("one long key of a file does not make every line of inspect as long") {
  const TempFolder folder;
  const std::string model = folder.write("model.gguf", tiny_model(std::string(60'000, 'k')));
  const Finished text = invoke({"inspect", "--metadata", "--tensors", "-m", model});
  REQUIRE(text.code == 0);
  CHECK(text.out.size() < 32'000);
}

TEST_CASE("a model's name is one short line of text in the log, in status, in top and in the metrics") {
  const TempFolder folder;
  const std::string forged = "x\n2026-01-01 00:00:00.000 error forged" + kHostile + std::string(20'000, 'n');
  ServerProcess server({"-m", folder.write("model.gguf", tiny_model(forged)), "--log-level", "debug"});
  const Finished status = server.call({"status"});
  const Finished top = server.call({"top", "--once"});
  const Finished metrics = server.call({"status", "--prometheus"});
  const json parsed = json::parse(server.call({"status", "--json"}).out);
  const Finished log = server.stop();
  for (const std::string& text : {status.out, top.out, metrics.out, log.err}) {
    INFO(text.substr(0, 2000));
    CHECK(first_obeyed(text) == std::string::npos);
    // Prometheus' format has a backslash of its own before each.
    CHECK_THAT(text, Contains("x\\n2026-01-01") || Contains("x\\\\n2026-01-01"));
    CHECK_THAT(text, !Contains("\n2026-01-01"));
  }
  CHECK(parsed["model"].get<std::string>().size() <= 128);
  CHECK(parsed["models"][0]["name"] == parsed["model"]);
  CHECK(metrics.out.size() < 128'000);
}

TEST_CASE("an alias that is no printable name is refused") {
  for (const std::string alias : {"a\nb", "\x1b[31m", "\xff"}) {
    const TempFolder folder;
    const Finished finished = invoke({"serve", "--socket", folder.path("s.sock"), "--alias", alias});
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("--alias"));
    CHECK(first_obeyed(finished.err) == std::string::npos);
  }
}

TEST_CASE("what a server says is shown, not obeyed") {
  const std::string said = "no\x1b]0;owned\x07\nsecond line\xc2\x9b";
  const HostileServer server({refused_frame(said)});
  const Finished run = invoke({"run", "--socket", server.path(), "hello"});
  CHECK(run.code == 75);
  CHECK(first_obeyed(run.err) == std::string::npos);
  CHECK_THAT(run.err, Contains("refused (quota): no\\x1b]0;owned\\x07\\nsecond line\\u009b"));
}

TEST_CASE("run ends with the protocol's rule where a server breaks it, not with a wrong answer") {
  v1::ServerFrame later = refused_frame("later");
  later.mutable_refused()->set_retry_after_ms(~std::uint64_t{0});
  v1::ServerFrame other_end = done_frame();
  other_end.mutable_done()->set_choice(1);
  v1::ServerFrame other_kind;
  other_kind.mutable_tokenized()->set_stream(1);
  const std::vector<std::pair<std::vector<v1::ServerFrame>, std::string>> cases = {
      {{tokens_frame(0, "a"), tokens_frame(2, "c"), done_frame()}, "tokens of choice 0 from 2 on, and 1 is next"},
      {{tokens_frame(0, "a"), tokens_frame(0, "a"), done_frame()}, "tokens of choice 0 from 0 on, and 1 is next"},
      {{tokens_frame(0, "a", 7), done_frame()}, "it sends choice 7 of a request for 1"},
      {{other_end}, "it sends choice 1 of a request for 1"},
      {{later}, "another try after 18446744073709551615 ms"},
      {{other_kind}, "it answers a request for tokens with another message"},
  };
  for (const auto& [frames, rule] : cases) {
    const HostileServer server(frames);
    const Finished finished = invoke({"run", "--socket", server.path(), "hello"});
    INFO(finished.err);
    CHECK(finished.code == 1);
    CHECK_THAT(finished.err, Contains("the server breaks the protocol: ") && Contains(rule));
  }
}

TEST_CASE("on a terminal control characters that a model writes are shown, elsewhere and with --raw they are exact") {
  const std::vector<v1::ServerFrame> frames = {tokens_frame(0, "a\tb\n\x1b"), tokens_frame(1, "[2J\xc2\x9b\x07"),
                                               tokens_frame(2, "d\xc3\xa9j\xc3\xa0\n"), done_frame()};
  const std::string exact =
      "a\tb\n\x1b[2J\xc2\x9b\x07"
      "d\xc3\xa9j\xc3\xa0\n";
  const auto answer = [&](std::vector<std::string> more, bool on_terminal) {
    const HostileServer server(frames);
    std::vector<std::string> arguments{"run", "--socket", server.path(), "hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Spawn spawn{.arguments = std::move(arguments)};
    spawn.on_terminal = on_terminal;
    const Finished finished = run(spawn);
    INFO(finished.err);
    CHECK(finished.code == 0);
    return finished.out;
  };
  CHECK(answer({}, true) ==
        "a\tb\n\\x1b[2J\\u009b\\x07"
        "d\xc3\xa9j\xc3\xa0\n");
  CHECK(answer({"--raw"}, true) == exact);
  CHECK(answer({}, false) == exact);
  CHECK(json::parse(answer({"--json"}, true))["text"] == exact);
  CHECK(first_obeyed(answer({"--json"}, true)) == std::string::npos);
}

TEST_CASE("ids that are decoded to control characters are shown on a terminal") {
  Spawn spawn{.arguments = {"tokenize", "--decode", "[30, 37]"}};  // the bytes ESC and '"'
  spawn.on_terminal = true;
  CHECK(run(spawn).out == "\\x1b\"\n");
  spawn.arguments.emplace_back("--raw");
  CHECK(run(spawn).out == "\x1b\"\n");
  spawn.arguments.pop_back();
  spawn.on_terminal = false;
  CHECK(run(spawn).out == "\x1b\"");
}

TEST_CASE("output that cannot be written is an error with its reason, whatever the subcommand") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 2]");
  const std::vector<std::vector<std::string>> commands = {{"tokenize", "text"},
                                                          {"tokenize", "--ids", "text"},
                                                          {"tokenize", "--decode", "[5]"},
                                                          {"inspect", "--metadata", "--tensors"},
                                                          {"inspect", "--json"},
                                                          {"eval", "--tokens", ids, "--greedy", "1"},
                                                          {"version"},
                                                          {"help"},
                                                          {"run", "--help"},
                                                          {"serve", "--print-config"}};
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full.get() >= 0);
  for (const auto& arguments : commands) {
    Spawn spawn{.arguments = arguments};
    spawn.out = full.get();
    const Finished finished = run(spawn);
    INFO(arguments[0] << ": " << finished.err);
    CHECK(finished.code == 1);
    CHECK_THAT(finished.err, Contains("writing to stdout failed: No space left on device"));
  }
}

TEST_CASE("an empty --socket is refused, for a server and for its clients") {
  for (const char* command : {"serve", "run", "status", "top", "load", "embed", "usage"}) {
    const Finished finished = invoke({command, "--socket", ""});
    INFO(finished.err);
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("--socket: the path is empty"));
  }
}
