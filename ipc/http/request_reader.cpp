#include "ipc/http/request_reader.h"

#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include "config/assert.h"
#include "ipc/http/head_rules.h"

namespace troupe::ipc::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
namespace errc = boost::system::errc;

std::string to_string(beast::string_view text) { return {text.data(), text.size()}; }

// Collects what Beast finds in one request.
class Parser final : public beast::http::basic_parser<true> {
 public:
  explicit Parser(std::uint64_t max_body_bytes) {
    header_limit(std::numeric_limits<std::uint32_t>::max());  // the reader bounds it
    body_limit(max_body_bytes);
    eager(true);
  }

  Request request;
  std::string_view unread;  // of the bytes that Beast was given, from the end of the last chunk on
  bool control_in_chunk = false;
  bool long_line = false;  // of a chunk
  bool has_trailer = false;

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target, int version,
                       error_code& error) override {
    request.head.method = to_string(method);
    request.head.target = to_string(target);
    request.head.is_http11 = version == 11;
    error = {};
  }
  void on_response_impl(int, beast::string_view, int, error_code& error) override {
    error = errc::make_error_code(errc::not_supported);
  }
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value,
                     error_code& error) override {
    error = {};
    if (is_header_done()) {
      has_trailer = true;
      error = beast::http::error::bad_field;
      return;
    }
    std::string lower = to_string(name);
    for (char& c : lower)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    request.head.fields.push_back({std::move(lower), to_string(value)});
  }
  void on_header_impl(error_code& error) override { error = {}; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code& error) override { error = {}; }
  std::size_t on_body_impl(beast::string_view bytes, error_code& error) override {
    error = {};
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view extension, error_code& error) override {
    error = {};
    // The whole line, with zeros before the size, which Beast passes over.
    if (unread.starts_with("\r\n")) unread.remove_prefix(2);  // of the chunk before it
    long_line |= unread.substr(0, unread.find("\r\n")).size() > kMaxChunkLineBytes;
    // Beast lets any byte pass within quotes.
    control_in_chunk |= std::any_of(extension.begin(), extension.end(), [](char c) {
      return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
    });
    if (control_in_chunk || long_line) error = beast::http::error::bad_chunk_extension;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code& error) override {
    unread.remove_prefix(static_cast<std::size_t>(bytes.data() + bytes.size() - unread.data()));
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(error_code& error) override { error = {}; }
};

BadRequest to_bad_request(const error_code& code) {
  using beast::http::error;
  if (code == error::body_limit) return {413, "the body is larger than this server takes (max_frame_bytes)"};
  if (code == error::bad_version) return {400, "the request line does not end in an HTTP version"};
  if (code == error::bad_method) return {400, "the request line does not begin with a method and one space"};
  if (code == error::bad_target) return {400, "the request target is empty, or has a space or control character"};
  if (code == error::bad_field) return {400, "a header field's name has a character that no name may have"};
  if (code == error::bad_value) return {400, "a header field's value has a control character"};
  if (code == error::bad_content_length) return {400, "Content-Length is no number"};
  if (code == error::bad_transfer_encoding) return {400, "Transfer-Encoding is sent twice, or beside Content-Length"};
  if (code == error::bad_chunk || code == error::bad_chunk_extension)
    return {400, "a chunk of the body is damaged: its size, its extension or its end"};
  return {400, "the request is damaged: " + code.message()};
}

BadRequest line_too_long() {
  return {431,
          "a chunk's line, its size and extensions, has more than " + std::to_string(kMaxChunkLineBytes) + " bytes"};
}

}  // namespace

struct RequestReader::Impl {
  explicit Impl(std::uint64_t most) : max_body_bytes(most) {}

  std::size_t push(std::string_view bytes);
  std::size_t push_header(std::string_view bytes);
  std::size_t push_body(std::string_view bytes);
  void read_head(std::size_t size);
  void put(std::string_view bytes, std::size_t& used);
  void fail(BadRequest why) {
    error = std::move(why);
    stage = Stage::failed;
    buffer = std::string();
    parser.reset();
  }

  const std::uint64_t max_body_bytes;
  Stage stage = Stage::idle;
  std::unique_ptr<Parser> parser;  // of the current request
  std::string buffer;              // the head so far, or the part of a chunk's line that Beast could not use yet
  bool skipped_line_end = false;   // before this request
  BadRequest error;
};

std::size_t RequestReader::Impl::push(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size()) {
    const std::string_view rest = bytes.substr(used);
    if (stage == Stage::idle || stage == Stage::header) {
      used += push_header(rest);
    } else if (stage == Stage::body) {
      used += push_body(rest);
    } else {
      return used;
    }
  }
  return used;
}

// Takes bytes up to the end of the head.
std::size_t RequestReader::Impl::push_header(std::string_view bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  stage = Stage::header;
  const std::size_t before = buffer.size();
  std::size_t from = before - std::min(before, kEnd.size() - 1);
  std::size_t skipped = 0;
  buffer.append(bytes.substr(0, kMaxHeaderBytes + 1 - before));
  // A line end before a request is skipped, once (RFC 9112, section 2.2).
  if (!skipped_line_end && buffer.starts_with("\r\n")) {
    skipped_line_end = true;
    buffer.erase(0, skipped = 2);
    from = 0;
    if (buffer.empty()) stage = Stage::idle;
  }
  const std::size_t end = buffer.find(kEnd, from);
  const std::size_t size = end == std::string::npos ? buffer.size() : end + kEnd.size();
  const std::size_t used = skipped + size - before;
  if (const auto wrong = check_lines(std::string_view(buffer).substr(0, size), from))
    fail(*wrong);
  else if (size > kMaxHeaderBytes)
    fail({431, "the request's head has more than " + std::to_string(kMaxHeaderBytes) + " bytes"});
  else if (end != std::string::npos)
    read_head(size);
  return used;
}

void RequestReader::Impl::read_head(std::size_t size) {
  parser = std::make_unique<Parser>(max_body_bytes);
  const std::string head = std::exchange(buffer, {}).substr(0, size);
  if (const auto wrong = check_request_line(head)) return fail(*wrong);
  error_code code;
  const std::size_t used = parser->put(boost::asio::buffer(head), code);
  // Beast would read trailing bytes as the body; there are none. "need more" means that it found no head.
  if (code && !(code == beast::http::error::need_more && parser->is_header_done())) return fail(to_bad_request(code));
  if (!parser->is_header_done() || used != head.size()) return fail({400, "the request's head is damaged"});
  if (const auto wrong = finish_head(parser->request.head)) return fail(*wrong);
  if (parser->request.head.length.value_or(0) > max_body_bytes)
    return fail(to_bad_request(beast::http::error::body_limit));
  stage = Stage::head;
}

void RequestReader::Impl::put(std::string_view bytes, std::size_t& used) {
  error_code code;
  parser->unread = bytes;
  used = parser->put(boost::asio::buffer(bytes.data(), bytes.size()), code);
  if (parser->has_trailer)
    fail({400, "fields after a chunked body (trailers) are refused: a proxy might take them for the request's"});
  else if (parser->long_line)
    fail(line_too_long());
  else if (code && code != beast::http::error::need_more)
    fail(to_bad_request(code));
  else if (parser->is_done())
    stage = Stage::complete;
}

std::size_t RequestReader::Impl::push_body(std::string_view bytes) {
  std::size_t used = 0;
  if (buffer.empty()) {
    put(bytes, used);
    if (stage != Stage::body) return used;
    buffer.assign(bytes.substr(used));
  } else {
    const std::size_t before = buffer.size();
    buffer.append(bytes);
    put(buffer, used);
    if (stage == Stage::failed) return bytes.size();  // nothing after it is read
    if (stage == Stage::complete) {
      TROUPE_ASSERT(used >= before);  // else the bytes before would have completed it
      buffer.clear();
      return used - before;
    }
    buffer.erase(0, used);
  }
  // Beast uses all bytes but an unfinished line.
  std::string_view line = buffer;
  if (line.starts_with("\r\n")) line.remove_prefix(2);  // of the chunk before it
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() > kMaxChunkLineBytes) fail(line_too_long());
  return bytes.size();
}

RequestReader::RequestReader(std::uint64_t max_body_bytes) : impl_(std::make_unique<Impl>(max_body_bytes)) {}
RequestReader::~RequestReader() = default;

std::size_t RequestReader::push(std::string_view bytes) { return impl_->push(bytes); }

void RequestReader::read_body() {
  TROUPE_ASSERT(impl_->stage == Stage::head);
  impl_->stage = impl_->parser->is_done() ? Stage::complete : Stage::body;
}

RequestReader::Stage RequestReader::stage() const { return impl_->stage; }

const RequestHead& RequestReader::head() const {
  TROUPE_ASSERT(impl_->parser);
  return impl_->parser->request.head;
}

std::size_t RequestReader::body_bytes() const { return impl_->parser ? impl_->parser->request.body.size() : 0; }

void RequestReader::reserve_body() {
  TROUPE_ASSERT(impl_->parser);
  Request& request = impl_->parser->request;
  if (request.head.length) request.body.reserve(*request.head.length);
}

Request RequestReader::take() {
  TROUPE_ASSERT(impl_->stage == Stage::complete);
  Request request = std::move(impl_->parser->request);
  impl_->parser.reset();
  impl_->stage = Stage::idle;
  impl_->skipped_line_end = false;
  return request;
}

const BadRequest& RequestReader::error() const { return impl_->error; }

}  // namespace troupe::ipc::http
