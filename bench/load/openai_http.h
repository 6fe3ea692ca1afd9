// libcurl for the drivers of OpenAI-compatible servers: owning handles, and the settings of every request. Internal to
// the drivers.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <memory>
#include <string>

#include "bench/load/openai_server.h"

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
void init_curl();

// Headers of every request: JSON, the key, and no "Expect: 100-continue", which would cost a round trip.
[[nodiscard]] CurlHeaders make_headers(const OpenAiTarget& target);

// Resets `handle` and sets it up for `path` of the target: HTTP/1.1, no proxy (the environment's is ignored), no
// redirect, no signal. `headers` and `error` (CURL_ERROR_SIZE bytes) must outlive the transfer.
void aim(CURL* handle, const OpenAiTarget& target, const std::string& path, const CurlHeaders& headers, char* error);

}  // namespace troupe::load
