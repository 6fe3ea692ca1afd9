// libcurl for the drivers of OpenAI-compatible servers: owning handles, and the settings of every request. Internal to
// the drivers.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

#include "bench/load/drivers/openai_server.h"
#include "config/assert.h"

namespace troupe::load {

// libcurl's handles are void pointers, so each kind needs its own deleter.
struct CurlEasyDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct CurlMultiDeleter {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct CurlListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlHandle = std::unique_ptr<CURL, CurlEasyDeleter>;
using CurlMulti = std::unique_ptr<CURLM, CurlMultiDeleter>;
using CurlHeaders = std::unique_ptr<curl_slist, CurlListDeleter>;

// curl_global_init, once for the process.
inline void init_curl() {
  static const CURLcode done = curl_global_init(CURL_GLOBAL_DEFAULT);
  TROUPE_ASSERT(done == CURLE_OK);
}

// Headers of every request: JSON, the key, and no "Expect: 100-continue", which would cost a round trip.
[[nodiscard]] inline CurlHeaders make_headers(const OpenAiTarget& target) {
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");
  if (!target.api_key.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + target.api_key).c_str());
  return CurlHeaders(list);
}

// Resets `handle` and sets it up for `path` of the target: HTTP/1.1, no proxy (the environment's is ignored), no
// redirect, no signal. `headers` and `error` (CURL_ERROR_SIZE bytes) must outlive the transfer.
inline void aim(CURL* handle, const OpenAiTarget& target, const std::string& path, const CurlHeaders& headers,
                char* error) {
  curl_easy_reset(handle);
  error[0] = '\0';
  curl_easy_setopt(handle, CURLOPT_URL, (target.url + path).c_str());
  if (!target.unix_socket.empty()) curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, target.unix_socket.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, 10'000L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "troupe-load");
}

}  // namespace troupe::load
