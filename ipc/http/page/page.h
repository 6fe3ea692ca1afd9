// The page at "/": its bytes, which are a part of the program, and the answer that carries them. Plain.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ipc/http/request.h"
#include "ipc/http/response.h"

namespace troupe::ipc::http {

// From index.html (page_data.cpp in the build tree, by embed_page.cmake).
extern const unsigned char kPageBytes[];
extern const std::size_t kPageSize;
extern const std::string_view kPageScriptHash;  // SHA-256 in base64 of what stands in <script>
extern const std::string_view kPageStyleHash;   // and in <style>
extern const std::string_view kPageETag;        // with its quotation marks

// index.html, byte for byte.
[[nodiscard]] inline std::string_view page_html() { return {reinterpret_cast<const char*>(kPageBytes), kPageSize}; }

// The Content-Security-Policy of the page: only its own script and style, requests to its own origin only, no frames,
// and no text that becomes markup (Trusted Types, where the browser knows them).
[[nodiscard]] std::string page_policy();

// The answer to GET or HEAD of "/"; 304 without a body if the client has these bytes (If-None-Match).
[[nodiscard]] Response page_response(const RequestHead& head);

}  // namespace troupe::ipc::http
