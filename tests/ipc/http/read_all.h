// Feeds a RequestReader with pieces of bytes, as a connection does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/http/request_reader.h"

namespace troupe::ipc::http::test {

struct ReadResult {
  std::vector<Request> requests;
  bool failed = false;
  BadRequest error;
  std::size_t rest = 0;                                     // bytes after the error
  RequestReader::Stage stage = RequestReader::Stage::idle;  // at the end

  friend bool operator==(const ReadResult& a, const ReadResult& b) {
    if (a.requests.size() != b.requests.size() || a.failed != b.failed || a.stage != b.stage) return false;
    if (a.error.status != b.error.status && a.failed) return false;
    for (std::size_t i = 0; i < a.requests.size(); ++i) {
      const RequestHead &x = a.requests[i].head, &y = b.requests[i].head;
      if (x.method != y.method || x.path != y.path || x.query != y.query || x.host != y.host ||
          x.fields.size() != y.fields.size() || x.keep_alive != y.keep_alive || x.length != y.length)
        return false;
      for (std::size_t f = 0; f < x.fields.size(); ++f)
        if (x.fields[f].name != y.fields[f].name || x.fields[f].value != y.fields[f].value) return false;
      if (a.requests[i].body != b.requests[i].body) return false;
    }
    return true;
  }
};

inline ReadResult read_all(const std::vector<std::string>& pieces, std::uint64_t max_body_bytes = 1 << 20) {
  using Stage = RequestReader::Stage;
  RequestReader reader(max_body_bytes);
  ReadResult result;
  std::string pending;
  for (const std::string& piece : pieces) {
    pending += piece;
    for (;;) {
      pending.erase(0, reader.push(pending));
      if (reader.stage() == Stage::head) {
        reader.read_body();
      } else if (reader.stage() == Stage::failed) {
        break;
      } else if (reader.stage() != Stage::complete) {
        break;
      }
      if (reader.stage() == Stage::complete) result.requests.push_back(reader.take());
    }
  }
  result.stage = reader.stage();
  result.failed = result.stage == Stage::failed;
  if (result.failed) result.error = reader.error();
  result.rest = pending.size();
  return result;
}

}  // namespace troupe::ipc::http::test
