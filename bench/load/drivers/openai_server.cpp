#include "bench/load/drivers/openai_server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bench/load/drivers/openai_http.h"
#include "bench/load/drivers/openai_stream.h"
#include "config/assert.h"

namespace troupe::load {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxReplyBytes = 1u << 20;
constexpr std::chrono::milliseconds kRetryInterval{250};

struct Reply {
  long status = 0;
  std::string body{};
  std::string server{};
  bool too_large = false;
};

std::size_t on_body(char* bytes, std::size_t, std::size_t size, void* reply_pointer) {
  auto& reply = *static_cast<Reply*>(reply_pointer);
  if (reply.body.size() + size > kMaxReplyBytes) {
    reply.too_large = true;
    return 0;
  }
  reply.body.append(bytes, size);
  return size;
}

std::size_t on_header(char* bytes, std::size_t, std::size_t size, void* reply_pointer) {
  std::string line(bytes, size);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
  if (line.size() < 200 && (line.starts_with("Server: ") || line.starts_with("server: ")))
    static_cast<Reply*>(reply_pointer)->server = line.substr(8);
  return size;
}

Result<Reply> get(const OpenAiTarget& target, const std::string& path) {
  init_curl();
  const CurlHandle handle(curl_easy_init());
  TROUPE_ASSERT(handle);
  const CurlHeaders headers = make_headers(target);
  char error[CURL_ERROR_SIZE];
  Reply reply;
  aim(handle.get(), target, path, headers, error);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, 30'000L);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &reply);
  curl_easy_setopt(handle.get(), CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(handle.get(), CURLOPT_HEADERDATA, &reply);
  const CURLcode code = curl_easy_perform(handle.get());
  if (reply.too_large) return Error{ErrorCode::protocol, "the server's answer to " + path + " is larger than 1 MiB"};
  if (code != CURLE_OK)
    return Error{ErrorCode::io,
                 fmt::format("nobody answers at {}: {}", target.unix_socket.empty() ? target.url : target.unix_socket,
                             error[0] ? error : curl_easy_strerror(code))};
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  return reply;
}

std::optional<std::uint32_t> number_of(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) return std::nullopt;
  const auto value = object[key].get<std::int64_t>();
  return value > 1 && value < (std::int64_t{1} << 31) ? std::optional(static_cast<std::uint32_t>(value)) : std::nullopt;
}

Vocabulary vocabulary_of(const json& model) {
  const json meta = model.value("meta", json::object());
  Vocabulary vocabulary;
  vocabulary.size = number_of(meta, "n_vocab").value_or(kAssumedVocabulary);
  vocabulary.context = number_of(meta, "n_ctx");
  if (!vocabulary.context) vocabulary.context = number_of(model, "max_model_len");
  if (!vocabulary.context) vocabulary.context = number_of(meta, "n_ctx_train");
  if (const auto ours = model.find("troupe"); ours != model.end() && ours->is_object()) {
    vocabulary.size = number_of(*ours, "vocab_size").value_or(vocabulary.size);
    vocabulary.context = number_of(*ours, "max_context");
  }
  // These servers do not report which ids begin and end a sequence; in their models' vocabularies they are among the
  // first.
  for (TokenId id = 0; id < 3; ++id) vocabulary.avoid.push_back(id);
  return vocabulary;
}

Result<OpenAiServer> read_models(OpenAiServer server, const Reply& reply, const std::string& model) {
  if (reply.status == 401 || reply.status == 403)
    return Error{ErrorCode::permission,
                 fmt::format("{} wants {} ({})", server.endpoint,
                             server.target.api_key.empty() ? "a key: give it with --api-key"
                                                           : "another key than that of --api-key",
                             error_message(reply.body))};
  const json body = json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (reply.status != 200 || !body.is_object() || !body.contains("data") || !body["data"].is_array())
    return Error{
        ErrorCode::protocol,
        fmt::format("{} does not list its models as an OpenAI-compatible server does (GET /v1/models: status {}): {}",
                    server.endpoint, reply.status, error_message(reply.body))};
  std::string known;
  for (const json& entry : body["data"]) {
    if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_string()) continue;
    const auto id = entry["id"].get<std::string>();
    known += (known.empty() ? "" : ", ") + id;
    if (!model.empty() && id != model) continue;
    server.model = id;
    server.server = reply.server;
    server.vocabulary = vocabulary_of(entry);
    return server;
  }
  return Error{ErrorCode::model_missing, fmt::format("{} does not serve the model \"{}\"; it has: {}", server.endpoint,
                                                     model, known.empty() ? "none" : known)};
}

}  // namespace

Result<OpenAiTarget> parse_openai_target(std::string_view text) {
  constexpr std::string_view kUnix = "http+unix://";
  OpenAiTarget target;
  if (text.starts_with(kUnix)) {
    target.unix_socket = text.substr(kUnix.size());
    target.url = "http://localhost";
    if (target.unix_socket.starts_with('/') && target.unix_socket.size() <= 107) return target;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"{}\" does not name a socket: write {}/PATH, at most 107 bytes of path", text, kUnix)};
  }
  const bool http = text.starts_with("http://") || text.starts_with("https://");
  while (text.ends_with('/')) text.remove_suffix(1);
  if (text.ends_with("/v1")) text.remove_suffix(3);
  target.url = text;
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  if (http && curl_url_set(url.get(), CURLUPART_URL, target.url.c_str(), 0) == CURLUE_OK) return target;
  return Error{ErrorCode::invalid_argument,
               fmt::format("\"{}\" is no address of a server: write http://HOST:PORT or http+unix:///PATH", text)};
}

Result<OpenAiServer> reach_openai(std::string_view target, const std::string& model, std::chrono::milliseconds patience,
                                  const std::string& api_key) {
  auto parsed = parse_openai_target(target);
  if (!parsed) return parsed.error();
  OpenAiServer server;
  server.target = std::move(*parsed);
  server.target.api_key = api_key;
  server.endpoint = target;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto reply = get(server.target, "/v1/models");
    if (!reply) return reply.error();
    if (reply->status != 503) return read_models(std::move(server), *reply, model);
    if (std::chrono::steady_clock::now() > deadline)
      return Error{ErrorCode::busy, server.endpoint + " is still not ready: " + error_message(reply->body)};
    std::this_thread::sleep_for(kRetryInterval);  // polls, because another process loads the model
  }
}

}  // namespace troupe::load
