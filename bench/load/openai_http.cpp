#include "bench/load/openai_http.h"

#include "config/assert.h"

namespace troupe::load {

void init_curl() {
  static const CURLcode done = curl_global_init(CURL_GLOBAL_DEFAULT);
  TROUPE_ASSERT(done == CURLE_OK);
}

CurlHeaders make_headers(const OpenAiTarget& target) {
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");
  if (!target.api_key.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + target.api_key).c_str());
  return CurlHeaders(list);
}

void aim(CURL* handle, const OpenAiTarget& target, const std::string& path, const CurlHeaders& headers, char* error) {
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
