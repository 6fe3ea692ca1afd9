// A server stops in time while clients ask, each time again as soon as they have an answer.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "config/file_descriptor.h"
#include "ipc/frames/framing.h"
#include "ipc/frames/unserved.h"
#include "ipc/troupe.pb.h"
#include "tests/cli/process.h"

using namespace troupe;
using namespace troupe::test;
using v1::ClientFrame;
using v1::ServerFrame;

namespace {

constexpr std::uint64_t kAtOnce = 60;  // questions of a connection; max-streams is 64

// What is asked: fills in a frame whose stream is set. number: how often it was asked before.
struct Question {
  std::string name;
  std::function<void(ClientFrame&, std::uint64_t stream, std::uint64_t number)> write;
};

template <class Body>
std::function<void(ClientFrame&, std::uint64_t, std::uint64_t)> with_stream(Body* (ClientFrame::*body)()) {
  return [body](ClientFrame& frame, std::uint64_t stream, std::uint64_t) { (frame.*body)()->set_stream(stream); };
}

v1::SessionRequest& session(ClientFrame& frame, std::uint64_t stream) {
  frame.mutable_session_request()->set_stream(stream);
  return *frame.mutable_session_request();
}

v1::Generate& generate(ClientFrame& frame, std::uint64_t stream, std::uint32_t max_tokens) {
  v1::Generate& asked = *frame.mutable_generate();
  asked.set_stream(stream);
  asked.set_text("Once upon a time");
  asked.mutable_sampling()->set_max_tokens(max_tokens);
  asked.mutable_sampling()->set_ignore_eos(true);
  return asked;
}

// The names are those of ClientFrame's bodies and of SessionRequest's, and what follows a space.
std::vector<Question> questions() {
  const std::string text(5000, 'q');  // for the text threads
  return {
      {"hello", [](ClientFrame& frame, auto, auto) { frame.mutable_hello()->set_protocol(1); }},
      {"generate", [](ClientFrame& frame, auto stream, auto) { generate(frame, stream, 4); }},
      {"generate long", [](ClientFrame& frame, auto stream, auto) { generate(frame, stream, 1500); }},
      {"generate session", [](ClientFrame& frame, auto stream,
                              auto) { generate(frame, stream, 4).set_session(std::to_string(stream % 9)); }},
      {"generate text", [=](ClientFrame& frame, auto stream, auto) { generate(frame, stream, 4).set_text(text); }},
      {"cancel", with_stream(&ClientFrame::mutable_cancel)},
      {"credit", with_stream(&ClientFrame::mutable_credit)},
      {"tokenize",
       [=](ClientFrame& frame, auto stream, auto) {
         frame.mutable_tokenize()->set_stream(stream);
         frame.mutable_tokenize()->set_text(text);
       }},
      {"detokenize",
       [](ClientFrame& frame, auto stream, auto) {
         frame.mutable_detokenize()->set_stream(stream);
         for (int id = 0; id < 10'000; ++id) frame.mutable_detokenize()->add_ids(5 + id % 1000);
       }},
      {"models", with_stream(&ClientFrame::mutable_models)},
      {"status",
       [](ClientFrame& frame, auto stream, auto) {
         frame.mutable_status()->set_stream(stream);
         frame.mutable_status()->set_list_requests(true);
       }},
      {"health", with_stream(&ClientFrame::mutable_health)},
      {"embed",
       [](ClientFrame& frame, auto stream, auto) {
         frame.mutable_embed()->set_stream(stream);
         for (int i = 0; i < 8; ++i) frame.mutable_embed()->add_texts("Once upon a time " + std::to_string(i));
       }},
      {"load_model", with_stream(&ClientFrame::mutable_load_model)},
      {"unload_model", with_stream(&ClientFrame::mutable_unload_model)},
      {"check_models", with_stream(&ClientFrame::mutable_check_models)},
      {"cancel_request", with_stream(&ClientFrame::mutable_cancel_request)},
      {"usage_request",
       [](ClientFrame& frame, auto stream, auto) {
         frame.mutable_usage_request()->set_stream(stream);
         frame.mutable_usage_request()->set_by(v1::UsageRequest::PERIOD_HOUR);
       }},
      {"session_request list", [](ClientFrame& frame, auto stream, auto) { session(frame, stream).mutable_list(); }},
      {"session_request save",
       [](ClientFrame& frame, auto stream, auto) { session(frame, stream).mutable_save()->set_name("talk"); }},
      {"session_request inspect",
       [](ClientFrame& frame, auto stream, auto) { session(frame, stream).mutable_inspect()->set_name("talk"); }},
      {"session_request fork",  // and what it made is deleted
       [](ClientFrame& frame, auto stream, auto number) {
         const std::string name = "of" + std::to_string(stream);
         if (number % 2 == 1) return session(frame, stream).mutable_delete_()->set_name(name);
         session(frame, stream).mutable_fork()->set_from("talk");
         session(frame, stream).mutable_fork()->set_to(name);
       }},
      {"session_request delete",
       [](ClientFrame& frame, auto stream, auto) { session(frame, stream).mutable_delete_()->set_name("none"); }},
  };
}

// A connection that asks in a thread of its own until the server is gone. With `kAtOnce` questions unanswered, or for
// HTTP one; when the connection ends it connects again.
class AsksAgain {
 public:
  AsksAgain(std::string socket, std::function<void(AsksAgain&)> ask)
      : socket_(std::move(socket)), thread_([this, ask = std::move(ask)] {
          while (!ends_ && connect()) ask(*this);
          begun();  // nothing more comes
        }) {}
  ~AsksAgain() {
    ends_ = true;
    thread_.join();
  }
  AsksAgain(const AsksAgain&) = delete;
  AsksAgain& operator=(const AsksAgain&) = delete;

  // It has asked and been answered.
  void wait_until_begun() const { begun_.wait(false); }
  void begun() {
    begun_ = true;
    begun_.notify_all();
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const ClientFrame& frame) {
    std::string bytes;
    const std::string body = frame.SerializeAsString();
    ipc::append_frame_header(bytes, static_cast<std::uint32_t>(body.size()));
    return send(bytes + body);
  }
  // What comes next; empty at the end of the connection.
  std::string receive() {
    std::string bytes(64 << 10, '\0');
    const ssize_t size = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return bytes;
  }

 private:
  bool connect() {
    fd_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    return ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  const std::string socket_;
  FileDescriptor fd_{-1};
  std::atomic<bool> begun_{false}, ends_{false};
  std::thread thread_;  // last: it uses the above
};

// One connection's frames, until it ends.
void ask_by_frames(AsksAgain& link, const Question& question) {
  std::uint64_t number = 0;
  const auto ask = [&](std::uint64_t stream) {
    ClientFrame frame;
    question.write(frame, stream, number++ / kAtOnce);
    // What has no answer is followed by something that has one.
    ClientFrame marker;
    marker.mutable_health()->set_stream(stream);
    const bool has_answer = !frame.has_cancel() && !frame.has_credit();
    return link.send(frame) && (has_answer || link.send(marker));
  };
  ClientFrame hello;
  hello.mutable_hello()->set_protocol(1);
  if (!link.send(hello)) return;
  const bool is_hello = question.name == "hello";
  for (std::uint64_t stream = 1; stream <= kAtOnce && !is_hello; ++stream)
    if (!ask(stream)) return;
  ipc::FrameDecoder decoder(ipc::kMaxFrameBytesCeiling);
  for (std::string bytes = link.receive(); !bytes.empty(); bytes = link.receive()) {
    decoder.append(bytes);
    for (auto body = decoder.next(); body && *body; body = decoder.next()) {
      ServerFrame frame;
      if (!frame.ParseFromArray((*body)->data(), static_cast<int>((*body)->size()))) return;
      if (is_hello || frame.has_tokens()) link.begun();
      if (is_hello) return;
      const std::uint64_t stream = ipc::stream_of(frame);
      if (stream == 0 || frame.has_tokens()) continue;
      link.begun();
      if (!ask(stream)) return;
    }
    decoder.drop_taken();
  }
}

std::string posted(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::vector<std::string> http_requests() {
  std::vector<std::string> all;
  for (const char* path :
       {"/", "/health", "/version", "/metrics", "/openapi.json", "/v1/models", "/v1/models/tales", "/tokenizer_info"})
    all.push_back("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string text(5000, 'q');  // for the text threads
  const std::string talk = R"("messages":[{"role":"user","content":"Once upon a time"}])";
  all.push_back(posted("/tokenize", R"({"content":")" + text + R"("})"));
  all.push_back(posted("/detokenize", R"({"tokens":[5,6,7]})"));
  all.push_back(posted("/apply-template", "{" + talk + "}"));
  all.push_back(posted("/v1/messages/count_tokens", R"({"model":"",)" + talk + "}"));
  all.push_back(posted("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":4})"));
  all.push_back(posted("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":1500,"stream":true})"));
  all.push_back(posted("/v1/chat/completions", R"({"max_tokens":4,)" + talk + "}"));
  all.push_back(posted("/v1/messages", R"({"model":"","max_tokens":4,)" + talk + "}"));
  all.push_back(posted("/v1/responses", R"({"input":"Once upon a time","max_output_tokens":4})"));
  all.push_back(posted("/v1/embeddings", R"({"input":["Once upon","a time"]})"));
  return all;
}

// Sends the request, once more ahead of its answer, and again for each head of an answer that comes.
void ask_by_http(AsksAgain& link, const std::string& request) {
  for (int i = 0; i < 2; ++i)
    if (!link.send(request)) return;
  constexpr std::string_view kBegin = "HTTP/1.1 ";
  std::string last;
  for (std::string bytes = link.receive(); !bytes.empty(); bytes = link.receive()) {
    bytes = last + bytes;
    for (std::size_t at = 0; (at = bytes.find(kBegin, at)) != std::string::npos; at += kBegin.size()) {
      link.begun();
      if (!link.send(request)) return;
    }
    last = bytes.substr(bytes.size() - std::min(bytes.size(), kBegin.size() - 1));
  }
}

// Options with which no rate and no share of a user is what bounds the questions.
std::vector<std::string> server_options(const TempFolder& folder) {
  return {"--sessions-dir",
          folder.path("sessions"),
          "--usage-db",
          folder.path("usage.db"),
          "--drain-timeout",
          "500ms",
          "--max-questions-per-second",
          "1000000",
          "--max-frames-per-second",
          "1000000",
          "--max-refusals-per-second",
          "1000000"};
}

void require_stops(ServerProcess& server, const std::string& what) {
  const Finished stopped = server.stop();
  INFO(what << "\n" << stopped.err);
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, !Catch::Matchers::Contains("ended by force"));
}

// Nearly as many as a user may have, so that to list them takes longer than to ask.
void make_sessions(const TempFolder& folder) {
  {
    ServerProcess server(server_options(folder));
    REQUIRE(server.call({"run", "-n", "24", "--ignore-eos", "--session", "talk", "Once upon a time"}).code == 0);
  }
  const std::string own = folder.path("sessions") + "/" + std::to_string(::geteuid()) + "/";
  for (int i = 0; i < 50; ++i)
    std::filesystem::copy_file(own + "talk.tokens", own + "talk" + std::to_string(i) + ".tokens");
}

}  // namespace

TEST_CASE("a server stops in time whatever frames are sent, each again as soon as it is answered") {
  const TempFolder folder;
  make_sessions(folder);
  std::set<std::string> asked;
  for (const Question& question : questions()) {
    asked.insert(question.name.substr(0, question.name.find(' ')));
    ServerProcess server(server_options(folder));
    AsksAgain link(server.socket(), [&](AsksAgain& with) { ask_by_frames(with, question); });
    link.wait_until_begun();
    require_stops(server, question.name);
  }
  const auto* const kinds = ClientFrame::descriptor();
  for (int i = 0; i < kinds->field_count(); ++i) CHECK(asked.contains(kinds->field(i)->name()));
}

TEST_CASE("a server stops in time while all kinds of frames are sent at once, again and again") {
  const TempFolder folder;
  make_sessions(folder);
  ServerProcess server(server_options(folder));
  std::vector<std::unique_ptr<AsksAgain>> links;
  const std::vector<Question> all = questions();
  for (const Question& question : all)
    links.push_back(
        std::make_unique<AsksAgain>(server.socket(), [&](AsksAgain& with) { ask_by_frames(with, question); }));
  for (const auto& link : links) link->wait_until_begun();
  require_stops(server, "all kinds of frames");
}

TEST_CASE("a server stops in time whatever is asked over HTTP, again and again") {
  const TempFolder folder;
  ServerProcess server(server_options(folder));
  std::vector<std::unique_ptr<AsksAgain>> links;
  const std::vector<std::string> all = http_requests();
  for (const std::string& request : all)
    for (int i = 0; i < 3; ++i)
      links.push_back(
          std::make_unique<AsksAgain>(server.socket(), [&](AsksAgain& with) { ask_by_http(with, request); }));
  for (const auto& link : links) link->wait_until_begun();
  require_stops(server, "HTTP");
}
